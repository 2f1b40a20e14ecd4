"""Step 2: one prediction, and the training rows that voted for it."""

from hma.quickstart.step import Picture, Step
from hma.report.numbers import percent
from hma.runs import Run
from hma.runs.explanation import explain_row
from hma.runs.kept_answers import answers_of
from hma.runs.source import rows_for

VOTERS = 5


def explained_row(run: Run) -> Step:
    """Explain the test row that the memory was right about and least sure of."""
    place = _hardest(run)
    source = run.options.source.split(":")[0]
    rows = rows_for(run, source, labelled=False)
    found = explain_row(run, rows, place, top=VOTERS, context="alone")
    voted = [seen for seen in found.seen if seen.kind == "training row"]
    plain = next((seen.share for seen in found.seen if seen.kind == "plain part"), 0.0)
    said = ", ".join(f"{seen.label} ({percent(seen.share)})" for seen in voted)
    return Step(
        name="explained row",
        title="A row explained: the one it was right about and least sure of",
        result=(
            f"{found.description}: the memory says {found.answer}; {percent(plain)} of the answer "
            f"is the network's own, and the training rows that count most are labelled {said}"
        ),
        command=f"hma explain {run.folder} {source} --index {place}",
        numbers={
            "share of the network": plain,
            **{f"share of voter {rank}": seen.share for rank, seen in enumerate(voted, start=1)},
        },
        pictures=(
            Picture(picture=found.picture, head="asked", text=found.answer),
            *(
                Picture(
                    picture=seen.picture, head=percent(seen.share), text=f"labelled {seen.label}"
                )
                for seen in voted
            ),
        ),
        caption="The row that is asked about, and what the training rows that voted most count.",
    )


def _hardest(run: Run) -> int:
    """Return the place of the test row that is answered right with the least probability."""
    answers = answers_of(run)
    said = next(tests for candidate, tests in answers.said.items() if candidate.kind == "memory")
    chances = answers.target.expected(said["test"])
    labels = answers.labels["test"]
    sure, decided = chances.max(dim=1)
    row = int(sure.masked_fill(decided != labels, 2.0).argmin())
    return run.places["test"][row]
