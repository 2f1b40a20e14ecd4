"""What is learned of labels and numbers of nodes and edges, and what it makes of them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hma.data.graph.graph_source import GraphSource
from hma.data.graph.store import Cut
from hma.data.table.columns import mean_and_std
from hma.errors import UserError

Pairs = tuple[tuple[float, float], ...]
"""Mean and deviation of each of several values."""


def values_in_training(labels: Tensor | None, chosen: Tensor) -> tuple[tuple[int, ...], ...]:
    """Return the values of each kind of label among the chosen rows."""
    kinds = () if labels is None else labels[chosen].T.numpy()
    return tuple(tuple(np.unique(kind).tolist()) for kind in kinds)


def moments_in_training(numbers: Tensor | None, chosen: Tensor) -> Pairs:
    """Return mean and deviation of each number over the chosen rows."""
    return () if numbers is None else tuple(map(moments, numbers[chosen].T))


def expected(graphs: GraphSource, part: str, count: int) -> Tensor:
    """Return labels or attributes of a source, or say that there are not as many as in training."""
    values: Tensor | None = getattr(graphs, part)
    given = 0 if values is None else values.shape[1]
    if values is None or given != count:
        where, what = part.split("_")
        one = "a node" if where == "node" else "an edge"
        raise UserError(
            f"{graphs.name} has {given} {what} at {one}, the "
            f"training graphs had {count}; give NAME_{part}.txt with as many a line"
        )
    return values


def with_long_codes(cut: Cut) -> Cut:
    """Return a cut with codes as an embedding takes them; the store keeps 8 bits of each."""
    return {**cut, "x": cut["x"].long(), "edge_attr": cut["edge_attr"].long()}


def moments(values: Tensor) -> tuple[float, float]:
    """Return mean and deviation."""
    return mean_and_std(values.double().numpy())


def standardised(values: Tensor, pairs: Sequence[tuple[float, float]]) -> Tensor:
    """Return each column of ``values`` less its mean, over its deviation."""
    mean, std = torch.tensor(pairs, dtype=torch.double).T
    standard: Tensor = (values.double() - mean) / std
    return standard.float()
