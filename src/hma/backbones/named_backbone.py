"""What a backbone with a name says of itself."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import nn

from hma.backbones.prompts import PromptKind

Kind = Literal["table", "image", "graph", "text"]
Tuning = Literal["full", "part", "none"]


class Described(Protocol):
    """What a backbone needs to know of a task."""

    @property
    def name(self) -> str:
        """How the task is called in messages."""
        ...

    @property
    def kind(self) -> Kind:
        """What a row is."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        ...


@dataclass(frozen=True)
class Asked:
    """What a user wants of a backbone.

    Args:
        name: What stands after the colon; empty without one.
        shape: Shape of one row.
        weights: A local file to start from.
        tuning, prompts: Which part trains, for backbones that can be tuned in part.
    """

    name: str
    shape: tuple[int, ...]
    weights: Path | None = None
    tuning: Tuning = "full"
    prompts: PromptKind | None = None


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
    """

    written: str
    takes: tuple[Kind, ...]
    build: Callable[[Asked], nn.Module]
    fits_weights: bool = False
    tunes: bool = False
    pretrained: bool = False

    @property
    def family(self) -> str:
        """What stands before the colon."""
        return self.written.partition(":")[0]
