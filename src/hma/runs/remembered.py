"""The rows that a run's memory holds, for a person to look at: trained on, or taught since."""

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from hma.data import Source
from hma.data.labels import label_text
from hma.data.table.columns import cells
from hma.data.table.source import TableSource
from hma.errors import UserError, reason
from hma.extras import needed
from hma.memory.rows import KeyedRows
from hma.report.html import inline_picture
from hma.runs.folder import Run
from hma.runs.source import by_source, learned_sources, place_of, training_source
from hma.runs.taught_rows import Cells

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAIL = 112
"""Longer side of the picture that is kept of a row that was taught."""
TRAINING = "training"


class Seen(NamedTuple):
    """What a person is told of a stored row."""

    what: str
    where: str


class MemoryRow(NamedTuple):
    """A row that the memory holds."""

    id: int
    label: str
    what: str
    where: str


class RememberedRows:
    """What is behind the sample ids of a memory.

    Args:
        run: The run.
        training: Its training rows; opened when they are needed if not given.
    """

    def __init__(self, run: Run, training: Source | None = None) -> None:
        self.run = run
        self.taught = {int(id): place for place, id in enumerate(run.living.rows.ids)}
        self._training = training

    @cached_property
    def sources(self) -> dict[str, Source] | None:
        """Where the rows of each split are that the run learned from.

        None where they are gone, or no longer what they were.
        """
        try:
            training = self._training or training_source(self.run)
            return learned_sources(self.run, training)
        except UserError:
            return None

    def behind(self, samples: Iterable[int]) -> list[tuple[Source, int]] | None:
        """Return source and row of samples that training stored; None where these are gone."""
        sources = self.sources
        return None if sources is None else [place_of(self.run, sources, s) for s in samples]

    def seen(self, samples: Sequence[int]) -> list[Seen]:
        """Say what the rows of these samples are; their source is read once for all."""
        rows = self.run.living.rows
        trained = [sample for sample in samples if sample not in self.taught]
        behind = self.behind(trained)
        if behind is None:
            places = [place for split in self.run.learned.values() for place in split]
            said = [f"row {places[s]} of the training data, which is gone" for s in trained]
        else:
            said = [text for one, places in by_source(behind) for text in one.describe_all(places)]
        texts = dict(zip(trained, said, strict=True))
        return [
            Seen(texts[sample], TRAINING)
            if (place := self.taught.get(sample)) is None
            else Seen(rows.what[place], rows.where[place])
            for sample in samples
        ]

    def kind(self, sample: int) -> str:
        """Say whether the network was trained on a row, or the memory taught it since."""
        return "taught row" if sample in self.taught else "training row"

    def describe(self, sample: int) -> str:
        """Say what one row is."""
        return self.seen([sample])[0].what

    def where(self, sample: int) -> str:
        """Say where one row came from."""
        place = self.taught.get(sample)
        return TRAINING if place is None else self.run.living.rows.where[place]

    def thumbnail(self, sample: int) -> "Image | None":
        """Return a picture of a row; None where rows are no pictures."""
        place = self.taught.get(sample)
        if place is None:
            if (behind := self.behind([sample])) is None:
                return None
            ((source, row),) = behind
            return source.thumbnail(row)
        kept = self.run.living.rows.pictures[place]
        if kept is None:
            return None
        try:
            opened: Image = needed("PIL.Image", "pictures").open(BytesIO(base64.b64decode(kept)))
            if max(opened.size) > THUMBNAIL:
                raise ValueError(f"its longer side has {max(opened.size)} pixels")
            opened.load()
        except (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error) as error:
            raise UserError(
                f"the picture of the taught row {sample} in {self.run.versions.versions} is "
                f"damaged: {reason(error)}; {self.run.versions.remedy}"
            ) from error
        return opened

    def picture(self, sample: int) -> str | None:
        """Return the same as an address that holds it whole."""
        return inline_picture(self.thumbnail(sample))


def rows_in_words(store: KeyedRows, places: Tensor, remembered: RememberedRows) -> list[MemoryRow]:
    """Return stored rows as a person is told of them.

    Args:
        store: The memory.
        places: Where the rows lie in it, ``(N,)``.
        remembered: What is behind their sample ids.
    """
    samples: list[int] = store.ids[places].tolist()
    labels = store.target.given(store.labels[places]).tolist()
    names, seen = remembered.run.preparation.classes, remembered.seen(samples)
    return [
        MemoryRow(sample, store.target.label_text(names, label), *said)
        for sample, label, said in zip(samples, labels, seen, strict=True)
    ]


def kept_picture(image: "Image | None") -> str | None:
    """Return a small copy of a picture as text."""
    if image is None:
        return None
    small = image.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    file = BytesIO()
    small.save(file, format="PNG")
    return base64.b64encode(file.getvalue()).decode()


def cells_of(source: Source, places: Sequence[int]) -> Cells:
    """Return what the columns of a table hold in some rows, as text; nothing of other kinds."""
    if not isinstance(source, TableSource) or not places:
        return {}
    frame = source.rows_at(places)
    names = [*source.columns, *source.target]
    return {name: tuple(label_text(cell) for cell in cells(frame[name])) for name in names}
