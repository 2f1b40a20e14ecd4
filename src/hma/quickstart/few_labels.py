"""Steps 1 to 3: ten labels of each digit, one prediction explained, and an audit of the memory."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

from hma.attention.config import HMAConfig
from hma.methods import with_memory
from hma.options.run import Which
from hma.questions.audit import PERMUTED, Audit
from hma.quickstart.step import Found, Line, Picture, Step
from hma.report.numbers import counted, percent, plain
from hma.runs import MEMORY, MIXTURE, PLAIN, Run, RunOptions, SeveralRuns, title, train_seeds
from hma.runs.audits import audit_run, read_audits
from hma.runs.deployment import PARAM, SIMPLE
from hma.runs.explanation import explain_row
from hma.runs.kept_answers import answers_of
from hma.runs.source import prepared_from, rows_for
from hma.training import Progress, Record, UserRecipe, fit

FOLDER, PARAM_FOLDER = "few-labels", "param"
PER_CLASS = 10
RECIPE = replace(UserRecipe(), epochs=150, evaluate_every=10).fixed()
"""That of ``hma train``, with fewer epochs, a look at the validation rows after every tenth."""
OPTIONS = RunOptions(source=f"digits:{PER_CLASS}", recipe=RECIPE)
ORDER: tuple[Which, ...] = (*SIMPLE, PLAIN, PARAM, MEMORY, MIXTURE)


def few_labels(folder: Path, seeds: int, progress: Progress | None) -> tuple[Found, SeveralRuns]:
    """Train everything with every seed; what is trained already is read again.

    Args:
        folder: Of the tour.
        seeds: How many.
        progress: Shows how far it is.
    """
    found = train_seeds(OPTIONS, folder / FOLDER, seeds, pages=False, progress=progress)
    runs = [found.runs[seed] for seed in range(seeds)]
    scores: dict[Which, list[dict[str, float]]] = {}
    for run in runs:
        for which in run.candidates:
            scores.setdefault(which, []).append(_tested(run.record(which)))
        scores.setdefault(MIXTURE, []).append(dict(run.deployed.tests["test"]))
        record = _param(run, folder / PARAM_FOLDER / run.folder.name, progress)
        scores.setdefault(PARAM, []).append(_tested(record))
    target = runs[0].preparation.target
    lines = {
        which: Line(
            method=title(which, target).removeprefix("the "),
            accuracy=tuple(one["accuracy"] for one in scores[which]),
            loss=tuple(one["nll"] for one in scores[which]),
        )
        for which in ORDER
        if which in scores
    }
    return Found(step=_step(folder, lines, runs[0]), lines=tuple(lines.values())), found


def _param(run: Run, folder: Path, progress: Progress | None) -> Record:
    """Train the paper's blocks without a memory, on the same rows by the same recipe."""
    task, options = prepared_from(run.options).task, run.options
    method = with_memory(options.backbone_factory(), HMAConfig.ablation(PARAM), alone=True)
    return fit(
        method(task, options.seed),
        task,
        options.recipe,
        seed=options.seed,
        folder=folder,
        progress=progress,
    )


def _tested(record: Record) -> dict[str, float]:
    return dict(record.tests["test"]["alone"])


def _step(folder: Path, lines: dict[Which, Line], run: Run) -> Step:
    seeds = len(lines[MIXTURE].accuracy)
    deployed, plain_backbone = lines[MIXTURE], lines[PLAIN]
    rows = {name: len(places) for name, places in run.places.items()}
    return Step(
        name="few labels",
        title=f"Few labels: {PER_CLASS} of each digit",
        result=(
            f"what hma train deploys is right on {percent(fmean(deployed.accuracy))} of "
            f"{rows['test']} test rows (log loss {plain(fmean(deployed.loss))}), the plain "
            f"backbone alone on {percent(fmean(plain_backbone.accuracy))} (log loss "
            f"{plain(fmean(plain_backbone.loss))}); mean of {counted(seeds, 'seed')}"
        ),
        command=(
            f"hma train {OPTIONS.source} --seeds {seeds} --epochs {OPTIONS.recipe.epochs} "
            f"--evaluate-every {OPTIONS.recipe.evaluate_every} -o {folder / FOLDER}"
        ),
        numbers={
            "seeds": seeds,
            "training rows": rows["train"],
            "test rows": rows["test"],
            "deployed accuracy": fmean(deployed.accuracy),
            "deployed log loss": fmean(deployed.loss),
            "plain backbone accuracy": fmean(plain_backbone.accuracy),
            "plain backbone log loss": fmean(plain_backbone.loss),
        },
    )


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
    answers = answers_of(run)["test"]
    chances = run.preparation.target.expected(answers.own["memory"])
    labels = answers.labels
    sure, decided = chances.max(dim=1)
    row = int(sure.masked_fill(decided != labels, 2.0).argmin())
    return run.places["test"][row]


def read_or_not(run: Run) -> tuple[Step, Audit]:
    """Return the audit of the run's memory on its test rows; training made it already."""
    audit = next(iter((read_audits(run) or audit_run(run)).values()))
    permuted = audit.changes[PERMUTED]["accuracy"]
    step = Step(
        name="audit",
        title="Does the model use its memory? The audit gives its rows the labels of other rows",
        result=audit.verdict,
        command=f"hma audit {run.folder}",
        numbers={
            "accuracy as it is": audit.scores["accuracy"],
            "accuracy with labels permuted": permuted.score,
            "stored rows": audit.stored,
        },
    )
    return step, audit
