"""Buffers with as many rows as were put into them: any number of rows fits when they are loaded."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

from torch import Tensor, nn

from hma.memory.blocks import is_large

Shapes = dict[str, tuple[int, ...]]
AS_THEY_ARE = ContextVar("AS_THEY_ARE", default=False)


class Growing(nn.Module):
    """A module some of whose buffers have no fixed number of rows.

    Example:
        >>> import torch
        >>> class Rows(Growing):
        ...     growing = ("rows",)
        ...     def __init__(self, count):
        ...         super().__init__()
        ...         self.register_buffer("rows", torch.zeros(count, 2))
        >>> empty = Rows(0)
        >>> empty.load_state_dict(Rows(3).state_dict())
        <All keys matched successfully>
        >>> empty.rows.shape
        torch.Size([3, 2])
    """

    growing: ClassVar[tuple[str, ...]] = ()
    """Buffers whose first axis may have any length."""

    def fill(self, **tensors: Tensor) -> None:
        """Put tensors in the place of buffers, on their device and in their number format."""
        for name, tensor in tensors.items():
            setattr(self, name, tensor.detach().to(self.get_buffer(name)))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self.growing:
            stored, own = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(stored, Tensor) and fits(tuple(stored.shape), tuple(own.shape)):
                alike = stored.dtype == own.dtype and stored.device == own.device
                kept = AS_THEY_ARE.get() and is_large(len(stored)) and alike
                setattr(self, name, stored if kept else own.new_empty(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


@contextmanager
def load_without_copy() -> Iterator[None]:
    """Load many rows without a copy, as tensors that nobody else has: those of a file stay there.

    Pages of the file are read when rows are, and a row that is changed is changed in memory alone.
    """
    before = AS_THEY_ARE.set(True)
    try:
        yield
    finally:
        AS_THEY_ARE.reset(before)


def fits(stored: tuple[int, ...], own: tuple[int, ...]) -> bool:
    """Return whether two shapes differ in their number of rows at most."""
    return len(stored) == len(own) > 0 and stored[1:] == own[1:]


def shapes_to_load(
    module: nn.Module, wanted: Shapes, stored: Mapping[str, tuple[int, ...]]
) -> Shapes:
    """Return the shapes that ``module`` takes from a file: its own, rows that grow as in the file.

    Args:
        module: What is to be loaded.
        wanted: Shapes of its tensors.
        stored: Shapes of those in the file.
    """
    shapes = dict(wanted)
    for name in growing_names(module):
        if name in stored and name in wanted and fits(stored[name], wanted[name]):
            shapes[name] = stored[name]
    return shapes


def growing_names(module: nn.Module) -> frozenset[str]:
    """Return the names of the tensors of ``module`` that have no fixed number of rows."""
    return frozenset(
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if isinstance(part, Growing)
        for name in part.growing
    )
