"""A method around a method: what the outer one adds survives checkpoints and device wrappers."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor, nn

from hma.data import Batch, Split, Task
from hma.errors import UserError
from hma.methods.learner import Forward, Learner, OutputModule
from hma.model import Output


class WrappedModule(OutputModule):
    """Pass a batch on to the module of the inner method; a subclass adds buffers of the outer one.

    Args:
        inner: Module of the inner method.
        settings: What was asked for; printed with the module, and so part of a run's identity.
    """

    def __init__(self, inner: nn.Module, settings: str) -> None:
        super().__init__()
        self.inner = inner
        self.config = getattr(inner, "config", None)
        self.settings = settings

    def output(self, x: Any, features: Tensor | None = None, *more: Any) -> Output:
        """Return what the inner module gives."""
        output: Output = cast("Any", self.inner).output(x, features, *more)
        return output

    def extra_repr(self) -> str:  # noqa: D102
        return self.settings


class WrappedLearner(Learner):
    """Do what the inner learner does, through a module of our own; a subclass changes some of it.

    The loop may lead the forward pass through a module of its own (devices, number formats); the
    inner learner then does so too.

    Args:
        inner: Learner to wrap.
        module: Wraps ``inner.module``.
    """

    def __init__(self, inner: Learner, module: WrappedModule) -> None:
        self.inner = inner
        self.contexts = inner.contexts
        self.contexts_share_features = inner.contexts_share_features
        super().__init__(module, inner.target)

    @property
    def run(self) -> Forward:
        """The forward pass of both."""
        return self.inner.run

    @run.setter
    def run(self, run: Forward) -> None:
        self.inner.run = run

    def forward(self, batch: Batch) -> Output:
        """Return what the inner learner's forward pass gives."""
        return self.inner.forward(batch)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of the inner learner."""
        return self.inner.loss_of(output, batch)

    def losses(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of each row of the inner learner."""
        return self.inner.losses(output, batch)

    def training_split(self, train: Split, seed: int) -> Split:
        """Return the rows that the inner learner trains on."""
        return self.inner.training_split(train, seed)

    def before_training(self, train: Split, tick: Callable[[], None]) -> None:
        """Do what the inner learner does before the first step."""
        self.inner.before_training(train, tick)

    def before_evaluation(self, train: Split, tick: Callable[[], None]) -> None:
        """Do what the inner learner does before an evaluation."""
        self.inner.before_evaluation(train, tick)

    def after_step(self, batch: Batch) -> None:
        """Do what the inner learner does after a step."""
        self.inner.after_step(batch)

    def after_training(self, task: Task, **how: Any) -> dict[str, Any]:
        """Do what the inner learner does after the last epoch."""
        return self.inner.after_training(task, **how)

    def use(self, context: str) -> None:
        """Switch the inner learner's context."""
        self.inner.use(context)


def backbone_of(module: nn.Module) -> nn.Module:
    """Return the backbone of a method's module, whatever is around it."""
    while isinstance(module, WrappedModule):
        module = module.inner
    backbone = getattr(module, "backbone", None)
    if not isinstance(backbone, nn.Module):
        raise UserError(
            "method must build a module with a backbone whose features can be read, got "
            f"{type(module).__name__}; give its encoder the name backbone"
        )
    return backbone
