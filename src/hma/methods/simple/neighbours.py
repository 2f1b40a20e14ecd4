"""Nearest neighbours: the training rows, stored; the nearer, the more they count."""

from collections.abc import Iterator
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.memory.growing import Growing
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.simple_row import SimpleModule, Standardised, logits_of, simple_method
from hma.targets import Classes, Number, SoftClasses, Target

DISTANCES_AT_ONCE = 2**23
"""Distances held at a time; more queries are answered in turns."""
COUNTS = (3, 5, 8, 15, 30, 50)
"""Numbers of neighbours to choose from; a single one would be sure of whatever it says."""


@final
class StoredRows(Growing):
    """Vectors and labels of training rows.

    Args:
        width: Length of a vector.
        target: What a label is.
    """

    growing = ("vectors", "labels")
    vectors: Tensor
    labels: Tensor

    def __init__(self, width: int, target: Target) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.empty(0, width))
        self.register_buffer("labels", target.unknown(0))


@final
class NearestRows(SimpleModule):
    r"""Let the nearest training rows vote, each by the inverse of its distance.

    .. math:: w_i = 1 / \lVert x - x_i \rVert

    Rows in the same place as the query are the only ones that count, if there are any.
    """

    serves: ClassVar[tuple[type[Target], ...]] = (Classes, SoftClasses, Number)
    packages: ClassVar[tuple[str, ...]] = ()
    asked: Tensor

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[int, ...]) -> None:
        super().__init__(task, backbone, choices)
        self.standardised = Standardised(self.width, active=backbone is None)
        self.stored = StoredRows(self.width, task.target)
        self.register_buffer("asked", torch.ones((), dtype=torch.long))

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        stored = self.stored
        queries = self.standardised(vectors)
        places, squares = nearest_rows(queries, stored.vectors, int(self.asked))
        weights, labels = by_distance(squares.sqrt()), stored.labels[places]
        if isinstance(self.target, Number):
            return (weights * labels).sum(dim=1, keepdim=True)  # (B, K) -> (B, 1)
        if isinstance(self.target, SoftClasses):
            return logits_of((weights[:, :, None] * labels).sum(dim=1), self.target)
        empty = weights.new_zeros(len(weights), self.target.table_rows)
        return logits_of(empty.scatter_add(1, labels, weights), self.target)

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Store the rows, and ask more and more of them."""
        self.standardised.take_statistics(vectors)
        device = self.stored.vectors.device
        self.stored.fill(vectors=self.standardised(vectors.to(device)), labels=labels)
        for count in self.choices:
            asked = min(count, len(vectors))
            self.asked.fill_(asked)
            yield {"neighbours": asked}


def nearest_rows(queries: Tensor, keys: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return places and squared distances of the nearest keys of each query, ``(B, K)`` each.

    Args:
        queries: Features, ``(B, F)``.
        keys: Stored features, ``(N, F)``.
        count: ``K``; all keys if there are fewer.
    """
    # around the middle of the keys: far from zero, expanded squares lose the difference
    middle = keys.mean(dim=0)
    queries, keys = queries - middle, keys - middle
    squares = keys.square().sum(dim=1)  # (N,)
    count = min(count, len(keys))
    places = [squares.new_empty(0, count, dtype=torch.long)]
    distances = [queries.new_empty(0, count)]
    for some in torch.split(queries, max(DISTANCES_AT_ONCE // len(keys), 1)):
        # the query's own square is left out: it moves no neighbour before another
        chosen = torch.addmm(squares, some, keys.T, alpha=-2).topk(count, largest=False).indices
        places.append(chosen)
        distances.append((some[:, None] - keys[chosen]).square().sum(dim=2))  # (b, K)
    return torch.cat(places), torch.cat(distances)


def by_distance(distances: Tensor) -> Tensor:
    """Return weights by inverse distance that sum to 1, ``(B, K)``; at distance 0 all of it.

    Example:
        >>> by_distance(torch.tensor([[1.0, 3.0], [0.0, 3.0]]))
        tensor([[0.7500, 0.2500],
                [1.0000, 0.0000]])
    """
    least = distances.min(dim=1, keepdim=True).values
    same = (distances == 0).to(distances.dtype)
    weights = torch.where(least > 0, least / distances, same)
    return weights / weights.sum(dim=1, keepdim=True)


def neighbours(
    backbone: BackboneFactory | None = None, *, counts: tuple[int, ...] = COUNTS
) -> Method:
    """Return nearest neighbours.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        counts: How many are asked; the validation rows choose one.
    """
    return simple_method(NearestRows, backbone, tuple(counts))
