"""What commands print: text as text whatever is in it, and tables of a run, seeds and versions."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hma.data import Source
from hma.errors import printable
from hma.options.run import Which
from hma.report.numbers import capital, counted
from hma.report.seeds import SeedsReport, Sheet, rows_of, sheets
from hma.runs import MIXTURE, Run, title
from hma.runs.card import score_numbers, what_was_done, when
from hma.runs.deployment import Deployment
from hma.runs.memory_versions import Version
from hma.targets import Target
from hma.training import Scores


class Terminal(Console):
    """A console on which no label, file name or column name acts.

    Rich takes square brackets for markup and hands escape sequences on; here both are shown.
    """

    def say(self, line: str) -> None:
        """Print a line, however long."""
        self.print(line, soft_wrap=True)

    def render_str(self, text: str, **looks: Any) -> Text:
        """Return ``text`` as it is, made printable."""
        kept = {name: looks[name] for name in ("style", "justify", "overflow") if name in looks}
        return Text(printable(text), **kept)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show each warning as one line on stderr, without the place in the code."""
    terminal = Terminal(stderr=True)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: terminal.say(f"hma: {message}")
        yield


def row_name(which: Which, target: Target) -> str:
    """Return the name of a candidate at the beginning of a row."""
    return title(which, target).removeprefix("the ")


def comparison(run: Run) -> Iterator[Table]:
    """Yield what the validation rows say of every candidate, and its test scores."""
    deployed, target = run.deployed, run.preparation.target
    names = {which: row_name(which, target) for which in run.answering}
    if len(names) > 1:
        yield _candidate_table(names, deployed, before=run.refitted)
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
    before = ", and these are of before they were learned from" if run.refitted else ""
    yield score_table(kept, title=f"Validation scores: there are no test rows{before}")


def _candidate_table(names: Mapping[Which, str], deployed: Deployment, *, before: bool) -> Table:
    """Return the share and the validation loss of each, the least loss first.

    Args:
        names: Of the candidates.
        deployed: What they came to.
        before: Whether they learned from these rows since.
    """
    title = f"Candidates on {counted(deployed.rows, 'validation row')}"
    title += ", before they learned from them" if before else ""
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


def seed_tables(report: SeedsReport) -> Iterator[Table]:
    """Yield a table for each test set and metric: candidates, means, paired differences."""
    seeds = counted(len(report.seeds), "seed")
    for trial in report.tests:
        for sheet in sheets(report, trial):
            where = f" on {trial.name}" if len(report.tests) > 1 else ""
            name = capital(sheet.title)
            yield _sheet_table(f"{name}{where} over {seeds} ({rows_of(trial)})", sheet)


def _sheet_table(title: str, sheet: Sheet) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("candidate")
    columns = ["mean", "sd"]
    columns += ["minus\nplain backbone"] * sheet.compared
    columns += [f"minus\n{sheet.simple}"] * (sheet.simple is not None)
    for name in columns:
        table.add_column(name, justify="right")
    for line in sheet.lines:
        cells = [line.mean, line.deviation]
        cells += [_difference(*line.to_plain)] * sheet.compared
        cells += [_difference(*line.to_simple)] * (sheet.simple is not None)
        table.add_row(line.name, *cells)
    return table


def _difference(value: str, ends: str) -> str:
    return f"{value}\n{ends}" if ends else value


def tell_ignored(terminal: Terminal, run: Run, rows: Source) -> None:
    """Say which parts of a source were not used."""
    for note in run.preparation.notes(rows):
        terminal.say(note)
    if rows.skipped:
        terminal.say(f"left out {len(rows.skipped)} unreadable files")


def tell_version(terminal: Terminal, version: Version) -> None:
    """Say what a change did: rows, classes, and scores before and after."""
    terminal.say(f"version {version.number}: {what_was_done(version)}")
    terminal.say(f"the memory now holds {counted(version.rows, 'row')}")
    if not version.scores:
        return
    table = Table()
    for name in ("rows", "count", "metric", "before", "after", "how"):
        numeric = name in ("count", "before", "after")
        table.add_column(name, justify="right" if numeric else "left")
    for score in version.scores:
        table.add_row(score.rows, str(score.count), *score_numbers(score), score.how)
    terminal.print(table)


def history_table(versions: Sequence[Version], rows_at_first: int) -> Table:
    """Return a line for each version, the one in use marked."""
    table = Table(title="Versions of the memory; the last one is in use")
    for name in ("version", "time", "rows", "validation", "what"):
        table.add_column(name, justify="right" if name in ("version", "rows") else "left")
    table.add_row("0", "", str(rows_at_first), "", "what training left")
    for version in versions:
        first = version.scores[0] if version.scores else None
        moved = (
            "" if first is None or first.before is None else " → ".join(score_numbers(first)[1:])
        )
        table.add_row(
            str(version.number),
            when(version),
            str(version.rows),
            moved,
            what_was_done(version),
        )
    return table
