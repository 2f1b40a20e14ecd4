"""Which rows of a memory a query reads: objects that are asked before the softmax."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hma.memory.blocks import MOST_SCORES
from hma.memory.projected import Projected


@dataclass(frozen=True)
class BestRows:
    """The ``k`` rows with the largest scores, searched exactly, one block of rows at a time.

    Memory stays flat however many rows there are. With ``k`` of at least the number of rows the
    read is the full one.

    Args:
        k: Rows that each query reads, for each head.
        block: Rows that are scored at once.

    Example:
        >>> keys = torch.tensor([[[0.0], [3.0], [1.0], [2.0]]])  # one head, four rows
        >>> BestRows(k=2, block=3)(torch.ones(1, 1, 1), Projected(keys, keys))
        tensor([[[1, 3]]])
    """

    k: int
    block: int = 65536

    def __post_init__(self) -> None:
        for name in ("k", "block"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")

    @torch.no_grad()
    def __call__(self, queries: Tensor, memory: Projected) -> Tensor | None:
        """Return the places of the best rows, ``(H, B, K)``, best first; None for all rows."""
        if self.k >= memory.keys.shape[1]:
            return None
        alike = memory.bias is None or memory.bias.dim() == 1
        at_once = max(1, MOST_SCORES // min(self.block, memory.keys.shape[1]))
        size = at_once if alike else queries.shape[1]
        parts = [self._best(some, memory) for some in torch.split(queries, size, dim=1)]
        return torch.cat(parts, dim=1)

    def _best(self, queries: Tensor, memory: Projected) -> Tensor:
        heads, count = queries.shape[:2]
        best = queries.new_empty(heads, count, 0)  # (H, B, up to K)
        places = torch.empty(heads, count, 0, dtype=torch.long, device=queries.device)
        for first in range(0, memory.keys.shape[1], self.block):
            part = slice(first, first + self.block)
            bias = None if memory.bias is None else memory.bias[..., part]
            scores = Projected(memory.keys[:, part], memory.values[:, part], bias).scores(queries)
            found = scores.topk(min(self.k, scores.shape[-1]), dim=-1)
            best = torch.cat([best, found.values], dim=-1)
            places = torch.cat([places, found.indices + first], dim=-1)
            kept = best.topk(min(self.k, best.shape[-1]), dim=-1)
            best, places = kept.values, places.gather(-1, kept.indices)
        return places
