"""IRM, V-REx and IB-IRM around any method: penalties on what differs between environments."""

from dataclasses import replace
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from hma.checks import expect_number, expect_whole
from hma.data import Batch, Split, Task
from hma.errors import UserError
from hma.methods.learner import Learner, Method
from hma.model import Output
from hma.options.config import WEIGHT
from hma.paper.rivals.wrapping import WrappedLearner, WrappedModule
from hma.targets import Classes, Target

LEAST_ROWS = 2
"""An environment with fewer rows in a batch has no two halves and enters no penalty."""


class Grouped(NamedTuple):
    """Rows of a batch by environment, with nothing read back from the device.

    Environments are numbered by place in a table as long as the batch, because how many there
    are is known to the device alone; places without an environment hold nothing.

    Shape:
        - ``environment`` ``(B,)``: place of each row's environment.
        - ``second`` ``(B,)``: 1 for every second row of an environment, else 0.
        - ``weight`` ``(B,)``: what a row counts in the loss.
        - ``counts`` ``(B,)``: rows of the environment at each place.
    """

    environment: Tensor
    second: Tensor
    weight: Tensor
    counts: Tensor

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum of ``values`` ``(B, ...)`` over the rows of each environment."""
        return torch.zeros_like(values).index_add(0, self.environment, values)

    def means(self, values: Tensor, weight: Tensor) -> Tensor:
        """Return the weighted mean of ``values`` ``(B,)`` of each environment, 0 without weight."""
        total = self.sums(weight)
        return self.sums(values * weight) / torch.where(total == 0, 1, total)

    @property
    def present(self) -> Tensor:
        """Which places hold an environment that has weight, ``(B,)``."""
        return self.sums(self.weight) > 0

    @property
    def large_enough(self) -> Tensor:
        """Which of them have two rows or more, ``(B,)``."""
        return self.present & (self.counts >= LEAST_ROWS)


def by_environment(environment: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Grouped:
    """Group the rows of a batch by environment, and each environment into two halves.

    Args:
        environment: Any number for each row, equal for rows of one environment, ``(B,)``.
        weight: Weight of each row in the loss ``(B,)``; None for 1.
        dtype: Floating point format of what is to be averaged.

    Example:
        >>> rows = by_environment(torch.tensor([7, 3, 7, 7]), None, torch.float32)
        >>> rows.environment.tolist(), rows.second.tolist(), rows.counts.tolist()
        ([1, 0, 1, 1], [1.0, 0.0, 0.0, 1.0], [1.0, 3.0, 0.0, 0.0])
    """
    ordered, order = environment.sort(stable=True)  # (B,) each
    change = (ordered[1:] != ordered[:-1]).long()  # (B - 1,)
    place = torch.cat([change.new_zeros(min(len(ordered), 1)), change]).cumsum(0)  # (B,)
    places = torch.empty_like(place).scatter(0, order, place)
    ones = torch.ones(len(ordered), dtype=dtype, device=environment.device)
    counts = torch.zeros_like(ones).index_add(0, places, ones)
    turn = torch.arange(len(ordered), device=environment.device) % 2  # alternates in each of them
    second = torch.empty_like(ones).scatter(0, order, turn.to(dtype))
    return Grouped(places, second, ones if weight is None else weight.to(dtype), counts)


def mean_over(which: Tensor, values: Tensor) -> Tensor:
    """Return the mean of the ``values`` that ``which`` marks, 0 if it marks none."""
    return torch.where(which, values, 0).sum() / which.sum().clamp(min=1)


def row_gradients(logits: Tensor, labels: Tensor, target: Target) -> Tensor:
    r"""Return the gradient of each row's loss by a factor on its logits, at 1.

    .. math:: \left. \frac{d}{dw} \ell(w z, y) \right|_{w = 1}
        = \sum_c \big( \mathrm{softmax}(z)_c - [c = y] \big) z_c

    Written out, as for class ids, it needs no second graph. One logit: ``(sigmoid(z) - y) * z``.

    Example:
        >>> logits, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([1])
        >>> row_gradients(logits, labels, Classes(2)).round(decimals=4)
        tensor([-0.2384])
    """
    if not isinstance(target, Classes):
        factor = torch.ones_like(logits[:, :1], requires_grad=True)  # (B, 1)
        losses = target.loss(logits * factor, labels)
        return torch.autograd.grad(losses.sum(), factor, create_graph=True)[0][:, 0]
    if logits.shape[1] == 1:
        only = logits[:, 0]
        return (only.sigmoid() - labels.to(only.dtype)) * only
    expected = (logits.softmax(dim=1) * logits).sum(dim=1)  # (B, C) -> (B,)
    return expected - logits.gather(1, labels[:, None])[:, 0]


def mean_risk(losses: Tensor, rows: Grouped) -> Tensor:
    """Return the mean over environments of the mean loss of each."""
    return mean_over(rows.present, rows.means(losses, rows.weight))


def gradient_penalty(gradients: Tensor, rows: Grouped) -> Tensor:
    """Return the mean over environments of the squared gradient, without bias.

    The square of a mini-batch mean is too large by its variance; the product of the means of two
    halves is not. It may be negative.
    """
    halves = [rows.weight * half for half in (rows.second, 1 - rows.second)]
    one, other = (rows.means(gradients, weight) for weight in halves)
    both = (rows.sums(halves[0]) > 0) & (rows.sums(halves[1]) > 0)
    return mean_over(both, one * other)


def risk_variance(losses: Tensor, rows: Grouped) -> Tensor:
    """Return the variance of the risks over environments, divided by their number."""
    risks = rows.means(losses, rows.weight)
    return mean_over(rows.large_enough, (risks - mean_over(rows.large_enough, risks)).square())


def feature_variance(features: Tensor, rows: Grouped) -> Tensor:
    """Return the variance of each feature within an environment, mean over both.

    Divided by the rows of the environment less one; row weights do not count.
    """
    counts = rows.counts[:, None]  # (B, 1)
    means = rows.sums(features) / counts.clamp(min=1)  # (B, F), one row per environment
    apart = (features - means[rows.environment]).square()  # (B, F)
    variances = rows.sums(apart) / (counts - 1).clamp(min=1)  # (B, F)
    return mean_over(rows.counts >= LEAST_ROWS, variances.mean(dim=1))


Penalty = Literal["gradient", "variance"]
# --------------------------------------------------------------------------- methods with penalties


REMEDY = (
    "give the training split an environment for each row, or draw some with "
    "hma.paper.rivals.random_environments(task)"
)


@final
class PenalisedModule(WrappedModule):
    """Count the steps of a penalised method in a buffer, so that a resumed run knows them.

    Args:
        inner: Module of the inner method.
        settings: What was asked for; printed with the module, and so part of a run's identity.
    """

    steps: Tensor

    def __init__(self, inner: nn.Module, settings: str) -> None:
        super().__init__(inner, settings)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))


@final
class Penalised(WrappedLearner):
    """Mean of the environments' risks, a penalty on what differs between them, and a bottleneck.

    Before ``warmup_steps`` the penalty counts once and the bottleneck not at all; afterwards they
    count ``weight`` and ``bottleneck`` times, and a ``weight`` above 1 divides the whole loss, so
    that gradients stay in range.

    Args:
        inner: Learner that is trained on the logits of its forward pass.
        task: What from; for messages.
        penalty: 'gradient' is IRM's, 'variance' V-REx's.
        weight: What the penalty counts.
        warmup_steps: Steps before it counts that much.
        bottleneck: What the variance of the features counts.
    """

    def __init__(
        self,
        inner: Learner,
        task: Task,
        penalty: Penalty,
        weight: float,
        warmup_steps: int,
        bottleneck: float = 0.0,
    ) -> None:
        self.task_name, self.penalty = task.name, penalty
        self.weight, self.warmup_steps, self.bottleneck = weight, warmup_steps, bottleneck
        settings = f"penalty={penalty!r}, weight={weight}, warmup_steps={warmup_steps}"
        settings += f", bottleneck={bottleneck}" if bottleneck else ""
        self._counter = PenalisedModule(inner.module, settings)
        super().__init__(inner, self._counter)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the penalised risk."""
        if batch.environment is None:
            raise UserError(f"the rows of {self.task_name!r} have no environment; {REMEDY}")
        logits = _wide(output.logits)
        if len(logits) != len(batch.y):
            raise UserError(
                "method must predict one row of logits for each row it trains on, got "
                f"{len(logits)} for {len(batch.y)} from {type(self.inner).__name__}; a penalty "
                "goes around a method that trains on its own predictions"
            )
        rows = by_environment(batch.environment, batch.weight, logits.dtype)
        losses = self.losses(output._replace(logits=logits), batch)
        warm = self._counter.steps >= self.warmup_steps
        total = mean_risk(losses, rows) + self._penalty(logits, losses, batch, rows) * torch.where(
            warm, self.weight, 1.0
        )
        if self.bottleneck:
            variance = feature_variance(_wide(output.features), rows)
            total = total + variance * torch.where(warm, self.bottleneck, 0.0)
        return total / torch.where(warm, max(self.weight, 1.0), 1.0)

    def _penalty(self, logits: Tensor, losses: Tensor, batch: Batch, rows: Grouped) -> Tensor:
        if self.penalty == "variance":
            return risk_variance(losses, rows)
        return gradient_penalty(row_gradients(logits, batch.y, self.target), rows)

    @torch.no_grad()
    def after_step(self, batch: Batch) -> None:
        """Count the step."""
        super().after_step(batch)
        self._counter.steps += 1


def _wide(values: Tensor) -> Tensor:
    """Return ``values`` in 32 bits or more: sums over a batch are too coarse in 16."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def irm(method: Method, *, weight: float, warmup_steps: int = 0) -> Method:
    """Return ``method`` with the gradient penalty of invariant risk minimisation (IRMv1).

    Args:
        method: Method to wrap, such as ``erm(backbone)`` or ``with_memory(backbone, config)``.
        weight: What the penalty counts.
        warmup_steps: Steps before it counts that much; until then it counts once.
    """
    return _penalise(method, "gradient", weight, warmup_steps)


def vrex(method: Method, *, weight: float, warmup_steps: int = 0) -> Method:
    """Return ``method`` with the variance of the environments' risks as penalty (V-REx).

    Args:
        method: Method to wrap.
        weight: What the penalty counts.
        warmup_steps: Steps before it counts that much; until then it counts once.
    """
    return _penalise(method, "variance", weight, warmup_steps)


def ib_irm(method: Method, *, weight: float, bottleneck: float, warmup_steps: int = 0) -> Method:
    """Return ``method`` with IRM's penalty and the variance of the backbone's features (IB-IRM).

    The variance is taken over the rows of an environment, then the mean over features and
    environments.

    Args:
        method: Method to wrap; its module has a ``backbone``.
        weight: What the gradient penalty counts.
        bottleneck: What the variance of the features counts.
        warmup_steps: Steps before they count that much; until then 1 and 0.
    """
    return _penalise(method, "gradient", weight, warmup_steps, bottleneck)


def _penalise(
    method: Method, penalty: Penalty, weight: float, warmup_steps: int, bottleneck: float = 0.0
) -> Method:
    for name, value in (("weight", weight), ("bottleneck", bottleneck)):
        expect_number(name, value, WEIGHT)
    expect_whole("warmup_steps", warmup_steps, least=0)

    def build(task: Task, seed: int) -> Penalised:
        _expect_environments(task)
        return Penalised(method(task, seed), task, penalty, weight, warmup_steps, bottleneck)

    return build


def _expect_environments(task: Task) -> None:
    """Raise where it shows without reading a row that there are not two environments."""
    known = getattr(task.train, "environment", None)
    if isinstance(known, Tensor) and bool((known == known[:1]).all()):
        raise UserError(
            f"the training rows of {task.name!r} are all of one environment, so nothing can be "
            f"the same in several; {REMEDY}"
        )


# --------------------------------------------------------------------------- environments by chance


class InEnvironments:
    """A split whose rows are given environments.

    Args:
        split: The rows.
        environment: Environment of each row, ``(N,)``.
    """

    def __init__(self, split: Split, environment: Tensor) -> None:
        self.split = split
        self.labels = split.labels
        self.environment = environment

    def __len__(self) -> int:
        return len(self.split)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places``, with ``epoch`` as training sees them then."""
        return self.split.batch(places, epoch)._replace(environment=self.environment[places])


def random_environments(task: Task, *, count: int = 2, seed: int = 0) -> Task:
    """Return the task with its training rows divided at random into environments of equal size.

    Args:
        task: A task without environments, such as graphs.
        count: Number of environments.
        seed: Decides which row is in which.

    Example:
        >>> from hma.data import InMemory
        >>> rows = InMemory(torch.zeros(4, 1), labels=torch.tensor([0, 1, 0, 1]))
        >>> task = Task("four", "table", ("a", "b"), (1,), rows, rows, {})
        >>> random_environments(task).train.batch(torch.arange(4)).environment.bincount()
        tensor([2, 2])
    """
    if not 2 <= count <= len(task.train):
        raise UserError(
            f"count must be from 2 to the number of training rows, {len(task.train)}, got {count}"
        )
    order = torch.randperm(len(task.train), generator=torch.Generator().manual_seed(seed))
    facts = {**task.facts, "environments": f"{count}, at random by seed {seed}"}
    return replace(task, train=InEnvironments(task.train, order % count), facts=facts)
