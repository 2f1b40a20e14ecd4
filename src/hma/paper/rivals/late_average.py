"""The mean of late weights: for training whose last steps swing from one answer to another."""

from typing import Any, final

import torch
from torch import Tensor, nn

from hma.checks import expect_whole
from hma.data import Batch, Task
from hma.methods.learner import Learner, Method
from hma.paper.rivals.wrapping import WrappedLearner, WrappedModule


@final
class AveragingModule(WrappedModule):
    """Keep the mean of the weights that train, in buffers, so that a resumed run goes on with it.

    Args:
        inner: Module of the method inside.
        settings: What was asked for.
    """

    steps: Tensor
    taken: Tensor

    def __init__(self, inner: nn.Module, settings: str) -> None:
        super().__init__(inner, settings)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("taken", torch.zeros((), dtype=torch.long))
        for place, weight in enumerate(self.trained):
            self.register_buffer(f"mean_{place}", torch.zeros_like(weight))

    @property
    def trained(self) -> list[nn.Parameter]:
        """Weights that the optimizer moves; a momentum encoder follows them by itself."""
        return [weight for weight in self.inner.parameters() if weight.requires_grad]

    @property
    def means(self) -> list[Tensor]:
        """Their means so far."""
        return [self.get_buffer(f"mean_{place}") for place in range(len(self.trained))]

    @torch.no_grad()
    def take(self) -> None:
        """Count the weights of now."""
        self.taken += 1
        for mean, weight in zip(self.means, self.trained, strict=True):
            mean += (weight - mean) / self.taken

    @torch.no_grad()
    def use(self) -> None:
        """Give the inner module the means, if there are any."""
        if int(self.taken):
            for mean, weight in zip(self.means, self.trained, strict=True):
                weight.copy_(mean)


@final
class LateAverage(WrappedLearner):
    """Train as the inner learner does, and answer with the mean of its late weights.

    Args:
        inner: Learner to wrap.
        first: The step after which weights are first taken, from 1.
        every: Steps between two times.
    """

    def __init__(self, inner: Learner, first: int, every: int) -> None:
        self.first, self.every = first, every
        self._module = AveragingModule(inner.module, f"first={first}, every={every}")
        super().__init__(inner, self._module)

    def after_step(self, batch: Batch) -> None:
        """Do what the inner learner does, and take the weights where it is time."""
        super().after_step(batch)
        self._module.steps += 1
        late = int(self._module.steps) - self.first
        if late >= 0 and late % self.every == 0:
            self._module.take()

    def after_training(self, task: Task, **how: Any) -> dict[str, Any]:
        """Put the means in place of the last weights, then do what the inner learner does."""
        self._module.use()
        return super().after_training(task, **how)


def late_average(method: Method, *, first: int, every: int = 1) -> Method:
    r"""Return the method that answers with the mean of late weights of another.

    .. math:: \bar w = \mathrm{mean} \{ w_t : t = f, f + e, f + 2 e, \dots \}

    A run of less than ``first`` steps keeps its last weights.

    Args:
        method: Trained as it is, to the last step: choose ``selection="last"``.
        first: The step after which weights are first taken, from 1, :math:`f`.
        every: Steps between two times, :math:`e`.
    """
    expect_whole("first", first, 1)
    expect_whole("every", every, 1)

    def build(task: Task, seed: int) -> LateAverage:
        return LateAverage(method(task, seed), first, every)

    return build
