"""A projection kept for as long as the tensors behind it stay as they were."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from hma.memory.projected import LabelledRows, Projected
from hma.memory.stored import Memories

Key = tuple[object, ...]


class Held(NamedTuple):
    """A projection, what it was made from, and aliases that keep those addresses taken."""

    key: Key
    memories: Memories
    aliases: list[Tensor]


class ProjectionCache:
    """Remember the projected memories until a weight, a queue row or the context changes.

    Change is seen by each tensor's storage and version counter, so asking costs microseconds
    and never waits for the device. Writing through ``tensor.data`` moves neither: after that,
    call ``model.reproject()``.
    """

    def __init__(self) -> None:
        self._held: Held | None = None
        self._pinned: tuple[str, Memories] | None = None

    def get(
        self, context: str, behind: Iterable[Tensor], build: Callable[[], Memories]
    ) -> Memories:
        """Return what ``build`` gives for ``behind``, building only where something changed."""
        behind = list(behind)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in behind):
            return build()  # gradients must reach the memory
        try:
            key = _key(context, behind)
        except RuntimeError:  # tensors of inference mode have no version, of torch.func no address
            return build()
        held = self._held
        if held is None or held.key != key:
            self._held = held = None  # not both at once: rows may be many
            # a tensor born in inference mode could never again meet one that needs a gradient
            with torch.inference_mode(False), torch.no_grad():
                held = Held(key, build(), [tensor.detach() for tensor in behind])
            self._held = held
        return held.memories

    def pin(self, context: str, behind: Iterable[Tensor], build: Callable[[], Memories]) -> None:
        """Project now, for compilers to find."""
        with torch.no_grad():
            real, synthetic = self.get(context, behind, build)
            self._pinned = context, Memories(_apart(real), _apart(synthetic))

    def pinned(self, context: str) -> Memories | None:
        """Return what was pinned for ``context``, unchecked: for compilers, which see constants."""
        if self._pinned is not None and self._pinned[0] == context:
            return self._pinned[1]
        return None

    def clear(self) -> None:
        """Forget the projection."""
        self._held = self._pinned = None


def _apart(rows: Projected | LabelledRows | None) -> Projected | LabelledRows | None:
    """Return keys and values with storage of their own, as exporters want constants to be."""
    return _whole(rows) if isinstance(rows, Projected) else rows


def _whole(rows: Projected) -> Projected:
    summary = None if rows.summary is None else _whole(rows.summary)
    return Projected(rows.keys.contiguous(), rows.values.contiguous(), rows.bias, summary)


def _key(context: str, behind: list[Tensor]) -> Key:
    device = behind[0].device.type
    lower = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    versions = [(tensor.data_ptr(), tensor._version, tensor.dtype) for tensor in behind]
    return (context, lower, *versions)
