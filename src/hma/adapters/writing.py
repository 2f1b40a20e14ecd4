"""What every adapter does: find the model, hold the batches of a step, write them after it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hma.errors import UserError
from hma.model import HMA
from hma.targets import UNKNOWN

Unpack = Callable[[Any], Sequence[Any]]
"""Takes a batch apart: ``unpack(batch)`` returns ``(x, y)`` or ``(x, y, ids)``."""


class Held(NamedTuple):
    """A batch that has been learned from and waits for the optimizer's step."""

    x: Any
    y: Tensor
    ids: Tensor | None


def pair(batch: Any) -> tuple[Any, Any]:
    """Return a batch that is a pair ``(x, y)`` as it is, or say that it needs ``unpack``."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    parts = f" of {len(batch)} parts" if isinstance(batch, tuple | list) else ""
    raise UserError(
        f"batch must be a pair (x, y), got {type(batch).__name__}{parts}; say how to take it "
        "apart: RememberCallback(unpack=lambda batch: (x, y)), or (x, y, ids)"
    )


def find_hma(module: nn.Module, given: HMA | None = None) -> HMA:
    """Return ``given``, or the one HMA inside ``module``.

    Example:
        >>> find_hma(nn.Linear(2, 2))
        Traceback (most recent call last):
        hma.errors.UserError: Linear holds no hma.HMA; pass RememberCallback(model=...)
    """
    if given is not None:
        return given
    models = {name: part for name, part in module.named_modules() if isinstance(part, HMA)}
    if len(models) == 1:
        return next(iter(models.values()))
    holds = f"{len(models)} of them ({', '.join(models)})" if models else "no hma.HMA"
    raise UserError(f"{type(module).__name__} holds {holds}; pass RememberCallback(model=...)")


class StepWriter:
    """Hold the batches of one optimizer step and write them together when it is done.

    With gradient accumulation a step has several batches: all of them enter the queue, in
    order, and the momentum encoder moves once, as for one batch of their joint size.

    Args:
        model: The model to write into.
        unpack: How a batch is taken apart.

    Example:
        >>> from hma import HMAConfig
        >>> model = HMA(nn.Linear(2, 8), 3, HMAConfig.paper(), feature_dim=8)
        >>> writer = StepWriter(model, pair)
        >>> writer.hold((torch.rand(2, 2), torch.tensor([0, 2])))
        >>> writer.hold((torch.rand(1, 2), torch.tensor([1])))
        >>> len(model.memory_state().labels)
        0
        >>> writer.write()
        >>> model.memory_state().labels.tolist()
        [0, 2, 1]
    """

    def __init__(self, model: HMA, unpack: Unpack) -> None:
        self.model = model
        self.unpack = unpack
        self.held: list[Held] = []

    def hold(self, batch: Any) -> None:
        """Keep a batch that the coming step learns from."""
        parts = self.unpack(batch)
        if not isinstance(parts, tuple | list) or len(parts) not in (2, 3):
            raise UserError(f"unpack must return (x, y) or (x, y, ids), got {type(parts).__name__}")
        x, y, ids = (*parts, None) if len(parts) == 2 else parts
        if not isinstance(y, Tensor):
            raise UserError(f"unpack must return class ids y as a tensor, got {type(y).__name__}")
        self.held.append(Held(x, y, ids))

    @torch.no_grad()
    def write(self) -> None:
        """Write what is held; call it after ``optimizer.step()``."""
        held, self.held = self.held, []
        if len(held) == 1:
            self.model.remember(held[0].x, held[0].y, ids=held[0].ids)
        elif held and self.model.config.has_real_memory:
            features = torch.cat([self.model.encode_for_memory(batch.x) for batch in held])
            labels = torch.cat([batch.y for batch in held])
            ids = torch.cat([_ids(batch) for batch in held])
            self.model.remember(None, labels, features=features, ids=ids)


def _ids(batch: Held) -> Tensor:
    if batch.ids is None:
        return torch.full((len(batch.y),), UNKNOWN, device=batch.y.device)
    return batch.ids.to(batch.y.device)
