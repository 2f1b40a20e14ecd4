"""kNN, the classic semi-parametric baseline: the model's answer mixed with that of neighbours."""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from hma.checks import expect_number, expect_whole, feature_dim_of
from hma.data import Batch, Task
from hma.errors import UserError
from hma.memory.rows import MemoryQueue, check_rows, gather_memory_rows
from hma.methods.learner import Learner, Method
from hma.methods.simple.neighbours import nearest_rows
from hma.methods.simple.simple_row import mix_classes, mix_probabilities
from hma.model import Output
from hma.options.config import POSITIVE, SHARE
from hma.paper.rivals.wrapping import WrappedLearner, WrappedModule, backbone_of
from hma.targets import Classes, Number, SoftClasses, Target, YesNo


class Neighbours(NamedTuple):
    """The nearest keys of each query: their places and what they count, ``(B, K)`` each."""

    places: Tensor
    weights: Tensor


def nearest(queries: Tensor, keys: Tensor, *, neighbours: int, temperature: float) -> Neighbours:
    r"""Return the nearest keys of each query, the nearer the heavier.

    .. math:: w_i \propto \exp(-\lVert q - k_i \rVert^2 / T), \quad \sum_i w_i = 1

    Args:
        queries: Features, ``(B, F)``.
        keys: Stored features, ``(N, F)``.
        neighbours: Keys that count for a query; all of them if there are fewer.
        temperature: ``T``; the higher, the more alike they count.

    Example:
        >>> keys = torch.tensor([[0.0], [1.0], [9.0]])
        >>> nearest(torch.tensor([[0.5]]), keys, neighbours=2, temperature=1.0).weights
        tensor([[0.5000, 0.5000]])
    """
    places, apart = nearest_rows(queries, keys, neighbours)
    return Neighbours(places, (-apart / temperature).softmax(dim=1))


@final
class RememberingModule(WrappedModule):
    """Keep features and labels of training rows in buffers beside the inner module.

    Args:
        inner: Module of the inner method.
        store: Where they are kept.
        settings: What was asked for; printed with the module, and so part of a run's identity.
    """

    def __init__(self, inner: nn.Module, store: MemoryQueue, settings: str) -> None:
        super().__init__(inner, settings)
        self.store = store


@final
class NearestNeighbours(WrappedLearner):
    """Train like the inner learner, store the features of every step, mix them in at test.

    Features are those of the step's own forward pass: made before the weights moved and in
    training mode, without a second pass. With an empty store the model answers alone, and so it
    does in training mode.

    Args:
        inner: Learner to wrap; its module has a ``backbone``.
        size: Rows the store keeps.
        neighbours: Stored rows that count for a prediction.
        share: What they count.
        temperature: The higher, the more alike they count.
    """

    def __init__(
        self, inner: Learner, size: int, neighbours: int, share: float, temperature: float
    ) -> None:
        self.neighbours, self.share, self.temperature = neighbours, share, temperature
        store = MemoryQueue(size, feature_dim_of(backbone_of(inner.module), None), inner.target)
        settings = f"neighbours={neighbours}, share={share}, temperature={temperature}"
        self._own = RememberingModule(inner.module, store, settings)
        self._features: Tensor | None = None
        super().__init__(inner, self._own)

    def forward(self, batch: Batch) -> Output:
        """Return the inner output in training, and with the neighbours' answer mixed in at test."""
        output = self.inner.forward(batch)
        if self._own.training:
            self._features = output.features.detach()
            return output
        store = self._own.store
        held = min(int(store.written), store.size)
        if held == 0:
            return output
        places, weights = nearest(
            output.features.to(store.features.dtype),
            store.features[:held],
            neighbours=self.neighbours,
            temperature=self.temperature,
        )
        labels, weights = store.labels[places], weights.to(output.logits.dtype)
        mixed = mix_in_neighbours(output.logits, labels, weights, self.share, self.target)
        return output._replace(logits=mixed)

    def after_step(self, batch: Batch) -> None:
        """Store the features of the step's forward pass."""
        super().after_step(batch)
        if self._features is None:
            raise RuntimeError("after_step stores the features of a step; call loss(batch) first")
        features, self._features = self._features, None
        ignore = None if batch.mixed is None else batch.mixed.made
        rows = check_rows(self.target, features, batch.y, ignore, batch.ids)
        self._own.store.write(gather_memory_rows(rows))


def knn(
    method: Method,
    *,
    neighbours: int = 10,
    share: float = 0.25,
    temperature: float = 1.0,
    store: int | None = None,
) -> Method:
    """Return ``method`` with its answers mixed with those of stored neighbours at test.

    ``p = share * p_knn + (1 - share) * p_model``, neighbours by the backbone's features; of
    numbers the same mean of two numbers.

    Args:
        method: Method to wrap.
        neighbours: Stored rows that count for a prediction.
        share: What they count, from 0 to below 1.
        temperature: Divides squared distances; the higher, the more alike neighbours count.
        store: Rows kept, the last ones trained on; by default as many as there are.
    """
    expect_whole("neighbours", neighbours, least=1)
    expect_whole("store", 1 if store is None else store, least=1)
    expect_number("share", share, SHARE)
    expect_number("temperature", temperature, POSITIVE)

    def build(task: Task, seed: int) -> NearestNeighbours:
        size = len(task.train) if store is None else store
        return NearestNeighbours(method(task, seed), size, neighbours, share, temperature)

    return build


def mix_in_neighbours(
    logits: Tensor, labels: Tensor, weights: Tensor, share: float, target: Target
) -> Tensor:
    """Return logits of ``share * neighbours + (1 - share) * model``, ``(B, outputs)``.

    Of classes and of yes/no labels probabilities are mixed, of numbers the numbers; a yes/no label
    that no neighbour knows is left to the model.

    Args:
        logits: The model's, ``(B, outputs)``.
        labels: Of the neighbours, as a memory stores them, ``(B, K, ...)``.
        weights: What each neighbour counts, ``(B, K)``, rows that sum to 1.
        share: What the neighbours count, below 1.
        target: What a label is.

    Example:
        >>> labels, half = torch.tensor([[0, 0]]), torch.full((1, 2), 0.5)
        >>> mix_in_neighbours(torch.zeros(1, 2), labels, half, 0.5, Classes(2)).exp()
        tensor([[0.7500, 0.2500]])
    """
    if isinstance(target, Classes):
        empty = weights.new_zeros(len(weights), target.table_rows)
        return mix_classes(logits, empty.scatter_add(1, labels, weights), share)
    if isinstance(target, SoftClasses):
        votes = (weights[:, :, None] * labels.to(weights.dtype)).sum(dim=1)  # (B, K, C) -> (B, C)
        return mix_classes(logits, votes, share)
    if isinstance(target, YesNo):
        return _mix_yes_no(logits, labels.to(weights.dtype), weights, share)
    if isinstance(target, Number):
        mean = (weights * labels.to(weights.dtype)).sum(dim=1, keepdim=True)  # (B, K) -> (B, 1)
        return (1 - share) * logits + share * mean
    raise UserError(
        f"knn must know how neighbours vote on labels of the kind {target.kind!r}, and does not; "
        "use the method inside by itself"
    )


def _mix_yes_no(logits: Tensor, labels: Tensor, weights: Tensor, share: float) -> Tensor:
    known = weights[:, :, None] * ~labels.isnan()  # (B, K, T)
    total = known.sum(dim=1)  # (B, T)
    yes = (known * labels.nan_to_num()).sum(dim=1) / torch.where(total > 0, total, 1)
    of_model = logsigmoid(torch.stack([-logits, logits]))  # (2, B, T)
    mixed = mix_probabilities(of_model, torch.stack([1 - yes, yes]), share)
    return torch.where(total > 0, mixed[1] - mixed[0], logits)
