"""The read by distance: rows near a query vote for their labels, and the vote joins the logits."""

import math

import torch
from torch import Tensor, nn

from hma.added_classes import completed
from hma.attention import Projected, Weights
from hma.ballot import Ballot, Votes, joined_ballots
from hma.config import HMAConfig
from hma.distributed import gather_rows
from hma.keyed_rows import KeyedRows
from hma.labelled_rows import Group, LabelledRows
from hma.many_rows import MOST_SCORES, in_blocks, many
from hma.memory import LearnedRows, Memories, StoredRows
from hma.row_values import RowValues, row_values
from hma.targets import Target

NOBODY = -1000.0
"""Score of a row that is never there: it gets the vote where all others are hidden."""
QUERIES_AT_ONCE = 256
"""Queries that are answered at once where many rows are stored and some are chosen."""
MOST_SHARPENED = 4.0
"""Bound of the learned logarithm of the sharpness, so that it cannot run away."""


class VotingRead(nn.Module):
    r"""Let rows vote for their labels, the nearer the more.

    .. math:: k = W_k \mathrm{LN}(f), \quad w_j = \mathrm{softmax}_j(-e^t |k - k_j|^2 / \sqrt{K}),
        \quad z = g \log \sum_j w_j y_j

    The answer is :math:`z` added to the logits of the head, or both as probabilities, mixed:
    :math:`(1 - s)\, p_{head} + s \sum_j w_j y_j`, so that a row's part in it is :math:`s w_j`.

    One key serves queries, stored rows and slots. Squares are multiplied out, so a row is scored
    by a product with its key and a bias of its own: :class:`hma.attention.Projected` holds both.

    Args:
        target: What a label is; it counts the votes.
        feature_dim: Width of the features, ``F``.
        key_dim: Width of a key, ``K``.
        gate: Where ``g`` starts; 0 starts as if there were no memory.
        dropout: Share of the features that a key does without in training.
        first: Feature that keys begin with; those before are of another view, for the head alone.
        mixed: Answer beside the head, each with its share, instead of adding to its logits. What
            is learned here is then learned apart, see :mod:`hma.key_learning`; until then the
            share is 0 and the head answers alone.
        values: What rows add to the features of the head; None for nothing.

    Example:
        >>> from hma.targets import Classes
        >>> read = VotingRead(Classes(3), feature_dim=8, key_dim=4)
        >>> rows = read.project(torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1]))
        >>> votes = read(torch.randn(2, 8), [rows])
        >>> votes.logits.shape, votes.shares[0].shape
        (torch.Size([2, 3]), torch.Size([1, 2, 5]))
    """

    share: Tensor | None

    def __init__(
        self,
        target: Target,
        feature_dim: int,
        key_dim: int,
        gate: float = 1.0,
        dropout: float = 0.0,
        *,
        first: int = 0,
        mixed: bool = False,
        values: RowValues | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.first = first
        self.norm = nn.LayerNorm(feature_dim - first)
        self.dropout = nn.Dropout(dropout)
        self.to_keys = nn.Linear(feature_dim - first, key_dim)
        self.log_sharpness = nn.Parameter(torch.zeros(()))
        self.gate = nn.Parameter(torch.tensor(gate))
        self.values = values
        self.register_buffer("share", torch.tensor(0.0) if mixed else None)
        if mixed:
            self.requires_grad_(False)

    @torch.no_grad()
    def restart(self) -> None:
        """Give keys and sharpness a first value, as a new read has them."""
        self.norm.reset_parameters()
        self.to_keys.reset_parameters()
        self.log_sharpness.zero_()

    @property
    def sharpness(self) -> Tensor:
        """What squared distances are multiplied with."""
        bounded = self.log_sharpness.clamp(-MOST_SHARPENED, MOST_SHARPENED)
        return bounded.exp() / math.sqrt(self.to_keys.out_features)

    def keys(self, features: Tensor, kept: Tensor | None = None) -> Tensor:
        """Return where features lie, ``(N, F)`` to ``(N, K)``.

        Args:
            features: As the backbone made them.
            kept: What each of those that keys are made of counts, instead of dropout.
        """
        normalised = self.norm(features[:, self.first :])
        keys: Tensor = self.to_keys(self.dropout(normalised) if kept is None else normalised * kept)
        return keys

    def project(
        self, features: Tensor, labels: Tensor, bias: Tensor | None = None
    ) -> Projected | LabelledRows:
        """Turn rows into keys, ballots and biases.

        Args:
            features: ``(N, F)``.
            labels: Stored labels ``(N, ...)``.
            bias: ``(N,)``, minus infinity for a row that is not to vote.
        """
        return self.at(in_blocks(self.keys, features), labels, bias)

    def at(
        self, keys: Tensor, labels: Tensor, bias: Tensor | None = None
    ) -> Projected | LabelledRows:
        """Return rows whose keys ``(N, K)`` are known; many of them without their ballots."""
        near = -self.sharpness * in_blocks(lambda part: part.square().sum(dim=1), keys)  # (N,)
        bias = near if bias is None else near + bias
        if many(len(keys)):
            return LabelledRows(Projected(keys[None], keys[None], bias), labels, self.target)
        ballots = self.target.ballots(labels).to(keys.dtype)
        return Projected(keys[None], ballots[None], bias)

    def forward(self, features: Tensor, rows: list[Group], keys: Tensor | None = None) -> Votes:
        """Return what rows say.

        Args:
            features: Queries, ``(B, F)``.
            rows: Groups of rows; all of them vote together.
            keys: Keys of the queries, where they are known.
        """
        keys = self.keys(features) if keys is None else keys
        queries = self.queries(keys)  # (1, B, K)
        apart = self.sharpness * keys.square().sum(dim=1)[:, None]  # (B, 1)
        scores = [group.scores(queries) - apart for group in rows]
        nobody = keys.new_full((1, len(keys), 1), NOBODY)
        weights = torch.cat([nobody, *scores], dim=-1).softmax(dim=-1)
        _, *shares = torch.split(weights, [1, *(one.shape[-1] for one in scores)], dim=-1)
        votes = [group.mixed(share) for group, share in zip(rows, shares, strict=True)]
        width = self.target.ballots(self.target.unknown(0)).shape[1]
        counted = torch.stack(votes).sum(dim=0)[0] if votes else keys.new_zeros(len(keys), width)
        mixed = None
        if self.values is not None:
            own = features[:, : self.first or None]  # what the head reads
            mixed = self.values(own, keys, counted, rows, shares)
        return Votes(self.gate * self.target.tallied(counted), shares, mixed)

    def queries(self, keys: Tensor) -> Tensor:
        """Return keys as queries of :class:`hma.attention.Projected`, ``(1, B, K)``."""
        return 2 * self.sharpness * keys[None]

    # ------------------------------------------------------------ over the two memories

    def memories(
        self,
        stored: StoredRows | None,
        learned: LearnedRows | None,
        labels_of: Tensor | None = None,
    ) -> Memories:
        """Return stored rows and slots as a prediction reads them.

        Args:
            stored, learned: The memories.
            labels_of: Places whose labels stored rows take, ``(M,)``; their own if not given.
        """
        rows = slots = None
        if stored is not None:
            queue = stored.queue
            labels = queue.labels if labels_of is None else queue.labels[labels_of]
            rows = self.project(queue.features, labels, stored.unseen())
        if learned is not None and learned.slots is not None:
            slots = self.project(learned.slots, learned.labels)
        return Memories(rows, slots)

    def answer(
        self,
        features: Tensor,
        memories: Memories,
        stored: StoredRows | None,
        *,
        weights: bool = True,
    ) -> Ballot:
        """Return the vote of all rows, or of those that ``stored.nearest`` chooses.

        Where rows are many, a few queries are answered at a time, and shares of rows are held for
        all of them only if ``weights`` are asked for.
        """
        rows = memories.real
        if not isinstance(rows, LabelledRows) or rows.differ:
            return self._answer(features, memories, stored)
        chosen = stored is not None and stored.nearest is not None
        size = QUERIES_AT_ONCE if chosen else max(1, MOST_SCORES // len(rows.labels))
        parts = [self._answer(part, memories, stored) for part in torch.split(features, size)]
        return joined_ballots(parts if weights else [one.without_shares() for one in parts])

    def _answer(self, features: Tensor, memories: Memories, stored: StoredRows | None) -> Ballot:
        keys, places = self.keys(features), None
        groups: list[Group] = []  # not list[...](): compilers cannot follow that
        if memories.real is not None and stored is not None:
            group, places = stored.chosen(self.queries(keys), memories.real)
            groups.append(group)
        if memories.synthetic is not None:
            groups.append(memories.synthetic)
        logits, weights, mixed = self(features, groups, keys)
        none = keys.new_zeros(1, len(keys), 1)
        heard = none[0, :, 0] + sum(one[0].sum(dim=-1) for one in weights)
        rows = Weights(none, weights[0], places) if memories.real is not None else None
        others = [Weights(none, one) for one in weights[0 if rows is None else 1 :]]
        return Ballot(logits, heard, rows, others[0] if others else None, mixed)

    def joined(self, headed: Tensor, ballot: Ballot) -> Tensor:
        """Return what the head said and the vote together; where no row voted, the head alone."""
        if self.share is None:
            return headed + ballot.logits
        share = self.share * ballot.heard
        headed = completed(headed, ballot.logits, self.target)
        return self.target.mixed([headed, ballot.logits], torch.stack([1 - share, share]))

    def learn(
        self,
        features: Tensor,
        stored: StoredRows,
        learned: LearnedRows | None,
        *,
        ids: Tensor | None,
        candidates: int | None,
        batch: bool,
        gather: bool,
    ) -> Votes:
        """Return the vote in training: no row meets a copy of itself, if its id is given.

        Rows of the batch stand for their stored copies, with gradients; how they are labelled the
        store knows, so a row that was never remembered does not vote.

        Args:
            features: The batch, ``(B, F)``.
            stored, learned: The memories.
            ids: Sample ids of the batch, ``(B,)``; rows that share one are the same row. None lets
                each meet itself in what is stored, and nobody else of its batch.
            candidates: Stored rows drawn for the step; None takes all.
            batch: Whether rows of the batch vote for each other.
            gather: Whether these are the rows of all processes.
        """
        queue = stored.queue
        assert isinstance(queue, KeyedRows)
        keys, drawn = self.keys(features), queue.drawn(candidates)
        groups: list[Group] = []
        hidden = ~queue.filled()[drawn]
        if ids is not None:
            mates, mate_ids = (gather_rows(keys), gather_rows(ids)) if gather else (keys, ids)
            hidden = hidden | torch.isin(queue.ids[drawn], mate_ids)
            if batch and queue.size:
                places = queue.find(mate_ids)
                unseen = (ids[:, None] == mate_ids) | (places < 0)  # (B, all)
                labels = queue.labels[places.clamp(min=0)]
                groups.append(self.at(mates, labels, hiding(unseen, keys)))
        with torch.no_grad():  # dear, and the batch and the queries teach the keys already
            far = self.keys(queue.features[drawn])
        groups.append(self.at(far, queue.labels[drawn], hiding(hidden, keys)))
        if learned is not None and learned.slots is not None:
            groups.append(self.project(learned.slots, learned.labels))
        votes: Votes = self(features, groups, keys)
        return votes

    def extra_repr(self) -> str:  # noqa: D102
        return f"bounded at {MOST_SHARPENED}"


def voting_read(target: Target, feature_dim: int, key_width: int, config: HMAConfig) -> VotingRead:
    """Return the read of a configuration, its keys made of the last ``key_width`` features."""
    return VotingRead(
        target,
        feature_dim,
        config.key_dim,
        gate=0.0 if config.vote == "gated" else 1.0,
        dropout=config.key_dropout,
        first=feature_dim - key_width if key_width else 0,
        mixed=config.mixes,
        values=row_values(target, feature_dim - key_width, config),
    )


def hiding(hidden: Tensor, like: Tensor) -> Tensor:
    """Return minus infinity where ``hidden``, else 0."""
    return torch.zeros_like(hidden, dtype=like.dtype).masked_fill(hidden, float("-inf"))
