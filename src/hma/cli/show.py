"""Numbers of a run as tables for the terminal."""

import math
from collections.abc import Iterator, Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table

from hma.report.numbers import counted
from hma.runs import MIXTURE, Run, Which, title
from hma.runs.deployment import Deployment
from hma.targets import Target
from hma.training import Scores


def row_name(which: Which, target: Target) -> str:
    """Return the name of a candidate at the beginning of a row."""
    return title(which, target).removeprefix("the ")


def comparison(run: Run) -> Iterator[Table]:
    """Yield what the validation rows say of every candidate, and its test scores."""
    deployed, target = run.deployed, run.preparation.target
    names = {which: row_name(which, target) for which in run.answering}
    if len(names) > 1:
        yield _candidate_table(names, deployed)
    records = {which: run.record(which) for which in run.candidates}
    tests = dict.fromkeys(test for record in records.values() for test in record.tests)
    found: dict[tuple[str, str], Scores] = {}
    for test in tests:
        for which, record in records.items():
            found[test, names[which]] = record.tests[test]
        if MIXTURE in names and test in deployed.tests:
            found[test, names[MIXTURE]] = {"alone": dict(deployed.tests[test])}
    if tests:
        yield score_table(found, title="Test scores")
        return
    kept = {
        ("validation", names[which]): record.epochs[record.selected_epoch]["validation"]
        for which, record in records.items()
    }
    yield score_table(kept, title="Validation scores: there are no test rows")


def _candidate_table(names: Mapping[Which, str], deployed: Deployment) -> Table:
    """Return the share and the validation loss of each, the least loss first."""
    title = f"Candidates on {counted(deployed.rows, 'validation row')}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("candidate", no_wrap=True)
    for column in ("share", "validation loss"):
        table.add_column(column, justify="right", no_wrap=True)
    for which in sorted(names, key=lambda name: deployed.losses.get(name, math.inf)):
        share, loss = deployed.shares.get(which), deployed.losses.get(which)
        name = f"{names[which]} (deployed)" if which == deployed.which else names[which]
        cells = "" if share is None else f"{share:.0%}", "—" if loss is None else f"{loss:.4f}"
        table.add_row(name, *cells)
    return table


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
