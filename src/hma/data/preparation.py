"""What turns rows of a source into what a backbone takes: fitted on training rows, kept as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from hma.data.labels import encode
from hma.data.source import Source
from hma.data.task import Batch, Kind, Split
from hma.errors import UserError

FORMAT = 1
Transform = Literal["measured", "vit", "vit-mirror"]


class Preparation(Protocol):
    """Everything learned from the training rows that a prediction needs again."""

    @property
    def kind(self) -> Kind:
        """What a row is."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their ids."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as a backbone sees it."""
        ...

    def split(self, source: Source, places: Sequence[int] | None = None) -> Split:
        """Return rows of ``source`` as a split; labels are -1 where the source has none."""
        ...

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield all rows in order without keeping them; ids are rows of the source."""
        ...

    def facts(self) -> dict[str, Any]:
        """Say in JSON values what is done to the rows."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        ...


@dataclass(frozen=True, kw_only=True)
class PreparationOptions:
    """Choices about the input, each for one kind of data.

    Example:
        >>> PreparationOptions(image_size=0, max_length=9)
        Traceback (most recent call last):
        hma.errors.UserError: image_size must be at least 1, got 0
    """

    image_size: int | None = None
    """Images: side in pixels; by default 32 where the median side is 48 or less, else 224."""
    transform: Transform | None = None
    """Images: 'measured' takes mean and deviation from the training rows, and --augment shifts by
    up to 4 pixels and mirrors; 'vit' is 224 pixels and 0.5 for both, and --augment cuts out random
    parts and mirrors; 'vit-mirror' only mirrors. By default as the data's authors do, or
    'measured'."""
    augment: bool | None = None
    """Images: train on random variants; by default only where the data's authors do."""
    encoder: str | None = None
    """Text: folder or name of the encoder whose tokenizer cuts the text."""
    max_length: int = 128
    """Text: tokens kept of each text."""
    categorical: tuple[str, ...] = ()
    """Tables: columns of numbers to be taken as categories."""
    max_categories: int = 256
    """Tables: categories kept of a column, the most frequent ones; the rest counts as unseen."""
    node_attributes: bool | None = None
    """Graphs: use the node attributes; by default only where there are no node labels."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least 1, got {getattr(self, name)}"
            for name in ("image_size", "max_length", "max_categories")
            if getattr(self, name) is not None and getattr(self, name) < 1
        ]
        if self.transform not in (None, *get_args(Transform)):
            allowed = ", ".join(map(repr, get_args(Transform)))
            problems.append(f"transform must be one of {allowed}, got {self.transform!r}")
        if problems:
            raise UserError("; ".join(problems))

    def expect_for(self, kind: Kind) -> None:
        """Raise if a choice was made that means nothing for this kind of data."""
        for field in fields(self):
            if getattr(self, field.name) != field.default and CONCERNS[field.name] != kind:
                raise UserError(
                    f"{field.name} is for data of kind {CONCERNS[field.name]!r}, but the source "
                    f"is of kind {kind!r}; leave it out"
                )


CONCERNS: dict[str, Kind] = {
    "image_size": "image",
    "transform": "image",
    "augment": "image",
    "encoder": "text",
    "max_length": "text",
    "categorical": "table",
    "max_categories": "table",
    "node_attributes": "graph",
}


def label_ids(source: Source, classes: Sequence[str], places: Sequence[int] | None) -> Tensor:
    """Return the class ids of rows of a source, -1 for each where it has no labels."""
    labels = source.labels
    if labels is None:
        return torch.full((len(source) if places is None else len(places),), -1)
    return encode(labels if places is None else [labels[place] for place in places], classes)


def preparation_from_json(values: dict[str, Any]) -> Preparation:
    """Return the preparation that ``to_json`` wrote.

    Args:
        values: What ``to_json`` returned, or ``json.loads`` of it.
    """
    from hma.data.graph.preparation import GraphPreparation
    from hma.data.image.preparation import ImagePreparation
    from hma.data.table.preparation import TablePreparation
    from hma.data.text.preparation import TextPreparation

    if values.get("format") != FORMAT:
        raise UserError(
            f"the preparation has format {values.get('format')!r}, this version of hma reads "
            f"{FORMAT}; train again, or use the version that wrote it"
        )
    try:
        match values["kind"]:
            case "table":
                return TablePreparation.from_json(values)
            case "image":
                return ImagePreparation.from_json(values)
            case "graph":
                return GraphPreparation.from_json(values)
            case "text":
                return TextPreparation.from_json(values)
            case kind:
                raise UserError(f"the preparation is for data of an unknown kind, {kind!r}")
    except (KeyError, TypeError) as error:
        raise UserError(f"the preparation is damaged: {error!r}; train again") from error
