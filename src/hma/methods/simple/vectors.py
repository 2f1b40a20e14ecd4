"""One vector for each row: what methods see that need no network of their own."""

from typing import Any

import torch
from torch import Tensor, nn

from hma.backbones.frozen import Frozen
from hma.backbones.gnn.convolutions import features_of, multi_hot, width_of
from hma.checks import expect_shape
from hma.data import Task
from hma.errors import UserError

MOST_COLUMNS = 4096
CONSTANT = 1e-9
"""Deviation, as a share of the mean, up to which a column counts as constant."""


class NoSimpleRowError(UserError):
    """A simple method does not fit these labels or rows; others go on without it."""


def vector_width(task: Task, backbone: Frozen | None) -> int:
    """Return the length of the vectors of a task, or say that its rows are no vectors.

    Args:
        task: What the rows are; they themselves are not looked at.
        backbone: The frozen encoder in front, if there is one.
    """
    if backbone is not None:
        width = backbone.feature_dim
    elif task.kind == "text":
        raise NoSimpleRowError("simple methods need a frozen backbone to read text, got none")
    elif task.kind == "graph":
        width = 2 * width_of(features_of(task.shape)[0]) + 1
    else:
        width = int(torch.Size(task.shape).numel())
    if width > MOST_COLUMNS:
        raise NoSimpleRowError(
            f"simple methods take vectors of at most {MOST_COLUMNS} values, got {width} of "
            f"{task.name!r}; put a frozen backbone in front"
        )
    return width


def codes_of(task: Task) -> tuple[int, ...]:
    """Return how many values each code of a node has; none where nodes have no codes."""
    nodes = features_of(task.shape)[0] if task.kind == "graph" else 0
    return () if isinstance(nodes, int) else tuple(nodes)


def vectors_of(x: Any, width: int, codes: tuple[int, ...] = ()) -> Tensor:
    """Return the prepared inputs of a batch as vectors: of graphs, sums and means over the nodes.

    Codes of nodes are counted: how many nodes of the graph have each value.

    Args:
        x: A tensor, or a batch of graphs as PyTorch Geometric makes it.
        width: As :func:`vector_width` returned it.
        codes: As :func:`codes_of` returned it.
    """
    nodes, graph = getattr(x, "x", None), getattr(x, "batch", None)
    if isinstance(x, Tensor):
        vectors = x.flatten(1).float()
    elif isinstance(nodes, Tensor) and isinstance(graph, Tensor):
        count = int(x.num_graphs)
        nodes = multi_hot(nodes, codes) if codes else nodes
        sums = nodes.new_zeros(count, nodes.shape[1], dtype=torch.float32)
        sums = sums.index_add(0, graph, nodes.float())
        sizes = torch.bincount(graph, minlength=count)[:, None].float()
        vectors = torch.cat([sums, sums / sizes.clamp(min=1), sizes.log1p()], dim=1)  # (B, 2F + 1)
    else:
        raise NoSimpleRowError(
            f"simple methods need rows that are tensors or graphs, got {type(x).__name__}; put a "
            "frozen backbone in front"
        )
    expect_shape("rows", vectors, None, width)
    return vectors


class Standardised(nn.Module):
    """Bring every column to mean 0 and deviation 1; what is missing becomes the mean.

    Args:
        width: Length of a vector.
        active: Whether to; the features of a network are of one kind, and their scales say what
            matters.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, *, active: bool) -> None:
        super().__init__()
        self.active = active
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def take_statistics(self, vectors: Tensor) -> None:
        """Take means and deviations of vectors ``(N, F)``; a constant column is only centred."""
        if not self.active:
            return
        wide = vectors.double()
        mean = wide.nanmean(dim=0).nan_to_num()
        deviation = (wide - mean).square().nanmean(dim=0).sqrt().nan_to_num()
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > CONSTANT * mean.abs(), deviation, 1.0))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return vectors ``(B, F)`` standardised."""
        return ((vectors - self.mean) / self.deviation).nan_to_num(0.0)

    def extra_repr(self) -> str:  # noqa: D102
        return f"active={self.active}"
