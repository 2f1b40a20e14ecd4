"""A small table of text, which every format lays out in its own way."""

from collections.abc import Sequence
from dataclasses import dataclass

from hma.report.table.table_report import Group


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
