"""The headline as Markdown, for terminals and READMEs."""

from hma.report.content import MEMORY, RunReport, Trial
from hma.report.words import (
    NAMES,
    amount,
    change,
    change_interval,
    interval,
    named,
    p_value,
    shown,
    verdict,
)


def markdown_summary(report: RunReport) -> str:
    """Return the verdict and the table of each test set."""
    parts = [f"# {_plain(report.title)}"]
    for trial in report.tests:
        if len(report.tests) > 1:
            parts.append(f"## {_plain(trial.name)}")
        found = verdict(report, trial)
        parts += [f"**{found.headline}.** {found.sentence}", _table(report, trial)]
    parts += [f"Note: {_plain(note)}" for note in report.notes]
    return "\n\n".join(parts) + "\n"


def _table(report: RunReport, trial: Trial) -> str:
    metrics = list(trial.results[0].scores)
    against = {found.context: found for found in trial.comparisons}
    lines = [
        ["method", *(NAMES[m] for m in metrics), "calibration error", "against plain", "McNemar"]
    ]
    lines.append(["---", *("---:" for _ in lines[0][1:])])
    for result in trial.results:
        cells = [f"{amount(m, s.value)} ({interval(m, s)})" for m, s in result.scores.items()]
        found = against.get(result.context) if result.method == MEMORY else None
        ends = None if found is None else found.differences[report.metric]
        lines.append(
            [
                _plain(named(result, trial)),
                *cells,
                f"{result.calibration.error:.3f}",
                ""
                if ends is None
                else f"{change(report.metric, ends.value)} "
                f"({change_interval(report.metric, ends)})",
                "" if found is None else p_value(found.p_value),
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Return ``text`` on one line, with nothing in it that Markdown or HTML would act on."""
    line = " ".join(shown(text).split())
    for mark in "\\`*_[]|<>#~&":
        line = line.replace(mark, f"\\{mark}")
    return line
