"""What turns rows of a source into what a backbone takes: fitted on training rows, kept as JSON."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
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
from hma.data.task import Batch, Split
from hma.errors import UserError
from hma.io.json_files import validate
from hma.options.preparation import Kind, PreparationOptions
from hma.targets import Classes, Target, target_from_json

FORMAT = 1


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
        cls, rows: Selection, classes: tuple[str, ...], target: Target, options: PreparationOptions
    ) -> Self:
        """Learn from training rows."""

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
