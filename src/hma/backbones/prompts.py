"""Learned tokens beside those of an image, for a Transformer that otherwise stays as it is."""

from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

PromptKind = Literal["first", "deep"]
SPREAD = 0.02
"""Standard deviation of the tokens at the start."""


class Prompts(nn.Module):
    """Run tokens through the blocks of a Transformer together with learned ones.

    Args:
        kind: ``"first"`` appends the learned tokens before the first block and carries them
            through (prompt-p); ``"deep"`` appends fresh ones before every block and drops them
            after it (prompt-a).
        count: How many at a time, ``P``.
        depth: Number of blocks.
        dim: Width of a token, ``F``.

    Shape:
        - tokens: ``(B, T, F)``; output: ``(B, T + P, F)`` for ``"first"``, ``(B, T, F)`` for
          ``"deep"``; the image's own tokens come first.

    Example:
        >>> blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        >>> deep = Prompts("deep", count=5, depth=2, dim=4)
        >>> deep.tokens.shape, deep(torch.rand(3, 7, 4), blocks).shape
        (torch.Size([2, 5, 4]), torch.Size([3, 7, 4]))
    """

    def __init__(self, kind: PromptKind, count: int, depth: int, dim: int) -> None:
        super().__init__()
        if kind not in get_args(PromptKind):
            raise ValueError(f"prompts must be 'first', 'deep' or None, got {kind!r}")
        if count < 1:
            raise ValueError(f"prompt_tokens must be at least 1, got {count}")
        self.kind = kind
        self.count = count
        sets = 1 if kind == "first" else depth
        self.tokens = nn.Parameter(torch.empty(sets, count, dim))
        nn.init.normal_(self.tokens, std=SPREAD)

    def forward(self, tokens: Tensor, blocks: Iterable[nn.Module]) -> Tensor:
        """Return what the blocks make of ``tokens``."""
        rows, own = tokens.shape[:2]
        for number, block in enumerate(blocks):
            if self.kind == "deep" or number == 0:
                learned = self.tokens[number].expand(rows, -1, -1)  # (P, F) -> (B, P, F)
                tokens = torch.cat([tokens[:, :own], learned], dim=1)  # (B, T + P, F)
            tokens = block(tokens)
        return tokens[:, :own] if self.kind == "deep" else tokens

    def extra_repr(self) -> str:
        """Show kind and number."""
        return f"kind={self.kind!r}, count={self.count}"
