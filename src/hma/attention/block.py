"""The attention block behind both memory reads (Eq. 2 of the paper)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hma.attention.config import Scale
from hma.memory.distributed import gather_rows, own_rows
from hma.memory.projected import Chosen, Nearest, Projected, Weights, split_columns


class Around(NamedTuple):
    """The rows that are asked about, as those who are asked see them.

    Shape:
        - ``own``: each query as a row that it sees itself, ``(H, B, D / H)``.
        - ``batch``: rows that every query sees, of all processes; None where it sees only itself.
        - ``alone``: of bool, ``()``: whether it sees only itself after all.
    """

    own: Projected
    batch: Projected | None
    alone: Tensor | None


class MemoryRead(nn.Module):
    r"""Let each token attend to itself or its batch, and to a shared memory.

    .. math:: H = Q + \mathrm{MultiHA}(\mathrm{LN}_q(Q), \mathrm{LN}_m(M)), \quad
        \mathrm{out} = H + \mathrm{FF}(\mathrm{LN}_h(H))

    Heads are contiguous slices of the token, concatenated without an output projection.
    Memory rows are projected once per call of :meth:`project`, never once per query.

    Args:
        dim: Width of a token, ``D``.
        num_heads: Attention heads, ``H``.
        dropout: Dropout on the attention output and inside the feed-forward part.
        scale: Divide scores by the root of the 'head' width ``D / H`` or of the 'token' ``D``.
        top_k: Keep only the largest weights of each query and head; None keeps all.
        gather_batch: In training under ``torch.distributed``, neighbours are the rows of all ranks.
        feed_forward: The hidden layer is as many times as wide as a token.

    Shape:
        - tokens ``(B, D)``, memory of any number of rows; output ``(B, D)``.

    Example:
        >>> read = MemoryRead(dim=8, num_heads=2)
        >>> memory = read.project(torch.randn(5, 8))
        >>> tokens, weights = read(torch.randn(3, 8), memory, neighbours=False)
        >>> tokens.shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        dropout: float = 0.1,
        scale: Scale = "head",
        top_k: int | None = None,
        gather_batch: bool = True,
        feed_forward: int = 4,
    ) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"num_heads must divide dim, got {num_heads} and {dim}")
        self.dim = dim
        self.num_heads = num_heads
        # DIFF[paper 3, Eq. 1]: the paper divides by sqrt(d_k), the width of one head; the
        # released code divides by the width of the whole token, kept as scale="token".
        self.scale = (dim // num_heads if scale == "head" else dim) ** -0.5
        self.top_k = top_k
        self.gather_batch = gather_batch
        self.norm_queries = nn.LayerNorm(dim, eps=1e-12)
        self.norm_memory = nn.LayerNorm(dim, eps=1e-12)
        self.norm_hidden = nn.LayerNorm(dim, eps=1e-12)
        self.to_queries = nn.Linear(dim, dim)
        self.to_keys_values = nn.Linear(dim, 2 * dim)
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, feed_forward * dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(feed_forward * dim, dim),
            nn.Dropout(dropout),
        )

    def project(self, tokens: Tensor, bias: Tensor | None = None) -> Projected:
        """Turn memory rows ``(N, D)`` into keys and values."""
        return self._rows(tokens, bias)

    def _rows(self, tokens: Tensor, bias: Tensor | None = None) -> Projected:
        keys, values = self.to_keys_values(self.norm_memory(tokens)).chunk(2, dim=-1)  # (N, D) each
        return Projected(self._split(keys), self._split(values), bias)

    def forward(
        self,
        tokens: Tensor,
        memory: Projected | None,
        *,
        neighbours: bool,
        nearest: Nearest | None = None,
        alone: Tensor | None = None,
        weights: bool = True,
    ) -> tuple[Tensor, Weights | None]:
        """Return the tokens after the read and the attention that led there.

        Args:
            tokens: Queries, ``(B, D)``.
            memory: What :meth:`project` made of the memory's rows, if there is any.
            neighbours: Show each row its whole batch, not itself alone.
            nearest: Chooses the memory rows that a query reads; None for all.
            alone: Whether to hide the neighbours after all, a tensor, so that nothing waits for it.
            weights: Whether the attention is asked for; a read that has it anyway gives it.
        """
        own = self._rows(tokens)
        batch = own if neighbours else None
        if neighbours and self.training and self.gather_batch:
            batch = Projected(gather_rows(own.keys, dim=1), gather_rows(own.values, dim=1))
        queries = self._split(self.to_queries(self.norm_queries(tokens))) * self.scale
        places = None if memory is None or nearest is None else nearest(queries, memory)
        seen = memory if memory is None or places is None else memory.at(places)
        around = Around(own, batch, alone)
        mixed, found = self._attend(queries, around, seen, weights)  # (H, B, D/H)
        mixed = mixed.transpose(0, 1).flatten(1)  # (B, D)
        # DIFF[paper 3, Eq. 2]: printed as V + ..., which has one row per memory entry; the
        # residual that fits is the query.
        hidden = tokens + self.dropout(mixed)
        shares = None if found is None else Weights(found.own, found.memory, places)
        return hidden + self.feed_forward(self.norm_hidden(hidden)), shares

    def _attend(
        self, queries: Tensor, around: Around, memory: Projected | Chosen | None, weights: bool
    ) -> tuple[Tensor, Weights | None]:
        """Return the mixture of values ``(H, B, D/H)`` and the weights that made it."""
        if around.batch is None:
            own = around.own
            scores = (queries * own.keys).sum(dim=-1, keepdim=True)  # (H, B, 1)
        else:
            own = around.batch
            if around.alone is not None:
                hidden = around.alone & ~self._own_rows(around)
                none = torch.zeros(hidden.shape, dtype=own.keys.dtype, device=hidden.device)
                hiding = none.masked_fill(hidden, float("-inf"))  # (B, all)
                own = Projected(own.keys, own.values, hiding)
            scores = own.scores(queries)  # (H, B, B)
        seen = scores.shape[-1]
        if memory is not None:
            scores = torch.cat([scores, memory.scores(queries)], dim=-1)  # (H, B, seen + K)
        shares = self._keep_largest(scores.softmax(dim=-1)).to(own.values.dtype)
        found = Weights(shares, None)
        if memory is not None:
            found = Weights(*split_columns(shares, [seen, shares.shape[-1] - seen]))
        mixed = found.own * own.values if around.batch is None else own.mix(found.own)
        if memory is not None and found.memory is not None:
            mixed = mixed + memory.mix(found.memory)
        return mixed, found

    def _own_rows(self, around: Around) -> Tensor:
        """Return which row of the batch is which of the queries, ``(B, all)`` of bool."""
        keys = around.own.keys
        gathered = self.training and self.gather_batch
        return own_rows(keys.shape[1], keys.device, gathered=gathered)

    def _keep_largest(self, weights: Tensor) -> Tensor:
        if self.top_k is None or self.top_k >= weights.shape[-1]:
            return weights
        kept = weights.topk(self.top_k, dim=-1)
        return torch.zeros_like(weights).scatter(-1, kept.indices, kept.values)

    def _split(self, rows: Tensor) -> Tensor:
        width = self.dim // self.num_heads
        heads = rows.view(rows.shape[0], self.num_heads, width)  # not len(): exporters would fix it
        return heads.transpose(0, 1)  # (N, D) -> (H, N, D/H)
