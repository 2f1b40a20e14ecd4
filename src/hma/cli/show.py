"""Numbers of a run as tables for the terminal."""

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table

from hma.runs import Run, Which, title
from hma.targets import Target
from hma.training import Scores


def row_name(which: Which, target: Target) -> str:
    """Return the name of a candidate at the beginning of a row."""
    return title(which, target).removeprefix("the ")


def comparison(run: Run) -> Table:
    """Return the test scores of a run, the plain backbone first."""
    target = run.preparation.target
    records = {row_name(which, target): run.record(which) for which in run.candidates}
    tests = dict.fromkeys(test for record in records.values() for test in record.tests)
    if not tests:
        kept = {
            ("validation", name): record.epochs[record.selected_epoch]["validation"]
            for name, record in records.items()
        }
        return score_table(kept, title="Validation scores: there are no test rows")
    return score_table(
        {(test, name): record.tests[test] for test in tests for name, record in records.items()},
        title="Test scores",
    )


def score_table(found: Mapping[tuple[str, str], Scores], title: str) -> Table:
    """Return a table of scores: (test split, method) -> context -> metric -> value."""
    metrics = dict.fromkeys(m for scores in found.values() for v in scores.values() for m in v)
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("test", overflow="fold")
    for name in ("method", "context"):
        table.add_column(name, no_wrap=True)
    for name in metrics:
        table.add_column(name, justify="right", no_wrap=True)
    shown = None
    for (test, method), scores in found.items():
        for context, values in scores.items():
            numbers = [f"{values[m]:.4f}" if m in values else "—" for m in metrics]
            table.add_row(test if test != shown else "", method, context, *numbers)
            shown = test
    return table
