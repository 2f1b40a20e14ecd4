"""The vote by distance: rows near a query vote for their labels.

:class:`VotingRead` answers. While keys learn, :func:`count_votes` and :func:`project_normalised`
compute the same in fewer operations; a test holds logits and gradients of both together.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, pad

from hma.memory.blocks import MOST_SCORES, in_blocks, is_large
from hma.memory.memories import LearnedRows, Memories, StoredRows
from hma.memory.projected import Group, LabelledRows, Projected, Weights
from hma.targets import Target

NOBODY = -1000.0
"""Score of a row that is never there: it gets the vote where all others are hidden."""
QUERIES_AT_ONCE = 256
"""Queries that are answered at once where many rows are stored and some are chosen."""
MOST_SHARPENED = 4.0
"""Bound of the learned logarithm of the sharpness, so that it cannot run away."""


class Votes(NamedTuple):
    """What groups of rows say.

    Shape:
        - ``logits``: ``(B, outputs)``, to be mixed with those of the head.
        - ``shares``: what each row counts, ``(1, B, N)`` for each group.
    """

    logits: Tensor
    shares: list[Tensor]


class Ballot(NamedTuple):
    """What a vote found.

    Shape:
        - ``logits``: ``(B, outputs)``.
        - ``heard``: ``(B,)``, 1 where rows voted and 0 where there is none.
        - ``stored``, ``learned``: the share of each row that voted; None where there is none, or
          where nobody asked.
    """

    logits: Tensor
    heard: Tensor
    stored: Weights | None
    learned: Weights | None


class VotingRead(nn.Module):
    r"""Let rows vote for their labels, the nearer the more.

    .. math:: k = W_k \mathrm{LN}(f), \quad w_j = \mathrm{softmax}_j(-e^t |k - k_j|^2 / \sqrt{K}),
        \quad p = (1 - s)\, p_{head} + s \sum_j w_j y_j

    so that a row's part in the answer is :math:`s w_j`. One key serves queries, stored rows and
    slots. Squares are multiplied out, so a row is scored by a product with its key and a bias of
    its own: :class:`hma.memory.projected.Projected` holds both. Nothing here learns with the
    backbone: keys, sharpness :math:`e^t` and share :math:`s` are learned apart, see
    :mod:`hma.vote.learning`; until then the share is 0 and the head answers alone.

    Args:
        target: What a label is; it counts the votes.
        feature_dim: Width of the features, ``F``.
        key_dim: Width of a key, ``K``.
        dropout: Share of the features that a key does without while keys are learned.
        first: Feature that keys begin with; those before are of another view, for the head alone.

    Example:
        >>> from hma.targets import Classes
        >>> read = VotingRead(Classes(3), feature_dim=8, key_dim=4)
        >>> rows = read.project(torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1]))
        >>> votes = read(torch.randn(2, 8), [rows])
        >>> votes.logits.shape, votes.shares[0].shape
        (torch.Size([2, 3]), torch.Size([1, 2, 5]))
    """

    share: Tensor

    def __init__(
        self,
        target: Target,
        feature_dim: int,
        key_dim: int,
        dropout: float = 0.0,
        *,
        first: int = 0,
    ) -> None:
        super().__init__()
        self.target = target
        self.first = first
        self.norm = nn.LayerNorm(feature_dim - first)
        self.dropout = nn.Dropout(dropout)
        self.to_keys = nn.Linear(feature_dim - first, key_dim)
        self.log_sharpness = nn.Parameter(torch.zeros(()))
        self.register_buffer("share", torch.tensor(0.0))
        self.requires_grad_(False)

    @torch.no_grad()
    def restart(self, generator: torch.Generator) -> None:
        """Give keys and sharpness a first value, as a new read has them.

        Args:
            generator: Of the CPU; draws all of it.
        """
        self.norm.reset_parameters()
        weight, bias = (torch.empty_like(w, device="cpu") for w in self.to_keys.parameters())
        bound = 1 / math.sqrt(self.to_keys.in_features)
        self.to_keys.weight.copy_(
            nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
        )
        self.to_keys.bias.copy_(bias.uniform_(-bound, bound, generator=generator))
        self.log_sharpness.zero_()

    @property
    def sharpness(self) -> Tensor:
        """What squared distances are multiplied with."""
        bounded = self.log_sharpness.clamp(-MOST_SHARPENED, MOST_SHARPENED)
        return bounded.exp() / math.sqrt(self.to_keys.out_features)

    # ------------------------------------------------------------------- keys and scores

    def keys(self, features: Tensor, kept: Tensor | None = None) -> Tensor:
        """Return where features lie, ``(N, F)`` to ``(N, K)``.

        Args:
            features: As the backbone made them.
            kept: What each of those that keys are made of counts, instead of dropout; ``(E,)`` or
                ``(N, E)``.
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
        if is_large(len(keys)):
            return LabelledRows(Projected(keys[None], keys[None], bias), labels, self.target)
        ballots = self.target.ballots(labels).to(keys.dtype)
        return Projected(keys[None], ballots[None], bias)

    def queries(self, keys: Tensor) -> Tensor:
        """Return keys as queries of :class:`hma.memory.projected.Projected`, ``(1, B, K)``."""
        return 2 * self.sharpness * keys[None]

    def scores(self, keys: Tensor, groups: list[Group]) -> list[Tensor]:
        """Return how near the rows of each group are to each query, ``(1, B, N)`` each.

        That is minus the squared distance times the sharpness, and minus infinity for a row that
        is hidden.

        Args:
            keys: Of the queries, ``(B, K)``.
            groups: Rows that may vote.
        """
        queries = self.queries(keys)  # (1, B, K)
        apart = self.sharpness * keys.square().sum(dim=1)[:, None]  # (B, 1)
        return [group.scores(queries) - apart for group in groups]

    def forward(self, features: Tensor, rows: list[Group], keys: Tensor | None = None) -> Votes:
        """Return what rows say.

        Args:
            features: Queries, ``(B, F)``.
            rows: Groups of rows; all of them vote together.
            keys: Keys of the queries, where they are known.
        """
        keys = self.keys(features) if keys is None else keys
        scores = self.scores(keys, rows)
        nobody = keys.new_full((1, keys.shape[0], 1), NOBODY)
        weights = torch.cat([nobody, *scores], dim=-1).softmax(dim=-1)
        _, *shares = torch.split(weights, [1, *(one.shape[-1] for one in scores)], dim=-1)
        votes = [group.mix(share) for group, share in zip(rows, shares, strict=True)]
        width = self.target.ballot_width
        counted = (
            torch.stack(votes).sum(dim=0)[0] if votes else keys.new_zeros(keys.shape[0], width)
        )
        return Votes(self.target.tally(counted), shares)

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
            features = queue.features
            if torch.is_grad_enabled() and self.norm.weight.requires_grad:
                # rows that are written later do not reach a gradient of now
                features, labels = features.clone(), labels.clone()
            rows = self.project(features, labels, stored.unseen())
        if learned is not None and learned.slots is not None:
            slots = self.project(learned.slots, learned.labels)
        return Memories(rows, slots)

    def groups(
        self, keys: Tensor, memories: Memories, stored: StoredRows | None
    ) -> tuple[list[Group], Tensor | None]:
        """Return the rows that vote on queries, and the places of stored ones; None for all.

        Args:
            keys: Of the queries, ``(B, K)``.
            memories: What :meth:`memories` made.
            stored: Its ``nearest`` chooses among the stored rows.
        """
        groups: list[Group] = []  # not list[...](): compilers cannot follow that
        places = None
        if memories.real is not None and stored is not None:
            group, places = stored.choose(self.queries(keys), memories.real)
            groups.append(group)
        if memories.synthetic is not None:
            groups.append(memories.synthetic)
        return groups, places

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
        return _join_ballots(
            parts if weights else [one._replace(stored=None, learned=None) for one in parts]
        )

    def _answer(self, features: Tensor, memories: Memories, stored: StoredRows | None) -> Ballot:
        keys = self.keys(features)
        groups, places = self.groups(keys, memories, stored)
        logits, weights = self(features, groups, keys)
        none = keys.new_zeros(1, keys.shape[0], 1)
        heard = none[0, :, 0] + sum(one[0].sum(dim=-1) for one in weights)
        rows = Weights(none, weights[0], places) if memories.real is not None else None
        others = [Weights(none, one) for one in weights[0 if rows is None else 1 :]]
        return Ballot(logits, heard, rows, others[0] if others else None)

    def leave_one_out(
        self, features: Tensor, own: Tensor, memories: Memories, chosen: Tensor | None = None
    ) -> tuple[Votes, list[Group]]:
        """Return what all rows but their own say of stored rows, and who voted.

        Args:
            features: Of the stored rows that are asked about, ``(B, F)``.
            own: Where each of them lies in the memory, ``(B,)``.
            memories: What votes.
            chosen: Places of the stored rows that vote on each, ``(1, B, k)``; None for all.
        """
        rows = memories.real
        assert rows is not None
        group: Group
        if chosen is None:
            group = rows.hide(own[:, None] == torch.arange(rows.keys.shape[1], device=own.device))
        else:
            group = rows.at(chosen)
            hidden = chosen == own[:, None]
            bias = group.bias
            bias = torch.zeros_like(hidden, dtype=rows.keys.dtype) if bias is None else bias
            group = group._replace(bias=bias.masked_fill(hidden, float("-inf")))
        groups = [group]
        if memories.synthetic is not None:
            groups.append(memories.synthetic)
        return self(features, groups), groups

    def extra_repr(self) -> str:  # noqa: D102
        return f"bounded at {MOST_SHARPENED}"


def _join_ballots(parts: list[Ballot]) -> Ballot:
    """Return what was found for the queries of all parts, in their order."""
    logits, heard, stored, learned = zip(*parts, strict=True)
    return Ballot(torch.cat(logits), torch.cat(heard), _join_shares(stored), _join_shares(learned))


def _join_shares(parts: tuple[Weights | None, ...]) -> Weights | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    own = torch.cat([part.own for part in known], dim=1)
    memory = [part.memory for part in known if part.memory is not None]
    places = [part.places for part in known if part.places is not None]
    return Weights(
        own,
        torch.cat(memory, dim=1) if memory else None,
        torch.cat(places, dim=1) if places else None,
    )


# ------------------------------------------------------------------- the same vote while keys learn


FAR = 1e12
"""Squared distance of a row that is hidden; finite, so that its gradient is 0 and not unknown."""
ROUNDING = 1e-6
"""What is left of a normalised column that is padding."""


class Voters(NamedTuple):
    """Rows that may answer.

    Shape:
        - ``keys`` ``(N, K)``; ``ballots`` ``(N, V)``; ``squares``: squared lengths of the keys,
          ``(N,)`` or for each query ``(B, N)``, and :data:`FAR` more where a row is hidden.
    """

    keys: Tensor
    ballots: Tensor
    squares: Tensor


def count_votes(vote: VotingRead, keys: Tensor, rows: list[Voters]) -> Tensor:
    """Return the vote on queries with ``keys`` ``(B, K)`` as logits, as ``vote`` itself does."""
    apart = [torch.addmm(some.squares, keys, some.keys.T, alpha=-2) for some in rows]  # (B, N)
    scores = -vote.sharpness * (torch.cat(apart, dim=1) + squared_lengths(keys)[:, None])
    weights = pad(scores, (1, 0), value=NOBODY).softmax(dim=1)  # (B, 1 + N)
    ballots = [some.ballots for some in rows]
    counted = weights @ torch.cat([ballots[0].new_zeros(1, ballots[0].shape[1]), *ballots])
    return vote.target.tally(counted)


def squared_lengths(keys: Tensor) -> Tensor:
    """Return the squared length of each key, ``(N, K)`` to ``(N,)``."""
    return keys.square().sum(dim=1)


def normalise_view(vote: VotingRead, features: Tensor) -> Tensor:
    """Return what keys are made of before any weight, ``(N, F)`` to ``(N, E)``."""
    view = features[:, vote.first :]
    return layer_norm(view, view.shape[1:], eps=vote.norm.eps)


def count_used_columns(largest: list[Tensor]) -> int:
    """Return how many columns of normalised rows there are before the last ones that are all 0.

    Args:
        largest: The largest size in each column, ``(E,)``, of each group of rows.
    """
    used = torch.stack(largest).amax(dim=0) > ROUNDING
    return max(used.nonzero()[:, 0].tolist(), default=0) + 1


def project_normalised(vote: VotingRead, view: Tensor, kept: Tensor | None = None) -> Tensor:
    """Return the keys that ``vote.keys`` gives, of rows that are normalised already.

    The weights of the normalisation move into those of the keys, so that rows, which do not learn,
    take part in one product.

    Args:
        vote: Whose keys.
        view: ``(N, E)``, or its first columns if the others are 0.
        kept: What each column counts, ``(E,)``; None for 1.
    """
    weight, used = vote.to_keys.weight, view.shape[1]
    scale: Tensor = vote.norm.weight
    shift: Tensor = vote.norm.bias
    if kept is not None:
        scale, shift = scale * kept, shift * kept
    shared = torch.addmv(vote.to_keys.bias, weight, shift)  # (K,), the same for every row
    return torch.addmm(shared, view, (weight[:, :used] * scale[:used]).T)
