"""Rows of all processes, in rank order, however many each of them brought."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad


def world_size() -> int:
    """Return how many processes train together; 1 outside ``torch.distributed``."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return 1


def rank() -> int:
    """Return which of the processes this is; 0 outside ``torch.distributed``."""
    return dist.get_rank() if world_size() > 1 else 0


def share_first_rank(tensor: Tensor) -> None:
    """Give ``tensor`` of every rank the values of the first one's; every rank must call."""
    if world_size() > 1:
        dist.broadcast(tensor.detach(), src=0)


def gather_rows(tensor: Tensor, dim: int = 0) -> Tensor:
    """Concatenate ``tensor`` of every rank along ``dim``; gradients flow back to their rank.

    Ranks may bring different sizes along ``dim``, none included; every rank must call.

    Example:
        >>> gather_rows(torch.tensor([1.0, 2.0]))  # one process: nothing to do
        tensor([1., 2.])
    """
    if world_size() == 1:
        return tensor
    count = torch.tensor([tensor.shape[dim]], device=tensor.device)
    counts = [int(size) for size in _all_gather(count)]
    rows = tensor.movedim(dim, 0)
    missing = max(counts) - len(rows)
    padded = pad(rows, (*[0, 0] * (rows.dim() - 1), 0, missing))
    # (ranks, largest count, ...)
    gathered = _GatherWithGradient.apply(padded)  # type: ignore[no-untyped-call]
    kept = [part[:size] for part, size in zip(gathered, counts, strict=True)]
    return torch.cat(kept).movedim(0, dim)


def draw_shared_number(device: torch.device) -> Tensor:
    """Return a random number in [0, 1) that all processes get alike; every rank must call.

    Each takes one from its own generator, so that a run is as resumable as its random state, and
    the first rank's counts.
    """
    number = torch.rand((), device=device)
    if world_size() > 1:
        dist.broadcast(number, src=0)
    return number


def own_rows(count: int, device: torch.device, *, gathered: bool) -> Tensor:
    """Return which row is which of this process's own, ``(count, all)`` of bool.

    Args:
        count: Rows of this process.
        device: Where.
        gathered: Whether all are those of every process; every rank must then call.
    """
    if world_size() == 1 or not gathered:
        return torch.eye(count, dtype=torch.bool, device=device)
    numbers = torch.arange(count, device=device) + (dist.get_rank() << 32)
    return numbers[:, None] == gather_rows(numbers)


class _GatherWithGradient(torch.autograd.Function):
    """Stack a tensor of all ranks; a rank's gradient is the sum of what all ranks ask of it."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return torch.stack(_all_gather(tensor.contiguous()))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[dist.get_rank()]


def _all_gather(tensor: Tensor) -> list[Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(world_size())]
    dist.all_gather(parts, tensor)
    return parts
