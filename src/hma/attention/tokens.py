"""Tokens: what a row looks like to the memories, features beside a label embedding."""

import torch
from torch import Tensor, nn

from hma.checks import expect_shape
from hma.memory.memories import LearnedRows
from hma.memory.rows import MemoryQueue
from hma.targets import Target


class LabelTokens(nn.Module):
    """Put a label embedding beside features; the last row of the table stands for "unknown".

    A query carries the MASK row, so its own label can never reach the prediction; queue
    rows and slots carry the embedding of their label, as ``target`` makes it from the table.

    Args:
        target: What a label is; None where there are queries only.
        feature_dim: Width of the features, ``F``.
        label_dim: Width of the label embedding, ``L``; 0 leaves labels out.
        width: Width that tokens are read at, ``W``; None for their own.

    Shape:
        - ``mask``: ``(B, F)`` to ``(B, D)``.
        - ``label``: ``(N, F)`` and stored labels ``(N, ...)`` to ``(N, D)``.
        - ``narrowed``: ``(N, D)`` to ``(N, W)``; ``widened`` back.

    Example:
        >>> from hma.targets import Classes
        >>> tokens = LabelTokens(Classes(3), feature_dim=8, label_dim=4)
        >>> tokens.mask(torch.zeros(2, 8)).shape
        torch.Size([2, 12])
    """

    def __init__(
        self, target: Target | None, feature_dim: int, label_dim: int, width: int | None = None
    ) -> None:
        super().__init__()
        self.target = target
        self.feature_dim = feature_dim
        self.label_dim = label_dim
        rows = 1 if target is None else target.table_rows + 1
        self.table = nn.Embedding(rows, label_dim) if label_dim else None
        self.narrow: nn.Linear | None = None
        self.widen: nn.Linear | None = None
        if width is not None:
            self.narrow = nn.Linear(feature_dim + label_dim, width)
            self.widen = nn.Linear(width, feature_dim + label_dim)
            for weight in self.widen.parameters():
                nn.init.zeros_(weight)  # at the start the head sees what the backbone made

    def mask(self, features: Tensor) -> Tensor:
        """Return query tokens: features and the embedding of "unknown"."""
        expect_shape("features", features, None, self.feature_dim)
        if self.table is None:
            return features
        unknown = self.table.weight[-1].expand(features.shape[0], -1)  # (B, L)
        return self.join(features, unknown)  # (B, D)

    def label(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return labelled tokens: features and the embedding of each stored label."""
        if self.table is None:
            return features
        return self.join(features, self.embed(labels))  # (N, D)

    def embed(self, labels: Tensor) -> Tensor:
        """Return the label half of a token, ``(N, ...)`` to ``(N, L)``."""
        if self.table is None:
            return torch.empty(len(labels), 0, device=labels.device)
        assert self.target is not None
        return self.target.embed(labels, self.table.weight)

    def join(self, features: Tensor, embedded: Tensor) -> Tensor:
        """Concatenate the two halves: ``(N, F)`` and ``(N, L)`` to ``(N, D)``."""
        return torch.cat([features, embedded.to(features.dtype)], dim=-1)

    def of_queue(self, queue: MemoryQueue, labels_of: Tensor | None = None) -> Tensor:
        """Return a whole queue as it is read, ``(M, W)``.

        Args:
            queue: Where the rows are kept.
            labels_of: Places whose labels the rows take, ``(M,)``; their own if not given.
        """
        order = slice(None) if labels_of is None else labels_of
        if queue.keeps_label_values:
            rows = self.join(queue.features, queue.label_values[order])  # (M, D)
        else:
            # DIFF[paper 3.2]: the paper stores label embeddings, which go stale while the table
            # trains; we store labels and embed them at every read.
            rows = self.label(queue.features, queue.labels[order])  # (M, D)
        return self.narrowed(rows)

    def of_slots(self, learned: LearnedRows) -> Tensor | None:
        """Return slots as they are read, ``(S, W)``; None where there are none."""
        if learned.slots is None:
            return None
        return self.narrowed(self.label(learned.slots, learned.labels))

    def narrowed(self, tokens: Tensor) -> Tensor:
        """Return tokens as the memories read them, ``(N, D)`` to ``(N, W)``."""
        return tokens if self.narrow is None else self.narrow(tokens)

    def widened(self, tokens: Tensor, read: Tensor) -> Tensor:
        """Return what reading made of tokens: ``(B, D)`` and ``(B, W)`` to ``(B, D)``."""
        return read if self.widen is None else tokens + self.widen(read)
