"""What a run of the benchmarks found: plain data, to JSON and to rows of text."""

import json
from dataclasses import asdict, dataclass
from typing import Self

from benchmarks.machine import Machine

Value = str | int | float | bool | None
Row = dict[str, Value]


@dataclass(frozen=True)
class Table:
    """Text ready to print.

    Args:
        title: One line.
        columns: Headings.
        rows: One text per column.
        note: How it was measured, or why it was not.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """The rows of one benchmark; units are the last word of a column's name.

    Args:
        name: The benchmark, as ``only`` spells it.
        title: What it shows.
        method: How it was measured.
        rows: Measured values, every row with the same columns.
        skipped: Why there are no rows.
    """

    name: str
    title: str
    method: str
    rows: tuple[Row, ...] = ()
    skipped: str | None = None

    def table(self) -> Table:
        """Return the rows as text."""
        columns = tuple(self.rows[0]) if self.rows else ()
        return Table(
            title=self.title,
            columns=tuple(column.replace("_", " ") for column in columns),
            rows=tuple(tuple(text(row[column]) for column in columns) for row in self.rows),
            note=f"skipped: {self.skipped}" if self.skipped else self.method,
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole run.

    Args:
        machine: Where and when.
        threads: Threads torch used.
        quick: Whether sizes and repeats were cut down; such numbers are a check, not a record.
        seconds: Length of the run.
        sections: One per benchmark.
    """

    machine: Machine
    threads: int
    quick: bool
    seconds: float
    sections: tuple[Section, ...]

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, source: str) -> Self:
        """Read back what :meth:`to_json` wrote."""
        values = json.loads(source)
        sections = tuple(
            Section(**{**section, "rows": tuple(section["rows"])})
            for section in values.pop("sections")
        )
        return cls(machine=Machine(**values.pop("machine")), sections=sections, **values)

    def tables(self) -> list[Table]:
        """Return the machine, then every benchmark, as text."""
        facts: Row = {
            **asdict(self.machine),
            "threads": self.threads,
            "quick": self.quick,
            "seconds": self.seconds,
        }
        rows = tuple((name, text(value)) for name, value in facts.items())
        machine = Table("Machine", ("fact", "value"), rows, note=self.machine.warning)
        return [machine, *(section.table() for section in self.sections)]


def text(value: Value) -> str:
    """Return a value as a table shows it: three figures that count, nothing for nothing.

    Example:
        >>> [text(value) for value in (1234.5, 12.345, 0.012345, 65536, True, None)]
        ['1,234', '12.3', '0.0123', '65,536', 'yes', '—']
    """
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        size = abs(value)
        return f"{value:,.0f}" if size >= 100 else f"{value:#.3g}".rstrip(".")
    return value
