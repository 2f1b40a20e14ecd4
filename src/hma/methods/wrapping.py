"""A method around a method: what the outer one adds survives checkpoints and device wrappers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from hma.data import Batch
from hma.errors import UserError
from hma.methods.learner import Learner


class WrappedModule(nn.Module):
    """Pass a batch on to the module of the inner method; buffers of the outer one live here.

    Args:
        inner: Module of the inner method.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.config = getattr(inner, "config", None)

    def forward(self, x: object) -> Tensor:
        """Return the logits of the inner module."""
        logits: Tensor = self.inner(x)
        return logits


class WrappedLearner:
    """Do what the inner learner does, through a module of our own.

    The loop may put a module of its own around ours (devices, number formats); the inner learner
    is then given that module too, so that every forward pass goes through it.

    Args:
        inner: Learner to wrap.
        module: Wraps ``inner.module``.
    """

    def __init__(self, inner: Learner, module: WrappedModule) -> None:
        self.inner = inner
        self.contexts = inner.contexts
        self.module = module

    @property
    def module(self) -> nn.Module:
        """The module to train, as the loop wrapped it."""
        return self.inner.module

    @module.setter
    def module(self, module: nn.Module) -> None:
        self.inner.module = module

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the inner learner."""
        return self.inner.loss(batch)

    def predict(self, batch: Batch) -> Tensor:
        """Return the logits of the inner learner."""
        return self.inner.predict(batch)

    def after_step(self, batch: Batch) -> None:
        """Do what the inner learner does after a step."""
        self.inner.after_step(batch)

    def use(self, context: str) -> None:
        """Switch the inner learner's context."""
        self.inner.use(context)


def backbone_of(learner: Learner) -> nn.Module:
    """Return the backbone behind a learner, whatever is around it."""
    module = learner.module
    while isinstance(module, WrappedModule):
        module = module.inner
    backbone = getattr(module, "backbone", None)
    if not isinstance(backbone, nn.Module):
        raise UserError(
            "method must build a module with a backbone whose features can be read, got "
            f"{type(module).__name__}; give its encoder the name backbone"
        )
    return backbone


@contextmanager
def features_of(backbone: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what ``backbone`` returns while the block runs, so that it need not run again."""
    found: list[Tensor] = []

    def collect(module: nn.Module, inputs: Any, features: Tensor) -> None:
        found.append(features)

    handle = backbone.register_forward_hook(collect)
    try:
        yield found
    finally:
        handle.remove()
