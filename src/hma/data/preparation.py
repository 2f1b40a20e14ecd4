"""What turns rows of a source into what a backbone takes: fitted on training rows, kept as JSON."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import torch
from torch import Tensor

from hma.data.labels import LABEL_KINDS, listed
from hma.data.source import Source
from hma.data.task import Batch, Kind, Split
from hma.errors import UserError
from hma.io.json_files import validate
from hma.targets import Classes, Target, target_from_json

Transform = Literal["measured", "vit", "vit-mirror", "weights"]
Interpolation = Literal["bilinear", "bicubic"]
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class PreparationOptions:
    """Choices about the input, each for one kind of data.

    Example:
        >>> PreparationOptions(image_size=0, max_length=9)
        Traceback (most recent call last):
        hma.errors.UserError: image_size must be at least 1, got 0
    """

    image_size: int | None = field(default=None, metadata={"kind": "image"})
    """Images: side in pixels; by default 32 where the median side is 48 or less, else 224."""
    transform: Transform | None = field(default=None, metadata={"kind": "image"})
    """Images: 'measured' takes mean and deviation from the training rows, and --augment shifts by
    up to 4 pixels and mirrors; 'vit' is 224 pixels and 0.5 for both, and --augment cuts out random
    parts and mirrors; 'vit-mirror' only mirrors; 'weights' is what the --weights of a timm:NAME or
    vit:NAME were trained with, and --augment as with 'vit'. By default 'weights' where they say,
    for built-in data as its authors do, else 'measured'."""
    crop: float | None = field(default=None, metadata={"kind": "image"})
    """Images: keep the ratio of the sides and cut the middle out, this share of the shorter side;
    by default as the transform has it: 'weights' cuts, the others squash the whole image."""
    interpolation: Interpolation | None = field(default=None, metadata={"kind": "image"})
    """Images: how they are resized; by default as the transform has it, or bilinear."""
    mean: tuple[float, ...] = field(default=(), metadata={"kind": "image"})
    """Images: of each channel, from 0 to 1; by default as the transform has it."""
    std: tuple[float, ...] = field(default=(), metadata={"kind": "image"})
    """Images: deviation of each channel; by default as the transform has it."""
    augment: bool | None = field(default=None, metadata={"kind": "image"})
    """Images: train on random variants; by default only where the data's authors do."""
    encoder: str | None = field(default=None, metadata={"kind": "text"})
    """Text: folder or name of the encoder whose tokenizer cuts the text."""
    max_length: int | None = field(default=None, metadata={"kind": "text"})
    """Text: tokens kept of each text; by default as many as the encoder was made for, at most
    512."""
    drop: tuple[str, ...] = field(default=(), metadata={"kind": "table"})
    """Tables: a column to leave out; may be given several times."""
    categorical: tuple[str, ...] = field(default=(), metadata={"kind": "table"})
    """Tables: columns of numbers or dates to be taken as categories."""
    max_categories: int = field(default=256, metadata={"kind": "table"})
    """Tables: categories kept of a column, the most frequent ones; the rest counts as unseen."""
    node_attributes: bool | None = field(default=None, metadata={"kind": "graph"})
    """Graphs: use the node attributes; by default only where there are no node labels."""
    edge_labels: bool = field(default=False, metadata={"kind": "graph"})
    """Graphs: use the labels and attributes of edges, where there are any."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least 1, got {getattr(self, name)}"
            for name in ("image_size", "max_length", "max_categories")
            if getattr(self, name) is not None and getattr(self, name) < 1
        ]
        if self.transform not in (None, *get_args(Transform)):
            allowed = ", ".join(map(repr, get_args(Transform)))
            problems.append(f"transform must be one of {allowed}, got {self.transform!r}")
        if self.crop is not None and not 0 < self.crop <= 1:
            problems.append(f"crop must be above 0 and at most 1, got {self.crop}")
        if len(self.mean) != len(self.std) or not all(0 < value < math.inf for value in self.std):
            problems.append(
                "mean and std must be given together, one of each for a channel and std above 0, "
                f"got {self.mean} and {self.std}"
            )
        if problems:
            raise UserError("; ".join(problems))

    def expect_for(self, kind: Kind) -> None:
        """Raise if a choice was made that means nothing for this kind of data."""
        for choice in fields(self):
            concerns = choice.metadata["kind"]
            if getattr(self, choice.name) != choice.default and concerns != kind:
                raise UserError(
                    f"{choice.name} is for data of kind {concerns!r}, but the source is of kind "
                    f"{kind!r}; leave it out"
                )


class Selection(NamedTuple):
    """Some rows of a source."""

    source: Source
    places: Sequence[int]


@dataclass(frozen=True)
class Preparation(ABC):
    """Everything learned from the training rows that a prediction needs again.

    A subclass is a dataclass of numbers, texts and tuples of them, which are lists in JSON.

    Args:
        classes: Names of the classes in the order of their ids, or of several labels, or of the
            one number.
        target: What a label is; one of ``classes`` if not given.
    """

    classes: tuple[str, ...]
    target: Target = field(default=None, kw_only=True)  # type: ignore[assignment]  # set below

    kind: ClassVar[Kind]
    unlabelled: ClassVar[str]
    """How labels are added to rows of that kind."""

    def __post_init__(self) -> None:
        if self.target is None:
            object.__setattr__(self, "target", Classes(max(len(self.classes), 1)))

    if TYPE_CHECKING:  # a field here, computed there; a dataclass would take it for a default

        @property
        def shape(self) -> tuple[int, ...]:
            """Shape of one row as a backbone sees it."""

    @classmethod
    @abstractmethod
    def fit(
        cls,
        source: Source,
        places: Sequence[int],
        classes: tuple[str, ...],
        target: Target,
        options: PreparationOptions,
    ) -> Self:
        """Learn from the rows at ``places``."""

    @abstractmethod
    def split(self, source: Source, places: Sequence[int] | None = None) -> Split:
        """Return rows of ``source`` as a split; labels are unknown where the source has none."""

    def splits(
        self,
        source: Source,
        places: Mapping[str, Sequence[int]],
        options: PreparationOptions,
        seed: int,
    ) -> Mapping[str, Split]:
        """Return all splits of a task; ``seed`` decides what training sees of them."""
        return {name: self.split(source, rows) for name, rows in places.items()}

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield all rows in order without keeping them; ids are rows of the source."""
        split = self.split(source)
        for places in torch.split(torch.arange(len(split)), batch_size):
            yield split.batch(places)

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return in JSON values what is done to the rows."""

    def notes(self, source: Source) -> list[str]:
        """Return a line for each thing in a source that is ignored."""
        return []

    def suspicions(self, train: Selection, validation: Selection) -> list[str]:
        """Return a line for each part of the input that may not be what it is taken for."""
        return []

    def training_facts(self, options: PreparationOptions) -> dict[str, Any]:
        """Return what is done to training rows alone."""
        return {}

    # ------------------------------------------------------------------------- labels

    def labels_of(self, source: Source, places: Sequence[int] | None = None) -> Tensor:
        """Return the labels of rows of a source, unknown ones where it has none."""
        labels = source.labels
        if labels is None:
            return self.target.unknown(len(source) if places is None else len(places))
        chosen = labels if places is None else [labels[place] for place in places]
        return self.encode(chosen, source)

    def encode(self, raw: Sequence[Any], source: Source) -> Tensor:
        """Return raw labels as the target takes them, ``(N,)`` or ``(N, T)``."""
        kind = LABEL_KINDS[self.target.kind]
        known = self.classes if kind.several else ()
        given = source.label_names if source.label_kind.several else ()
        if given != known:
            raise UserError(
                f"{source.labels_from} holds {_name_labels(given)}, but the model was prepared for "
                f"{_name_labels(known)}; give the same, in the same order"
            )
        return kind.encode(raw, self.classes, source.labels_from)

    # --------------------------------------------------------------------------- JSON

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        own = {one.name: _to_json(getattr(self, one.name)) for one in fields(self)}
        labels = own.pop("target")
        return {"kind": self.kind, "format": FORMAT, "labels": labels, **own}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return what :meth:`to_json` wrote, or raise a ``ValueError`` for what it did not."""
        hints = get_type_hints(cls)
        expected = {
            one.name: _shape(hints[one.name])
            for one in fields(cls)
            if one.name != "target" and (one.name in values or one.default is MISSING)
        }
        given = validate(values, {"labels": dict[str, Any], **expected})
        own = {name: cls._revive(name, given[name]) for name in expected}
        own["target"] = target_from_json(given["labels"])
        made = cls(**own)
        if len(made.classes) != made.target.outputs or len(set(made.classes)) != len(made.classes):
            raise ValueError(f"{len(made.classes)} names for {made.target}")
        return made

    @classmethod
    def _revive(cls, name: str, value: Any) -> Any:
        """Return the value of a field; lists were tuples."""
        if isinstance(value, list):
            return tuple(cls._revive(name, item) for item in value)
        return value


def _name_labels(names: tuple[str, ...]) -> str:
    return f"the labels {listed(names)}" if names else "one label a row"


def _shape(hint: Any) -> Any:
    """Return what a field of this type looks like in JSON."""
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        return list[_shape(inner[0])]  # type: ignore[misc]
    if get_origin(hint) is UnionType:
        return Union[tuple(map(_shape, inner))]  # noqa: UP007
    return dict[str, Any] if is_dataclass(hint) else hint


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    return value.to_json() if hasattr(value, "to_json") else value
