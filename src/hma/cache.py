"""A projection kept for as long as the tensors behind it stay as they were."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from hma.memory import Memories

Key = tuple[object, ...]


class ProjectionCache:
    """Remember the projected memories until a weight, a queue row or the context changes.

    Change is seen by each tensor's storage and version counter, so asking costs microseconds
    and never waits for the device.
    """

    def __init__(self) -> None:
        self._held: tuple[Key, Memories] | None = None

    def get(
        self, context: str, behind: Iterable[Tensor], build: Callable[[], Memories]
    ) -> Memories:
        """Return what ``build`` gives for ``behind``, building only where something changed."""
        behind = list(behind)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in behind):
            return build()  # gradients must reach the memory
        key = _key(context, behind)
        if self._held is None or self._held[0] != key:
            # a tensor born in inference mode could never again meet one that needs a gradient
            with torch.inference_mode(False), torch.no_grad():
                self._held = key, build()
        return self._held[1]

    def held(self, context: str) -> Memories | None:
        """Return what is held for ``context``, unchecked: for compilers, which see constants."""
        if self._held is not None and self._held[0][0] == context:
            return self._held[1]
        return None

    def clear(self) -> None:
        """Forget the projection."""
        self._held = None


def _key(context: str, behind: list[Tensor]) -> Key:
    device = behind[0].device.type
    lower = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    versions = [(tensor.data_ptr(), tensor._version, tensor.dtype) for tensor in behind]
    return (context, lower, *versions)
