"""The classic semi-parametric baseline: the model's answer mixed with that of stored neighbours."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from hma.checks import feature_dim_of
from hma.data import Batch, Task
from hma.errors import UserError
from hma.methods.learner import Learner, Method
from hma.methods.wrapping import WrappedLearner, WrappedModule, backbone_of, features_of
from hma.queue import MemoryQueue, checked_rows, rows_of_all_ranks
from hma.targets import Classes

DISTANCES_AT_ONCE = 2**23
"""Distances held at a time; more queries are answered in turns."""


def neighbour_probabilities(
    queries: Tensor,
    keys: Tensor,
    labels: Tensor,
    *,
    num_classes: int,
    neighbours: int,
    temperature: float,
) -> Tensor:
    r"""Return class probabilities by the nearest keys, ``(B, C)``.

    .. math:: p(c \mid q) \propto \sum_{i \in \mathrm{kNN}(q)} [y_i = c] \,
        \exp(-\lVert q - k_i \rVert^2 / T)

    Args:
        queries: Features, ``(B, F)``.
        keys: Stored features, ``(N, F)``.
        labels: Their class ids, ``(N,)``.
        num_classes: Number of classes, ``C``.
        neighbours: Keys that count for a query; all of them if there are fewer.
        temperature: ``T``; the higher, the more alike they count.

    Example:
        >>> keys, labels = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0, 1, 1])
        >>> neighbour_probabilities(
        ...     torch.tensor([[0.5]]), keys, labels, num_classes=2, neighbours=2, temperature=1.0
        ... )
        tensor([[0.5000, 0.5000]])
    """
    # around the middle of the keys: far from zero, expanded squares lose the difference
    middle = keys.mean(dim=0)
    queries, keys = queries - middle, keys - middle
    squares = keys.square().sum(dim=1)  # (N,)
    count = min(neighbours, len(keys))
    answers = [queries.new_empty(0, num_classes)]
    for some in torch.split(queries, max(DISTANCES_AT_ONCE // len(keys), 1)):
        # the query's own square is left out: it moves no neighbour before another
        nearest = torch.addmm(squares, some, keys.T, alpha=-2).topk(count, largest=False).indices
        apart = (some[:, None] - keys[nearest]).square().sum(dim=2)  # (b, K)
        weights = (-apart / temperature).softmax(dim=1)  # (b, K)
        empty = weights.new_zeros(len(some), num_classes)
        answers.append(empty.scatter_add(1, labels[nearest], weights))
    return torch.cat(answers)


def mixed_logits(logits: Tensor, by_neighbours: Tensor, share: float) -> Tensor:
    """Return ``log(share * p_knn + (1 - share) * p_model)``; of one logit, the log odds.

    Args:
        logits: The model's, ``(B, C)`` or ``(B, 1)``.
        by_neighbours: Probabilities, ``(B, C)``, two of them beside one logit.
        share: What the neighbours count, below 1.

    Example:
        >>> mixed_logits(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), share=0.5).exp()
        tensor([[0.7500, 0.2500]])
    """
    if logits.shape[1] == 1:
        of_model = logsigmoid(torch.cat([-logits, logits], dim=1))  # (B, 2)
    else:
        of_model = logits.log_softmax(dim=1)  # (B, C)
    mixed = torch.logaddexp(of_model + math.log1p(-share), (share * by_neighbours).log())
    return mixed[:, 1:] - mixed[:, :1] if logits.shape[1] == 1 else mixed


class RememberingModule(WrappedModule):
    """Keep features and labels of training rows in buffers beside the inner module.

    Args:
        inner: Module of the inner method.
        store: Where they are kept.
        settings: What was asked for; printed with the module, and so part of a run's identity.
    """

    def __init__(self, inner: nn.Module, store: MemoryQueue, settings: str) -> None:
        super().__init__(inner)
        self.store = store
        self.settings = settings

    def extra_repr(self) -> str:  # noqa: D102
        return self.settings


class NearestNeighbours(WrappedLearner):
    """Train like the inner learner, store the features of every step, mix them in at test.

    Features are those of the step's own forward pass: made before the weights moved and in
    training mode, without a second pass. With an empty store the model answers alone, and so it
    does in training mode.

    Args:
        inner: Learner to wrap; its module has a ``backbone``.
        size: Rows the store keeps.
        num_classes: Number of logits.
        neighbours: Stored rows that count for a prediction.
        share: What they count.
        temperature: The higher, the more alike they count.
    """

    def __init__(
        self,
        inner: Learner,
        size: int,
        num_classes: int,
        neighbours: int,
        share: float,
        temperature: float,
    ) -> None:
        self.target = Classes(num_classes)
        self.num_labels = self.target.table_rows
        self.neighbours, self.share, self.temperature = neighbours, share, temperature
        self._backbone = backbone_of(inner)
        store = MemoryQueue(size, feature_dim_of(self._backbone, None), self.target)
        settings = f"neighbours={neighbours}, share={share}, temperature={temperature}"
        self._own = RememberingModule(inner.module, store, settings)
        self._features: Tensor | None = None
        super().__init__(inner, self._own)

    def loss(self, batch: Batch) -> Tensor:
        """Return the inner loss; the features it was made of wait for :meth:`after_step`."""
        with features_of(self._backbone) as found:
            loss = self.inner.loss(batch)
        self._features = found[-1].detach()
        return loss

    def predict(self, batch: Batch) -> Tensor:
        """Return the logarithm of the mixed probabilities; in training mode the inner logits."""
        with features_of(self._backbone) as found:
            logits = self.inner.predict(batch)
        if self._own.training:
            self._features = found[-1].detach()
            return logits
        store = self._own.store
        held = min(int(store.written), store.size)
        if held == 0:
            return logits
        by_neighbours = neighbour_probabilities(
            found[-1].to(store.features.dtype),
            store.features[:held],
            store.labels[:held],
            num_classes=self.num_labels,
            neighbours=self.neighbours,
            temperature=self.temperature,
        )
        return mixed_logits(logits, by_neighbours.to(logits.dtype), self.share)

    def after_step(self, batch: Batch) -> None:
        """Store the features of the step's forward pass."""
        super().after_step(batch)
        if self._features is None:
            raise RuntimeError("after_step stores the features of a step; call loss(batch) first")
        features, self._features = self._features, None
        rows = checked_rows(self.target, features, batch.y, None, batch.ids)
        self._own.store.write(rows_of_all_ranks(rows))


def knn(
    method: Method,
    *,
    neighbours: int = 10,
    share: float = 0.25,
    temperature: float = 1.0,
    store: int | None = None,
) -> Method:
    """Return ``method`` with its probabilities mixed with those of stored neighbours at test.

    ``p = share * p_knn + (1 - share) * p_model``, neighbours by the backbone's features.

    Args:
        method: Method to wrap.
        neighbours: Stored rows that count for a prediction.
        share: What they count, from 0 to below 1.
        temperature: Divides squared distances; the higher, the more alike neighbours count.
        store: Rows kept, the last ones trained on; by default as many as there are.
    """
    whole = {"neighbours": neighbours, "store": 1 if store is None else store}
    for name, value in whole.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{name} must be a whole number of at least 1, got {value!r}")
    if not 0 <= share < 1:
        raise UserError(f"share must be at least 0 and below 1, got {share}")
    if not (math.isfinite(temperature) and temperature > 0):
        raise UserError(f"temperature must be finite and above 0, got {temperature}")

    def build(task: Task, seed: int) -> NearestNeighbours:
        size = len(task.train) if store is None else store
        inner = method(task, seed)
        return NearestNeighbours(inner, size, len(task.classes), neighbours, share, temperature)

    return build
