"""Versions of a memory in words: for the terminal and for the page of a run."""

from hma.metrics import METRICS
from hma.report.numbers import MISSING, counted
from hma.report.run.run_report import MemoryChange
from hma.runs.folder import Run
from hma.runs.version import Score, Version


def what_was_done(version: Version) -> str:
    """Say in a line what made a version."""
    note = f" ({version.note})" if version.note else ""
    if version.verb == "damaged":
        return version.source
    if version.verb == "restore":
        return f"version {version.restored} answers again{note}"
    if version.verb == "forget":
        return f"forgot {counted(version.forgotten, 'row')}: {version.source}{note}"
    new = f", new: {', '.join(version.classes)}" if version.classes else ""
    return f"remembered {counted(version.added, 'row')} of {version.source}{new}{note}"


def when(version: Version) -> str:
    """Return the time of a version as people write it, in UTC."""
    return version.time.replace("T", " ").removesuffix("+00:00")


def score_numbers(score: Score) -> tuple[str, str, str]:
    """Return the name of the metric, and its values before and after."""
    title = METRICS[score.metric].title if score.metric in METRICS else score.metric
    before, after = (
        MISSING if value is None else f"{value:.4f}" for value in (score.before, score.after)
    )
    return title, before, after


def version_line(run: Run) -> str:
    """Say which version of the memory answers; nothing where it is what training left."""
    number = run.living.number
    if not number:
        return ""
    version = run.versions.version(number)
    return (
        f"Version {number} of the memory answers, with {counted(version.rows, 'row')}: "
        f"{what_was_done(version)}. Records, losses and shares are those of the training."
    )


def changes_of(run: Run) -> list[MemoryChange]:
    """Return every version of the memory after training, for the page."""
    found = []
    for version in run.versions.history() if run.living.number else []:
        lines = []
        for score in version.scores:
            title, before, after = score_numbers(score)
            said = f"{title} {before} before, {after} after" if title else ""
            lines.append(f"{score.rows} ({score.count}): {said}{'; ' if said else ''}{score.how}")
        found.append(
            MemoryChange(
                number=version.number,
                time=when(version),
                what=what_was_done(version),
                rows=version.rows,
                scores=tuple(lines),
                remains=version.remains,
            )
        )
    return found
