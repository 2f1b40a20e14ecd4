"""Eval mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put ``module`` in eval mode for a while; every submodule then gets its own mode back.

    Nothing is touched where all of it is in eval mode. A model that threads share is evaluated by
    :meth:`hma.MemoryModel.reading`, which no other thread disturbs.
    """
    training = [part for part in module.modules() if part.training]
    if training:
        module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
