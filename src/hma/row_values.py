"""The values of the read by distance: what rows near a query add to the features of the head."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, relu

from hma.attention import Chosen, Projected
from hma.config import HMAConfig
from hma.targets import Target

MOST_APART = 96
"""Rows of a group whose distances to a query are looked at one by one: those that count most. Each
costs as much as a key is wide, for every query; the labels of all others count all the same."""


class RowValues(nn.Module):
    r"""Add what rows say of a query to its features, then think it over.

    .. math:: h = f + g \sum_j w_j (W_y y_j + T(k - k_j)), \quad
        \mathrm{out} = h + \mathrm{FF}(\mathrm{LN}(h))

    :math:`T` is Linear, ReLU, Dropout and a Linear without bias, as in TabR (arXiv 2307.14338).
    The gate :math:`g` and the last layer of FF start at 0, so the start is :math:`f`. What is
    linear is done after the sum over rows, or once for each row instead of for each pair.

    Args:
        votes: Width of a ballot, ``V``.
        dim: Width of what the head reads, ``F``.
        key_dim: Width of a key, ``K``, and of the hidden layer of ``T``.
        feed_forward: The hidden layer of FF is as many times as wide as a key, so that both cost
            little beside any backbone.
        dropout: On both hidden layers.

    Example:
        >>> values = RowValues(votes=3, dim=8, key_dim=4)
        >>> rows = Projected(torch.randn(1, 5, 4), torch.eye(3)[[0, 1, 2, 0, 1]][None])
        >>> shares = torch.full((1, 2, 5), 0.2)
        >>> features, keys = torch.randn(2, 8), torch.randn(2, 4)
        >>> torch.equal(values(features, keys, rows.mixed(shares)[0], [rows], [shares]), features)
        True
    """

    def __init__(
        self, votes: int, dim: int, key_dim: int, feed_forward: int = 4, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.of_labels = nn.Linear(votes, dim, bias=False)
        self.apart = nn.Linear(key_dim, key_dim)
        self.dropout = nn.Dropout(dropout)
        self.of_apart = nn.Linear(key_dim, dim, bias=False)
        self.gate = nn.Parameter(torch.zeros(()))
        self.norm = nn.LayerNorm(dim)
        last = nn.Linear(feed_forward * key_dim, dim)
        for weight in last.parameters():
            nn.init.zeros_(weight)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, feed_forward * key_dim), nn.GELU(), nn.Dropout(dropout), last
        )

    def forward(
        self,
        features: Tensor,
        keys: Tensor,
        votes: Tensor,
        rows: Sequence[Projected | Chosen],
        shares: Sequence[Tensor],
    ) -> Tensor:
        """Return what the head is to read, ``(B, F)``.

        Args:
            features: What it would read otherwise, ``(B, F)``.
            keys: Of the queries, ``(B, K)``.
            votes: Sums of the rows' ballots by their shares, ``(B, V)``.
            rows: Groups of rows.
            shares: What each row counts, ``(1, B, N)`` for each group.
        """
        queries = self.apart(keys)  # (B, K)
        said = self.of_labels(votes)  # (B, F)
        for group, share in zip(rows, shares, strict=True):
            said = said + self.of_apart(self._hidden(queries, group, share[0]))
        mixed: Tensor = features + self.gate * said
        result: Tensor = mixed + self.feed_forward(self.norm(mixed))
        return result

    def _hidden(self, queries: Tensor, rows: Projected | Chosen, shares: Tensor) -> Tensor:
        """Return the hidden layer of ``T``, summed over rows by their shares, ``(B, K)``."""
        keys, weight = rows.keys[0], self.apart.weight  # (N, K), or (B, N, K) where chosen
        shared = keys.dim() == 2
        early = self.training and shared  # a step meets few rows, an answer few queries
        keys = linear(keys, weight) if early else keys
        if shares.shape[1] > MOST_APART:
            shares, places = shares.topk(MOST_APART, dim=1)  # (B, N) -> (B, n)
            at = places[:, :, None].expand(-1, -1, keys.shape[-1])
            keys = embedding(places, keys) if shared else keys.gather(1, at)  # (B, n, K)
        keys = keys if early else linear(keys, weight)
        hidden = self.dropout(relu(queries[:, None] - keys))  # (B, n, K)
        summed: Tensor = (shares[:, None].to(hidden.dtype) @ hidden)[:, 0]
        return summed


def row_values(target: Target, dim: int, config: HMAConfig) -> RowValues | None:
    """Return the values of a configuration beside a head that reads ``dim`` features, if any."""
    if not config.values:
        return None
    votes = target.ballots(target.unknown(0)).shape[1]
    return RowValues(votes, dim, config.key_dim, config.feed_forward, config.dropout)
