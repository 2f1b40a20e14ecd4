"""A task: what is to be learned, from which rows, and what counts as success. Knows no model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from hma.metrics import metric_for
from hma.targets import Classes, Target

Kind = Literal["table", "image", "graph", "text"]
"""What a row is."""


class Mixed(NamedTuple):
    """Second labels of rows that stand between two: ``share * own label + (1 - share) * y``.

    Shape:
        - ``y``: as the target has it; ``share`` ``(B,)``: 1 for a row that has one label only.
    """

    y: Tensor
    share: Tensor

    @property
    def made(self) -> Tensor:
        """Which rows have two labels, ``(B,)``: no real ones, so no memory keeps them."""
        return self.share < 1

    def to(self, device: torch.device | str) -> "Mixed":
        """Return the same on ``device``."""
        return Mixed(self.y.to(device), self.share.to(device))


class Batch(NamedTuple):
    """Rows of a split, ready for a backbone.

    Shape:
        - ``x``: whatever the backbone takes; ``y``: as the target has it, ``(B,)`` or ``(B, T)``.
        - ``ids``: ``(B,)``.
        - ``weight`` ``(B,)``: weight of each row in the loss; None for 1.
        - ``environment`` ``(B,)``: which training environment a row is from; None for one.
        - ``features`` ``(B, F)``: what a frozen backbone makes of the rows, where that is known
          beforehand; ``x`` is then None.
        - ``mixed``: second labels, where a method trains on rows between two; None for none.
    """

    x: Any
    y: Tensor
    ids: Tensor
    weight: Tensor | None = None
    environment: Tensor | None = None
    features: Tensor | None = None
    mixed: Mixed | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on ``device``; ``x`` is a dict of tensors or has ``.to`` itself."""
        return Batch(*(_moved(part, device) for part in self))


def _moved(part: Any, device: torch.device | str) -> Any:
    if isinstance(part, dict):
        return {name: value.to(device) for name, value in part.items()}
    return None if part is None else part.to(device)


def tensors_of(x: Any) -> Iterator[Tensor]:
    """Yield the tensors inside a batch's ``x``: a tensor, a mapping, or a PyG batch."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, Mapping):
        for name in sorted(x):
            yield from tensors_of(x[name])
    elif isinstance(x, list | tuple):
        for item in x:
            yield from tensors_of(item)
    elif hasattr(x, "to_dict"):
        yield from tensors_of(x.to_dict())


class Split(Protocol):
    """Rows that can be asked for by place; the place of a row is its sample id."""

    labels: Tensor
    """Labels of all rows: class ids ``(N,)``, or what the task's target takes, ``(N, ...)``."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places`` ``(B,)``, in that order.

        A split that augments gives with ``epoch`` the rows as training sees them then. Such a row
        depends on its place, the split's seed and ``epoch`` alone: not on its batch, nor on what
        was asked for before, so a resumed run sees what an uninterrupted one sees.

        Args:
            places: Which rows.
            epoch: Pass over the data, from 0; None for the rows as they are.
        """


class InMemory:
    """A split held as tensors, cut without collating: ``x`` is a tensor or a dict of tensors.

    Args:
        x: Inputs, first axis ``N``.
        labels: Class ids ``(N,)``.
        environment: Training environment of each row ``(N,)``, if there are several.
        weight: Weight of each row in the loss ``(N,)``; None for 1.

    Example:
        >>> split = InMemory(torch.arange(6.0).view(3, 2), labels=torch.tensor([0, 1, 1]))
        >>> split.batch(torch.tensor([2, 0])).x.tolist()
        [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        x: Tensor | dict[str, Tensor],
        labels: Tensor,
        environment: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> None:
        self.x = x
        self.labels = labels
        self.environment = environment
        self.weight = weight

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places``, the same in every epoch."""
        if isinstance(self.x, dict):
            x: Any = {name: value[places] for name, value in self.x.items()}
        else:
            x = self.x[places]
        weight = None if self.weight is None else self.weight[places]
        environment = None if self.environment is None else self.environment[places]
        return Batch(x, self.labels[places], places, weight, environment)


@dataclass(frozen=True)
class Task:
    """Everything a method needs to know about a problem.

    Args:
        name: Short name, as printed in tables.
        kind: What a row is.
        classes: Names of the classes in the order of their ids, of several yes/no labels, or of
            the one number: as many as the target has outputs.
        shape: Shape of one row as a backbone sees it: ``(features,)``, ``(channels, height,
            width)``, ``(node features,)``, with ``(..., edge features)`` where edges have any, or
            ``(tokens,)``. Graphs whose nodes and edges hold integer codes: how many values each
            column of a node's codes has, a 0, and how many each column of an edge's has.
        train, validation: Splits to learn from and to select by.
        tests: One or more named test splits.
        metric: What is reported and selected by; the target's first if not given.
        facts: How the splits came about, in JSON values; goes into the record.
        target: What a label is; one of ``classes`` if not given.
    """

    name: str
    kind: Kind
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    train: Split
    validation: Split
    tests: Mapping[str, Split]
    metric: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    target: Target = None  # type: ignore[assignment]  # always set below

    def __post_init__(self) -> None:
        if self.target is None:
            object.__setattr__(self, "target", Classes(max(len(self.classes), 1)))
        object.__setattr__(self, "metric", metric_for(self.target, self.metric).name)
