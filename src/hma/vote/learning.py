"""Learn where rows lie after the backbone is trained, and how far their vote is to be trusted.

Backbone and head stay as they are. Keys learn by letting the others answer for every training row;
held-out rows decide when to stop, and then what the vote counts: :mod:`hma.vote.weighing`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils import clip_grad_norm_

from hma.memory.blocks import blocks, evenly_spaced, in_blocks, is_large
from hma.memory.locking import eval_mode, writes
from hma.memory.rows import EncodedRows, KeyedRows, MemoryQueue, MemoryRows, check_rows
from hma.memory.slots import draw_rows
from hma.targets import Target
from hma.vote.read import (
    FAR,
    Voters,
    VotingRead,
    count_used_columns,
    count_votes,
    normalise_view,
    project_normalised,
    squared_lengths,
)
from hma.vote.weighing import MOST_HELD_OUT, Keys, choose_kernels, set_shares, vote_on_keys, weigh

if TYPE_CHECKING:
    from hma.vote.voting_memory import VotingMemory


def _checked(model: "VotingMemory", rows: EncodedRows) -> MemoryRows:
    """Return rows as they are stored, with what each counts."""
    found = check_rows(model.target, rows.features, rows.y, None, rows.ids)
    return found._replace(weight=rows.weight)


class RowsInView:
    """Rows that do not learn, normalised.

    Args:
        vote: Whose keys.
        features: ``(N, F)``.

    Attributes:
        columns: How many of the first columns are looked at; see :func:`use_the_same_columns`.
    """

    def __init__(self, vote: VotingRead, features: Tensor) -> None:
        self.vote, self.features = vote, features
        self.made = None if is_large(len(features)) else normalise_view(vote, features)
        self.columns = features.shape[1] - vote.first

    def largest(self) -> Tensor:
        """Return the largest size in each column, ``(E,)``."""
        parts = blocks(len(self.features))
        every = [self._normalised(part).abs().amax(dim=0) for part in parts]
        return torch.stack(every).amax(dim=0)

    def use(self, columns: int) -> None:
        """Look at the first columns alone."""
        self.columns = columns
        if self.made is not None:
            self.made = self.made[:, :columns].contiguous()

    def at(self, places: Tensor) -> Tensor:
        """Return rows, ``(n, E)``."""
        if self.made is not None:
            return self.made.index_select(0, places)
        rows = self.features.index_select(0, places)
        return normalise_view(self.vote, rows)[:, : self.columns]

    def keys(self, places: Tensor | None = None) -> Tensor:
        """Return where rows lie now, ``(n, K)``; all of them if no places are given."""
        if places is not None:
            return project_normalised(self.vote, self.at(places))
        if self.made is not None:
            return project_normalised(self.vote, self.made)
        return in_blocks(self.keys, torch.arange(len(self.features), device=self.features.device))

    def _normalised(self, part: slice) -> Tensor:
        return (
            normalise_view(self.vote, self.features[part]) if self.made is None else self.made[part]
        )


def use_the_same_columns(views: list[RowsInView]) -> None:
    """Leave out the last columns, where these are 0 in all rows of all views."""
    used = count_used_columns([view.largest() for view in views if len(view.features)])
    for view in views:
        view.use(used)


class BallotsInView:
    """Ballots of rows that do not learn.

    Args:
        target: Makes them.
        labels: As they are stored, ``(N, ...)``.
        dtype: Their number format.
    """

    def __init__(self, target: Target, labels: Tensor, dtype: torch.dtype) -> None:
        self.target, self.labels, self.dtype = target, labels, dtype
        self.made = None if is_large(len(labels)) else target.ballots(labels).to(dtype)

    def at(self, places: Tensor) -> Tensor:
        """Return the ballots of rows, ``(n, V)``."""
        if self.made is not None:
            return self.made.index_select(0, places)
        return self.target.ballots(self.labels[places]).to(self.dtype)


# ----------------------------------------------------------------------------------------- learning


LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM, WARMUP = 2e-3, 0.01, 1.0, 0.05
ROWS_A_STEP = 128
LEAST_STEPS, LEAST_PASSES = 1000, 8
"""Length of the learning, whichever is longer; held-out rows mostly end it before."""
CHECK_EVERY, PATIENCE = 10, 5
"""Steps from one look at the held-out rows to the next, at least a pass, and how many looks in a
row may bring nothing better."""
WRITTEN_AT_ONCE = 1024
EVEN = 0.5
"""Share of all votes together that no held-out row weighs."""


class Settled(NamedTuple):
    """What held-out rows decided, for a memory that is to learn from these rows too."""

    key_passes: float
    """Passes over the rows while keys learned."""
    sharpened: float
    """What was added to the logarithm of the sharpness that was learned."""
    shares: Sequence[float]
    """What the vote and each solved vote count."""
    kernels: Sequence[Sequence[float]] | None = None
    """Of each solved vote, see :class:`hma.vote.solved.Kernel`; None chooses them."""

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> "Settled | None":
        """Return what :func:`learn_memory` found with held-out rows; None if it had none."""
        if found is None or not all(name in found for name in cls._fields):
            return None
        return cls(*(found[name] for name in cls._fields))


@writes
def learn_memory(
    model: "VotingMemory",
    rows: EncodedRows,
    held_out: EncodedRows | None = None,
    *,
    settled: Settled | None = None,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Fill the memory of a model, learn its keys and what its vote counts.

    Return what a record says of it: ``key_steps``, ``memory_share`` and, where there are held-out
    rows, ``validation_loss`` and the fields of :class:`Settled`.

    Args:
        model: Its backbone and head are trained, or will not be.
        rows: What is remembered and learned from; what was remembered and learned before goes. Of
            many rows the memory holds the very tensor: change it no more.
        held_out: Rows that nothing was learned from; without them the vote counts half.
        settled: What such rows decided before, in place of ``held_out``.
        seed: Decides every random draw; torch's own random numbers are not used.
        tick: Called after each step.
    """
    vote = model.vote
    device = rows.features.device
    ids = torch.arange(len(rows.y), device=device) if rows.ids is None else rows.ids
    rows = rows._replace(ids=ids)
    if model.real is not None:
        _remember(model, model.real.queue, rows, ids)
    rows, held_out = rows.finite(), None if held_out is None else held_out.finite()
    steps, chance = 0, torch.Generator().manual_seed(seed)
    with eval_mode(vote):
        vote.restart(chance)
        if model.synthetic is not None:
            count = model.synthetic.slots_per_class
            some = draw_rows(rows.y.cpu(), model.target, count, chance).to(device)
            examples = rows.features[some], rows.y[some]
            model.set_slots(model.config.slot_init, *examples, generator=chance)
        if len(rows.y) > 1:
            with torch.enable_grad():
                passes = None if settled is None else settled.key_passes
                steps = _Learning(model, vote, rows, held_out, chance, tick).run(passes)
        found: dict[str, Any] = {"key_steps": steps}
        with torch.no_grad():
            if held_out is not None and len(held_out.y):
                found |= weigh(model, vote, held_out)
                found["key_passes"] = steps / steps_of_pass(rows)
            else:
                votes = 1 + len(model.solved)
                settled = settled or Settled(0.0, 0.0, [EVEN / votes] * votes)
                choose_kernels(model, settled.kernels)
                vote.log_sharpness.add_(settled.sharpened)
                set_shares(model, settled.shares)
    model.reproject()
    return found | {"memory_share": model.memory_share}


def _remember(model: "VotingMemory", queue: MemoryQueue, rows: EncodedRows, ids: Tensor) -> None:
    """Let the memory hold these rows and no others; many of them without a copy."""
    model.reset_memory()
    if (
        is_large(len(ids))
        and isinstance(queue, KeyedRows)
        and queue.take(_checked(model, rows._replace(ids=ids)))
    ):
        return
    for some in torch.split(torch.arange(len(ids), device=ids.device), WRITTEN_AT_ONCE):
        queue.write(_checked(model, rows._replace(ids=ids).at(some)))
    if isinstance(queue, KeyedRows):
        queue.trim()


def steps_of_pass(rows: EncodedRows) -> int:
    """Return in how many steps keys learn from every row once."""
    return -(-len(rows.y) // ROWS_A_STEP)


class _Learning:
    """Let keys, sharpness and slots learn until the held-out rows say stop.

    A row is answered by its batch, with gradients, and by stored rows where they lay at the last
    look at the held-out rows, which needs all their keys anyway. Of many stored rows an even part
    answers the held-out ones there, and a step makes the keys of those that it draws.
    """

    def __init__(
        self,
        model: "VotingMemory",
        vote: VotingRead,
        rows: EncodedRows,
        held_out: EncodedRows | None,
        chance: torch.Generator,
        tick: Callable[[], None],
    ) -> None:
        self.model, self.vote, self.rows = model, vote, rows
        self.chance, self.tick = chance, tick
        self.held_out: EncodedRows | None = None
        if held_out is not None and len(held_out.y):
            self.held_out = held_out.at_most(MOST_HELD_OUT)
        self.slots = model.synthetic
        self.parts: list[nn.Module] = [vote]
        if self.slots is not None:
            self.parts.append(self.slots)
        self.per_pass = steps_of_pass(rows)
        self.steps = max(LEAST_STEPS, LEAST_PASSES * self.per_pass)
        self.every = max(CHECK_EVERY, self.per_pass)
        dtype = rows.features.dtype
        labels = model.target.check(rows.y, len(rows.y))
        self.ballots = BallotsInView(model.target, labels, dtype)
        self.stored: KeyedRows | None = None
        self.cached_voters: Voters | None = None
        self.view = RowsInView(vote, rows.features)
        views = [self.view]
        if self.held_out is not None:
            self.held_out_view = RowsInView(vote, self.held_out.features)
            views.append(self.held_out_view)
        if model.real is not None and isinstance(model.real.queue, KeyedRows):
            self.stored = model.real.queue
            assert rows.ids is not None
            self.places = self.stored.find(rows.ids)  # (N,), -1 where a bounded memory has none
            self.stored_ballots = BallotsInView(model.target, self.stored.labels, dtype)
            self.unseen = model.real.unseen()
            self.hidden = FAR * (self.unseen < 0)  # places without a row
            self.stored_view = RowsInView(vote, self.stored.features)
            views.append(self.stored_view)
        use_the_same_columns(views)

    def run(self, passes: float | None = None) -> int:
        """Learn; return how many steps led to what is kept.

        Args:
            passes: Over the rows; None for all, or until held-out rows say stop.
        """
        best_step, kept = 0, self._state()
        last = self.steps if passes is None else round(passes * self.per_pass)
        with self._trainable() as weights:
            fused = True if self.rows.features.device.type in ("cpu", "cuda") else None
            optimizer = torch.optim.AdamW(
                weights, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=fused
            )
            best = self._validate()  # with one row a class nothing can be learned from others
            for step, places in zip(range(last), self._batches(), strict=False):
                for group in optimizer.param_groups:
                    group["lr"] = LEARNING_RATE * self._rate(step)
                optimizer.zero_grad()
                self._loss(places).backward()  # type: ignore[no-untyped-call]
                clip_grad_norm_(weights, CLIP_NORM)
                optimizer.step()
                self.tick()
                if (step + 1) % self.every and step + 1 < last:
                    continue
                loss = self._validate()
                if loss < best:
                    best, best_step, kept = loss, step + 1, self._state()
                elif self.held_out is not None and step + 1 - best_step >= PATIENCE * self.every:
                    break
        if self.held_out is None:
            return last
        for part, state in zip(self.parts, kept, strict=True):
            part.load_state_dict(state)
        return best_step

    def _loss(self, places: Tensor) -> Tensor:
        """Return the loss of rows that are answered by others."""
        vote, rows = self.vote, self.rows
        chance = torch.rand(vote.to_keys.in_features, generator=self.chance)
        kept = chance.to(rows.features) >= vote.dropout.p
        kept = kept / (1 - vote.dropout.p)  # the same features are dropped of all rows of a step
        keys = project_normalised(vote, self.view.at(places), kept)
        voters: list[Voters] = []
        if self.stored is not None:
            voters += self._others(places, keys)
        if self.slots is not None and self.slots.slots is not None:
            there = vote.keys(self.slots.slots, kept)
            voters.append(Voters(there, self._ballots(self.slots.labels), squared_lengths(there)))
        each = self.model.target.loss(count_votes(vote, keys, voters), rows.y[places])
        return each.mean() if rows.weight is None else (each * rows.weight[places]).mean()

    def _others(self, places: Tensor, keys: Tensor) -> list[Voters]:
        """Return the batch and stored rows; a row meets no copy of itself, unless it is to."""
        assert self.stored is not None
        if not self.model.config.leave_self_out:
            return [self._draw(None)]
        own = self.places[places]
        unseen = (own[:, None] == own) | (own < 0)  # rows that share an id are the same row
        mates = Voters(keys, self.ballots.at(places), squared_lengths(keys) + FAR * unseen)
        return [mates, self._draw(own)]  # the batch stands for its stored copies

    def _draw(self, own: Tensor | None) -> Voters:
        """Return as many stored rows as answer in one step, those at the places ``own`` hidden.

        Where stored rows are many, those that are drawn are looked at where they lie now.
        """
        assert self.stored is not None
        count, cached = self.model.config.candidates, self.cached_voters
        if cached is None:
            return self._voters_at(self.stored.draw(count, self.chance), own)
        if own is not None:
            hidden = pad(cached.squares, (0, 1))
            hidden[own] = FAR  # the last place is that of rows not stored
            cached = cached._replace(squares=hidden[:-1])
        if count is None or count >= self.stored.size:
            return cached
        drawn = self.stored.draw(count, self.chance)
        return Voters(*(part.index_select(0, drawn) for part in cached))

    @torch.no_grad()
    def _voters_at(self, places: Tensor, own: Tensor | None) -> Voters:
        keys, hidden = self.stored_view.keys(places), self.hidden[places]
        if own is not None:
            hidden = hidden + FAR * torch.isin(places, own)
        return Voters(keys, self.stored_ballots.at(places), squared_lengths(keys) + hidden)

    def _ballots(self, labels: Tensor) -> Tensor:
        return self.model.target.ballots(labels).to(self.rows.features.dtype)

    def _batches(self) -> Iterator[Tensor]:
        device = self.rows.features.device
        while True:
            order = torch.randperm(len(self.rows.y), generator=self.chance).to(device)
            yield from order.tensor_split(self.per_pass)

    def _rate(self, step: int) -> float:
        """Return what the learning rate is multiplied with: up, then down along a cosine."""
        warmup = WARMUP * self.steps
        done = max(0.0, step - warmup) / (self.steps - warmup)
        return min(1.0, (step + 1) / warmup) * (1 + math.cos(math.pi * done)) / 2

    @torch.no_grad()
    def _validate(self) -> float:
        """See where the stored rows lie now, and return the loss of the held-out rows."""
        rows: list[Keys] = []
        if self.stored is not None:
            large = is_large(self.stored.size)
            some = evenly_spaced(self.stored.size).to(self.unseen.device) if large else None
            lie = self.stored_view.keys(some)
            if some is None:
                assert self.stored_ballots.made is not None
                self.cached_voters = Voters(
                    lie, self.stored_ballots.made, squared_lengths(lie) + self.hidden
                )
            at = slice(None) if some is None else some
            rows.append((lie, self.stored.labels[at], self.unseen[at]))
        if self.slots is not None and self.slots.slots is not None:
            rows.append((self.vote.keys(self.slots.slots), self.slots.labels, None))
        loss, held_out = math.inf, self.held_out
        if held_out is not None:
            said = vote_on_keys(self.vote, rows, self.held_out_view.keys())
            loss = held_out.mean(self.model.target.loss(said, held_out.y))
        return loss

    def _state(self) -> list[dict[str, Tensor]]:
        return [{n: v.clone() for n, v in part.state_dict().items()} for part in self.parts]

    @contextmanager
    def _trainable(self) -> Iterator[list[nn.Parameter]]:
        weights = [w for part in self.parts for w in part.parameters()]
        try:
            for weight in weights:
                weight.requires_grad_(True)
            yield weights
        finally:
            for weight in weights:
                weight.requires_grad_(False).grad = None
