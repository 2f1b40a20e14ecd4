"""From the rows of a request to a source and a batch, as files would give them."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import torch

from hma.data import Batch, Preparation, Source, Split, stream
from hma.data.image.source import GivenImages, ImageFiles
from hma.data.labels import LABEL_KINDS, label_text, listed
from hma.data.source import expect_kind
from hma.data.table.preparation import TablePreparation
from hma.data.table.source import GivenTable, TableSource
from hma.data.text.source import GivenTexts
from hma.errors import UserError
from hma.runs import Run
from hma.runs.remembered import cells_of, kept_picture
from hma.runs.source import training_source
from hma.runs.taught_rows import Cells
from hma.serve.requests import MOST_ROWS, ROWS

NAME = "the request"
FIELD = {"table": "rows", "text": "texts", "image": "images", "graph": "places"}
"""The field that holds rows of each kind; ``places`` are of any."""


@dataclass(frozen=True)
class Asked:
    """Rows that a request asks about.

    Args:
        source: Where they are.
        places: Their places there.
        batch: The same, prepared.
    """

    source: Source
    places: Sequence[int]
    batch: Batch

    def __len__(self) -> int:
        return len(self.places)

    def what(self) -> list[str]:
        """Say what each is."""
        return self.source.describe_all(self.places)

    def pictures(self) -> list[str | None]:
        """Return a small picture of each; None where they are no pictures."""
        return [kept_picture(self.source.thumbnail(place)) for place in self.places]

    def cells(self, names: Sequence[str], labels: Sequence[Any]) -> Cells:
        """Return what the columns of a table hold, the labels in columns of these names."""
        found = cells_of(self.source, self.places)
        if not found:
            return {}
        several = len(names) > 1
        columns = zip(*labels, strict=True) if several else [labels]
        return {**found, **{name: tuple(c) for name, c in zip(names, columns, strict=False)}}


class OwnRows:
    """The rows that a run was trained on, opened once.

    Args:
        run: The run.
    """

    source: Source | None
    """None where they are gone, or no longer what they were."""

    def __init__(self, run: Run) -> None:
        self._preparation = run.preparation
        self._lock = Lock()
        self.why = ""
        try:
            self.source = training_source(run)
            if isinstance(self.source, TableSource):
                _ = self.source.frame  # read now, rather than for every answer
            elif isinstance(self.source, ImageFiles):
                self.source.memory_limit = 0  # decoded when asked for: memory stays flat
        except UserError as error:
            self.source, self.why = None, str(error)

    @cached_property
    def _split(self) -> Split:
        assert self.source is not None
        return self._preparation.split(self.source.without_labels())

    def asked(self, places: Sequence[int]) -> Asked:
        """Return some of them."""
        if self.source is None:
            raise UserError(f"places needs the rows of the training: {self.why}")
        last = len(self.source) - 1
        if wrong := [place for place in places if not 0 <= place <= last]:
            raise UserError(f"places must be from 0 to {last}, got {wrong[0]}")
        with self._lock:  # files may be read and kept
            batch = self._split.batch(torch.tensor(list(places), dtype=torch.long))
        return Asked(self.source.without_labels(), places, batch)


def asked_rows(values: Mapping[str, Any], preparation: Preparation, own: OwnRows) -> Asked:
    """Return the rows that a request holds, prepared.

    Args:
        values: Fields of the request.
        preparation: What was fitted at training.
        own: The rows of the training, for ``places``.
    """
    given = [name for name in ROWS if values[name] is not None]
    wanted = list(dict.fromkeys((FIELD[preparation.kind], "places")))
    if len(given) != 1 or given[0] not in wanted:
        got = f"got {listed(given)}" if given else "got none of them"
        raise UserError(f"give one of {listed(wanted)}, as this run has rows of kind "
                        f"{preparation.kind!r}; {got}")  # fmt: skip
    name, items = given[0], values[given[0]]
    if not 1 <= len(items) <= MOST_ROWS:
        raise UserError(f"{name} must hold from 1 to {MOST_ROWS} rows, got {len(items)}")
    if name == "places":
        return own.asked(items)
    source = _source(name, items, preparation)
    expect_kind(source, preparation.kind)
    return Asked(source, range(len(source)), next(stream(preparation, source, MOST_ROWS)))


def _source(name: str, items: list[Any], preparation: Preparation) -> Source:
    if isinstance(preparation, TablePreparation):
        return GivenTable(NAME, items, preparation.known_columns)
    if name == "texts":
        return GivenTexts(NAME, items)
    return GivenImages(NAME, [_decoded(place, text) for place, text in enumerate(items)])


def _decoded(place: int, text: str) -> bytes:
    """Return the content of a file that is written in base64, perhaps as a data address."""
    try:
        return base64.b64decode(text.rpartition(",")[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"images[{place}] must be a file encoded in base64") from error


def raw_labels(preparation: Preparation, given: Sequence[Any], rows: int) -> list[Any]:
    """Return labels of a request as a source has them: text, or a tuple where there are several.

    Args:
        preparation: Knows what a label is.
        given: A label for each row; several as an object of name and value.
        rows: How many rows there are.
    """
    if len(given) != rows:
        raise UserError(f"labels must hold one label for each of {rows} rows, got {len(given)}")
    names, several = preparation.classes, LABEL_KINDS[preparation.target.kind].several
    found: list[Any] = []
    for place, label in enumerate(given):
        if several != isinstance(label, dict):
            wanted = f"an object of {listed(names)}" if several else "one value"
            raise UserError(f"labels[{place}] must be {wanted}, got {str(label)[:80]!r}")
        if several and (strange := [name for name in label if name not in names]):
            raise UserError(f"labels[{place}] must be of {listed(names)}, got {strange[0][:80]!r}")
        raw = tuple(label_text(label.get(n)) for n in names) if several else label_text(label)
        if raw is None:
            raise UserError(f"labels[{place}] is empty; give the right label")
        found.append(raw)
    return found
