"""What targets check alike, and the column of MASK."""

from typing import cast

import torch
from torch import Tensor


def or_mask(coefficients: Tensor, known: Tensor) -> Tensor:
    """Append the column of MASK: rows that are not known take MASK and nothing else."""
    known = known[:, None]
    kept = torch.where(known, coefficients, 0.0)
    return torch.cat([kept, (~known).to(kept.dtype)], dim=1)  # (N, R) -> (N, R + 1)


def expect_count(name: str, count: object, why: str, least: int = 1) -> None:
    """Raise unless ``count`` is a whole number of at least ``least``."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise ValueError(f"{name} must be at least {least} ({why}), got {count!r}")


def expect_added(added: object, count: int) -> None:
    """Raise unless ``added`` classes of ``count`` leave two or more that a head knows."""
    if added == 0:
        return
    expect_count("added", added, "classes that a head does not know", least=0)
    expect_count("count - added", count - cast("int", added), "classes that a head knows", least=2)


def expect_rows(y: Tensor, *shape: int) -> None:
    """Raise unless ``y`` has this shape."""
    if tuple(y.shape) != shape:
        wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(f"y must have shape ({wanted}), got {tuple(y.shape)}")


def expect_none(outside: Tensor, y: Tensor, rule: str, remedy: str) -> None:
    """Raise if any row is ``outside``; on a device other than the CPU without waiting for it."""
    ending = f"; {remedy}" if remedy else ""
    if y.device.type != "cpu":  # reading the answer back would stall the device
        torch._assert_async(~outside.any(), rule + ending)
    elif outside.any():
        row = int(outside.nonzero()[0, 0])
        got = f"{y[row].tolist()}" + (f" in row {row}" if y.dim() > 1 else "")
        raise ValueError(f"{rule}, got {got}{ending}")
