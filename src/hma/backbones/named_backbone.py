"""A backbone with a name, and what a user asks of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor, nn

Kind = Literal["table", "image", "graph", "text"]
Tuning = Literal["full", "part", "none"]
Pool = Literal["mean", "cls", "max"]
PromptKind = Literal["first", "deep"]


class Described(Protocol):
    """What a backbone needs to know of a task."""

    @property
    def name(self) -> str:
        """Name of the task in messages."""

    @property
    def kind(self) -> Kind:
        """What a row is."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""


class TextVector(NamedTuple):
    """How the tokens of a text become one vector.

    Args:
        pool: Their mean, the first one, or the largest value of each feature.
        normalize: Whether the vector is brought to length 1.
    """

    pool: Pool
    normalize: bool


class TrainingRows(Protocol):
    """Rows that a backbone may look at before it is trained, as a split of a task has them."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def batch(self, places: Tensor) -> Any:
        """Return the rows at ``places``; ``x`` of it is what the backbone takes."""


@dataclass(frozen=True)
class BackboneRequest:
    """What a user wants of a backbone.

    Args:
        name: What stands after the colon; empty without one.
        shape: Shape of one row.
        weights: A local file to start from.
        tuning, prompts: Which part trains, for backbones that can be tuned in part.
        pooling, normalize: How a text becomes one vector; None for what the encoder was made for.
        rows: Training rows; None, or none of them, where weights are to be loaded.
    """

    name: str
    shape: tuple[int, ...]
    weights: Path | None = None
    tuning: Tuning = "full"
    prompts: PromptKind | None = None
    pooling: Pool | None = None
    normalize: bool | None = None
    rows: TrainingRows | None = None


class ImagesWanted(NamedTuple):
    """The images that weights were trained and tested on.

    Args:
        image_size: Side in pixels.
        crop: Share of the shorter side that is cut out of the middle; None for whole images,
            squashed.
        interpolation: How they are resized.
        mean, std: Of each channel.
    """

    image_size: int
    crop: float | None
    interpolation: Literal["bilinear", "bicubic"]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class NamedBackbone:
    """A backbone that has a name.

    Args:
        written: As a user writes it; a name after a colon is free to choose.
        takes: The kinds of rows it reads.
        build: Makes it.
        fits_weights: Whether ``build`` takes care of weights itself.
        tunes: Whether ``build`` takes care of ``tuning`` itself, and so of being frozen.
        pretrained: Whether it brings weights without being given any.
        images: Says, from the name after the colon, which images its weights want.
        text_vector: Says how the tokens of a text become one vector, where it was not asked.
    """

    written: str
    takes: tuple[Kind, ...]
    build: Callable[[BackboneRequest], nn.Module]
    fits_weights: bool = False
    tunes: bool = False
    pretrained: bool = False
    images: Callable[[str], ImagesWanted | None] = lambda name: None
    text_vector: Callable[[str, Pool | None, bool | None], TextVector | None] = (
        lambda name, pooling, normalize: None
    )

    @property
    def family(self) -> str:
        """What stands before the colon."""
        return self.written.partition(":")[0]
