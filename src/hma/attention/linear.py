"""Attention whose cost does not grow with the memory: positive random features (FAVOR+)."""

import torch
from torch import Tensor

from hma.attention.block import Around, MemoryRead
from hma.attention.config import Scale
from hma.memory.projected import Chosen, Projected, Weights, split_columns

HIDDEN = -3e4
"""Score of a row that nobody sees; finite, so that a memory of such rows weighs nothing."""


class LinearRead(MemoryRead):
    r"""Read a memory through random directions, after Performer (arXiv 2009.14794).

    .. math:: e^{q \cdot k} \approx \frac1R \sum_r e^{w_r \cdot q - |q|^2 / 2}
        e^{w_r \cdot k - |k|^2 / 2}

    A softmax over rows so becomes one over directions: direction ``r`` holds the mixture of
    values that it sees, ``softmax_n(w_r k_n - |k_n|^2 / 2)``, and a query takes the mixture of
    directions. Of memory rows a :class:`hma.memory.projected.Projected` of ``R`` rows is kept,
    whatever their number. All is done with logarithms, so nothing underflows.

    Args:
        features: Random directions, ``R``; orthogonal within each block of ``D / H``.
        others: As for :class:`hma.attention.block.MemoryRead`, which has ``top_k`` besides.

    Example:
        >>> read = LinearRead(dim=8, num_heads=2, features=32)
        >>> memory = read.project(torch.randn(500, 8))
        >>> memory.summary.values.shape
        torch.Size([2, 32, 4])
    """

    directions: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        features: int,
        dropout: float = 0.1,
        scale: Scale = "head",
        gather_batch: bool = True,
        feed_forward: int = 4,
    ) -> None:
        super().__init__(
            dim, num_heads, dropout, scale, gather_batch=gather_batch, feed_forward=feed_forward
        )
        like = self.to_queries.weight
        drawn = orthogonal_directions(features, dim // num_heads)  # (R, D/H)
        self.register_buffer("directions", drawn.to(like))

    def project(self, tokens: Tensor, bias: Tensor | None = None) -> Projected:
        """Turn memory rows ``(N, D)`` into keys and values, and these into a summary."""
        rows = self._rows(tokens, bias)
        return Projected(rows.keys, rows.values, rows.bias, self.summarised(rows))

    def summarised(self, rows: Projected) -> Projected:
        """Return each direction as a row ``(H, R, D/H)``, its bias ``(H, 1, R)``."""
        seen = self._seen(rows)
        keys = self.directions * self.scale**-0.5  # queries carry the whole scale already
        values = seen.softmax(dim=-1).to(rows.values.dtype) @ rows.values  # (H, R, D/H)
        return Projected(keys.expand_as(values), values, seen.logsumexp(dim=-1)[:, None])

    def _seen(self, rows: Projected) -> Tensor:
        """Return the logarithm of each row's features, ``(H, R, N)``."""
        squares = rows.keys.square().sum(dim=-1)[:, None]  # (H, 1, N)
        along = (self.directions * self.scale**0.5) @ rows.keys.transpose(1, 2)
        seen: Tensor = along - self.scale / 2 * squares
        if rows.bias is not None:
            seen = seen + rows.bias.clamp(min=HIDDEN)
        return seen

    def _attend(
        self, queries: Tensor, around: Around, memory: Projected | Chosen | None, weights: bool
    ) -> tuple[Tensor, Weights | None]:
        if isinstance(memory, Chosen):
            raise ValueError(
                "nearest must be None for attention='linear', which reads no single rows; take "
                "attention='exact', or set model.real.nearest = None"
            )
        if memory is not None and memory.bias is not None and memory.bias.dim() == 2:
            return self._hiding_for_each(queries, around, memory)
        seen = self._summaries(around, memory)
        scores = {name: part.scores(queries) for name, part in seen.items()}
        if around.batch is None or around.alone is not None:
            scores["own"] = self._of_itself(queries, around.own)
        if around.alone is not None:
            scores["own"] = scores["own"] + HIDDEN * ~around.alone
            scores["batch"] = scores["batch"] + HIDDEN * around.alone
        together = torch.cat(list(scores.values()), dim=-1).softmax(dim=-1)
        sizes = [part.shape[-1] for part in scores.values()]
        parts = split_columns(together.to(around.own.values.dtype), sizes)
        shares = dict(zip(scores, parts, strict=True))
        mixed = [part.mix(shares[name]) for name, part in seen.items()]
        if "own" in shares:
            mixed.append(shares["own"] * around.own.values)
        found = self._of_all_rows(shares, around, memory) if weights else None
        return torch.stack(mixed).sum(dim=0), found

    def _summaries(self, around: Around, memory: Projected | None) -> dict[str, Projected]:
        summaries = {} if around.batch is None else {"batch": self.summarised(around.batch)}
        if memory is not None:
            known = memory.summary
            summaries["memory"] = self.summarised(memory) if known is None else known
        return summaries

    def _of_itself(self, queries: Tensor, own: Projected) -> Tensor:
        """Return how well each query fits itself, through the same directions, ``(H, B, 1)``."""
        along = queries @ (self.directions * self.scale**-0.5).T  # (H, B, R)
        fits: Tensor = along + self._seen(own).transpose(1, 2)
        return fits.logsumexp(dim=-1, keepdim=True)

    def _of_all_rows(
        self, shares: dict[str, Tensor], around: Around, memory: Projected | None
    ) -> Weights:
        """Return the weights of rows that the weights of directions come to."""
        own = shares.get("own")
        if around.batch is not None:
            batch = self._of_rows(shares["batch"], around.batch)
            own = batch if own is None else batch + own * self._own_rows(around)
        assert own is not None
        return Weights(own, None if memory is None else self._of_rows(shares["memory"], memory))

    def _of_rows(self, shares: Tensor, rows: Projected) -> Tensor:
        """Return what each row had of the directions' weights, ``(H, B, R)`` to ``(H, B, N)``."""
        return shares @ self._seen(rows).softmax(dim=-1).to(shares.dtype)

    def _hiding_for_each(
        self, queries: Tensor, around: Around, memory: Projected
    ) -> tuple[Tensor, Weights]:
        """Read a memory of which each query sees rows of its own: no one summary serves them."""
        assert memory.bias is not None
        _, found = self._attend(queries, around, Projected(memory.keys, memory.values), True)
        assert found is not None
        assert found.memory is not None
        left = found.memory * memory.bias.exp()  # (H, B, N): what is hidden weighs nothing
        total = found.own.sum(dim=-1, keepdim=True) + left.sum(dim=-1, keepdim=True)
        shares = Weights(found.own / total, left / total)
        batch = around.batch
        own = shares.own * around.own.values if batch is None else batch.mix(shares.own)
        return own + memory.mix(left / total), shares


def orthogonal_directions(count: int, width: int, seed: int = 0) -> Tensor:
    """Return directions ``(R, width)`` as of a normal distribution, orthogonal block by block.

    Example:
        >>> block = orthogonal_directions(count=5, width=3)[:3]
        >>> torch.allclose(block @ block.T, torch.diag(block.square().sum(dim=1)))
        True
    """
    generator = torch.Generator("cpu").manual_seed(seed)  # the same in every process
    blocks = -(-count // width)
    shape = (blocks, width, width)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    lengths = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu").norm(dim=2)
    turned, upper = torch.linalg.qr(drawn)
    turned = turned * upper.diagonal(dim1=1, dim2=2).sign()[:, None]  # every turn equally likely
    rows: Tensor = turned.transpose(1, 2) * lengths[..., None]
    return rows.flatten(0, 1)[:count]
