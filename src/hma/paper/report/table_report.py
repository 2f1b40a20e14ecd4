"""What the report of a table says, in plain numbers; how they look is decided elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hma.paper.report.scene import Scene
from hma.paper.report.scores import Paired, Spread
from hma.paper.results import Failure
from hma.paper.table import Cell, Table
from hma.training import Record

Place = tuple[str, str]
"""A task and a row."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row on a task.

    Args:
        wanted: Number of seeds asked for.
        scores: Seed -> score in the row's own context, mean over the test splits.
        measured: The same over seeds; None if there is none.
        published: Mean and standard deviation in the paper, if it prints them.
        difference: Measured minus published.
        paired: Against the baseline; None for the baseline itself and without common seeds.
        context: What rows see at test in ``measured``.
        contexts: Every context that was measured, ``context`` first.
        splits: Every test split, in ``context``.
        failed: Seeds that failed at the last try.
        best: Whether no other row has a better mean on the task.
    """

    wanted: int
    scores: Mapping[int, float]
    measured: Spread | None
    published: tuple[float, float] | None
    difference: float | None
    paired: Paired | None
    context: str | None
    contexts: Mapping[str, Spread]
    splits: Mapping[str, Spread]
    failed: tuple[int, ...]
    best: bool


@dataclass(frozen=True)
class Average:
    """A row over all tasks of a group; what has a hole has no average.

    Args:
        measured: Over seeds, each averaged over the tasks; None if a task or a seed is missing.
        published: Mean of the published means; None if one is missing.
        difference: Measured minus published.
    """

    measured: Spread | None
    published: float | None
    difference: float | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tasks that belong together: a curve of a figure, or all of a table.

    Args:
        name: Of the curve; empty for a table.
        tasks: In order.
        labels: The tasks without what the name of the curve says already.
        averages: By row; empty for a single task.
    """

    name: str
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    averages: Mapping[str, Average]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a row took: mean seconds and largest peak of memory over its records."""

    records: int
    wanted: int
    failed: int
    seconds: float | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """A table as far as it is measured.

    Args:
        table: The table, with a row for each candidate of its whole runs.
        budget: Name of the budget.
        seeds: The seeds asked for.
        methods: Its rows, each with a few words on it.
        groups: Its tasks.
        entries: By task and row; a pair that was not asked for is not there.
        costs: By row.
        cells: Number of cells asked for.
        held: The records of those that are measured.
        retired: Number of the others whose method left the package, so that none measures them.
        failures: By name of the cell.
        command: Measures what is missing.
        outside: Tasks and rows of the table that were not asked for.
        warnings: What is wrong with the records as a whole.
        scenes: Its pictures.
    """

    table: Table
    budget: str
    seeds: tuple[int, ...]
    methods: Mapping[str, str]
    groups: tuple[Group, ...]
    entries: Mapping[Place, Entry]
    costs: Mapping[str, Cost]
    cells: int
    held: Mapping[Cell, Record]
    retired: int
    failures: Mapping[str, Failure]
    command: str
    outside: tuple[str, ...]
    warnings: tuple[str, ...]
    scenes: tuple[Scene, ...]

    @property
    def budget_what(self) -> str:
        """What the budget is."""
        return self.table.budget(self.budget).what

    @property
    def records(self) -> int:
        """Number of cells that are measured."""
        return len(self.held)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Its tasks, in the order of their groups."""
        return tuple(task for group in self.groups for task in group.tasks)

    @property
    def places(self) -> tuple[Place, ...]:
        """Tasks and rows that were asked for, in order."""
        every = ((task, method) for task in self.tasks for method in self.methods)
        return tuple(place for place in every if place in self.entries)

    @property
    def has_published(self) -> bool:
        """Whether the paper prints any of its scores."""
        return any(entry.published is not None for entry in self.entries.values())

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the test splits, over all records."""
        return tuple(dict.fromkeys(s for entry in self.entries.values() for s in entry.splits))

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Rows without a record or a failure on any task; none of a table without records."""
        if not self.records:
            return ()
        tried = {method for (_, method), e in self.entries.items() if e.scores or e.failed}
        return tuple(method for method in self.methods if method not in tried)

    @property
    def shown(self) -> tuple[str, ...]:
        """Rows that have a number to show, measured or published."""
        printed = {method for (_, method), e in self.entries.items() if e.published is not None}
        return tuple(m for m in self.methods if m in printed or m not in self.unmeasured)


@dataclass(frozen=True)
class Field:
    """A field of a sheet: its text, smaller lines below it, and whether it is the best."""

    text: str
    below: tuple[str, ...] = ()
    best: bool = False


@dataclass(frozen=True)
class Sheet:
    """A small table of text.

    Args:
        kind: What it shows: 'overview', 'ranks', 'published', 'task', 'contexts', 'splits',
            'beside', 'checks', 'permuted', 'edge hits', 'candidates', 'rows', 'machine' or 'cost'.
        title: In a few words.
        columns: Their headings; the first ``names`` columns name a line.
        lines: Its fields.
        note: How to read it; empty if nothing needs saying.
        names: Number of columns that are names.
    """

    kind: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[Field, ...], ...]
    note: str = ""
    names: int = 1


def titled(what: str, group: Group) -> str:
    """Return a title, with the name of the group where it has one."""
    return f"{what}: {group.name}" if group.name else what


def named_once(name: str, before: Sequence[tuple[Field, ...]]) -> str:
    """Return the name of a line, unless the lines before have it already."""
    shown = next((line[0].text for line in reversed(before) if line[0].text), None)
    return name if name != shown else ""
