"""Which file draws which kind of picture."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from hma.paper.table import AttentionMap, Cell, Picture, SizeSweep, SlotMap, Table
from hma.report.pictures.attention_map import attention_scenes
from hma.report.pictures.scene import Scene
from hma.report.pictures.slot_map import slot_scenes
from hma.training import Record


def scenes_of(table: Table, records: Mapping[Cell, Record]) -> tuple[Scene, ...]:
    """Return the pictures of a table, as far as its records have what they show.

    Args:
        table: Declares them.
        records: Of one budget.
    """
    return tuple(scene for picture in table.pictures for scene in _scenes(picture, table, records))


def _scenes(picture: Picture, table: Table, records: Mapping[Cell, Record]) -> Iterator[Scene]:
    if isinstance(picture, SlotMap):
        return slot_scenes(picture, table, records)
    if isinstance(picture, AttentionMap):
        return attention_scenes(picture, table, records)
    if isinstance(picture, SizeSweep):
        return iter(())  # made of scores, see hma/report/table/sweep_scenes.py
    assert_never(picture)
