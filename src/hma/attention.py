"""The attention block behind both memory reads (Eq. 2 of the paper)."""

from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from hma.config import Scale
from hma.distributed import gather_rows, own_rows


class Projected(NamedTuple):
    """Memory rows as one read sees them, shared by every query of a batch.

    Shape:
        - ``keys``, ``values``: ``(H, N, D / H)``.
        - ``bias``: ``(N,)`` or ``(B, N)``, added to the scores: 0 to see a row, minus infinity
          not to.
        - ``summary``: what a linear read knows of the rows, see :mod:`hma.linear_attention`.
    """

    keys: Tensor
    values: Tensor
    bias: Tensor | None = None
    summary: "Projected | None" = None

    def scores(self, queries: Tensor) -> Tensor:
        """Return how well each query fits each row, ``(H, B, D/H)`` to ``(H, B, N)``."""
        scores = queries @ self.keys.transpose(1, 2)
        if self.bias is not None:
            scores += self.bias
        return scores

    def mixed(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of values, ``(H, B, N)`` to ``(H, B, D/H)``."""
        return weights @ self.values

    def hiding(self, hidden: Tensor) -> "Projected":
        """Return the rows without the first ones where ``hidden``: ``(K,)``, or ``(B, K)`` each."""
        bias = self.keys.new_zeros(self.keys.shape[1]) if self.bias is None else self.bias
        bias = bias.expand(*hidden.shape[:-1], -1).clone()
        bias[..., : hidden.shape[-1]].masked_fill_(hidden, float("-inf"))
        return self._replace(bias=bias, summary=None)

    def at(self, places: Tensor) -> "Chosen":
        """Return the rows that each query of each head was given, ``(H, B, K)``."""
        heads = torch.arange(len(self.keys), device=places.device)[:, None, None]
        bias = None if self.bias is None else self.bias[places]
        return Chosen(self.keys[heads, places], self.values[heads, places], bias)


class Chosen(NamedTuple):
    """Memory rows of which each query sees ``K`` of its own.

    Shape:
        - ``keys``, ``values``: ``(H, B, K, D / H)``; ``bias``: ``(H, B, K)``.
    """

    keys: Tensor
    values: Tensor
    bias: Tensor | None

    def scores(self, queries: Tensor) -> Tensor:
        """Return how well each query fits each of its rows, ``(H, B, K)``."""
        scores = (self.keys @ queries[..., None])[..., 0]
        return scores if self.bias is None else scores + self.bias

    def mixed(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of values, ``(H, B, K)`` to ``(H, B, D/H)``."""
        return (weights[:, :, None] @ self.values)[:, :, 0]


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


class Nearest(Protocol):
    """Decides which memory rows each query reads, before the softmax; see :mod:`hma.retrieval`."""

    def __call__(self, queries: Tensor, memory: Projected) -> Tensor | None:
        """Return places of rows, ``(H, B, K)``, for queries ``(H, B, D/H)``; None for all rows."""
        ...


class Weights(NamedTuple):
    """How a read spent its attention.

    Shape:
        - ``own``: ``(H, B, B)`` over the batch, or ``(H, B, 1)`` where a row sees only itself.
        - ``memory``: ``(H, B, K)``; with ``own`` it sums to 1 over the last axis.
        - ``places``: ``(H, B, K)``, which memory rows these are; None for all, in order.
    """

    own: Tensor
    memory: Tensor | None
    places: Tensor | None = None

    def over_rows(self, count: int) -> Tensor:
        """Return the share of each of ``count`` memory rows, mean over heads, ``(B, N)``."""
        if self.memory is None:
            return self.own.new_zeros(self.own.shape[1], count).float()
        memory = self.memory.float()
        if self.places is None:
            return memory.mean(dim=0)  # (H, B, N) -> (B, N)
        shares = memory.new_zeros(memory.shape[1], count)
        for places, weights in zip(self.places, memory, strict=True):
            shares.scatter_add_(1, places, weights / len(memory))
        return shares


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
            found = Weights(*parted(shares, [seen, shares.shape[-1] - seen]))
        mixed = found.own * own.values if around.batch is None else own.mixed(found.own)
        if memory is not None and found.memory is not None:
            mixed = mixed + memory.mixed(found.memory)
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


def parted(weights: Tensor, sizes: list[int]) -> list[Tensor]:
    """Return columns in groups of ``sizes``, ``(..., N)`` to ``(..., size)`` each."""
    if torch.compiler.is_compiling():  # inductor of torch 2.13 gets gradients of a split wrong
        ends = list(accumulate(sizes))
        return [weights[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]
    # not slices: the backward of each would fill a whole tensor with zeros
    return list(torch.split(weights, sizes, dim=-1))
