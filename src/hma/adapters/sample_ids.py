"""Sample ids for data sets that have none: the place of a row."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset


class WithIds(Dataset[Any]):
    """A data set whose rows bring along which sample they are: their place in it.

    In training no row may read its own stored copy, and ids tell the model which that is. A row
    that is a tuple gets its id as the last part, a dict as ``ids``; any other row comes as a pair
    of row and id.

    Args:
        rows: A data set with a length, whose rows stay at their places.

    Example:
        >>> WithIds([("a", 0), ("b", 1)])[1]
        ('b', 1, 1)
        >>> WithIds([{"text": "a", "label": 0}])[0]
        {'text': 'a', 'label': 0, 'ids': 0}
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        row = self.rows[place]
        if isinstance(row, Mapping):
            return {**row, "ids": place}
        if isinstance(row, tuple | list):
            return (*row, place)
        return row, place
