"""Learn where rows lie after the backbone is trained, and how far their vote is to be trusted.

Backbone and head stay as they are. Keys learn by letting the others answer for every training row;
held-out rows decide when to stop, and then what the vote counts: :mod:`hma.vote_weighing`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from hma.attention import Chosen, Projected
from hma.encoded_rows import EncodedRows
from hma.keyed_rows import KeyedRows
from hma.momentum import evaluating
from hma.queue import checked_rows
from hma.slots import drawn_rows
from hma.vote_weighing import MOST_HELD_OUT, answered, keys_of, weigh
from hma.voting import VotingRead, hiding

if TYPE_CHECKING:
    from hma.model import HMA

LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM, WARMUP = 1e-3, 0.01, 1.0, 0.05
ROWS_A_STEP = 64
LEAST_STEPS, LEAST_PASSES = 1000, 8
"""Length of the learning, whichever is longer; held-out rows mostly end it before."""
CHECK_EVERY, PATIENCE = 10, 10
"""Steps from one look at the held-out rows to the next, at least a pass, and how many looks in a
row may bring nothing better."""
WRITTEN_AT_ONCE = 1024
EVEN = 0.5
"""Share of a vote that no held-out row weighs."""


def learn_memory(
    model: "HMA",
    rows: EncodedRows,
    held_out: EncodedRows | None = None,
    *,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Fill the memory of a model with ``vote='mixed'``, learn its keys and what it counts.

    Return what a record says of it: ``key_steps``, ``memory_share`` and, where there are held-out
    rows, ``validation_loss``.

    Args:
        model: Its backbone and head are trained, or will not be.
        rows: What is remembered and learned from; what was remembered and learned before goes.
        held_out: Rows that nothing was learned from; without them the vote counts half.
        seed: Decides every random draw.
        tick: Called after each step.
    """
    vote = model.vote
    if vote is None or vote.share is None:
        raise ValueError(
            "learn_memory needs similarity='distance' and vote='mixed', got "
            f"{model.config.similarity!r} and {model.config.vote!r}; other memories learn while "
            "the backbone trains"
        )
    device = rows.features.device
    ids = torch.arange(len(rows.y), device=device) if rows.ids is None else rows.ids
    rows = rows._replace(ids=ids)
    if model.real is not None:
        model.reset_memory()
        for some in torch.split(torch.arange(len(ids), device=device), WRITTEN_AT_ONCE):
            features, y = rows.features[some], rows.y[some]
            model.real.queue.write(checked_rows(model.target, features, y, None, ids[some]))
        if isinstance(model.real.queue, KeyedRows):
            model.real.queue.trim()
    rows, held_out = rows.finite(), None if held_out is None else held_out.finite()
    steps = 0
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        torch.manual_seed(seed)
        vote.restart()
        if model.synthetic is not None:
            some = drawn_rows(rows.y.cpu(), model.target, model.synthetic.slots_per_class).to(
                device
            )
            model.set_slots(model.config.slot_init, rows.features[some], rows.y[some])
        if len(rows.y) > 1:
            steps = _Learning(model, vote, rows, held_out, tick).run()
    found: dict[str, Any] = {"key_steps": steps}
    vote.share.fill_(EVEN)
    if held_out is not None and len(held_out.y):
        with torch.no_grad(), evaluating(vote):
            found["validation_loss"] = weigh(model, vote, held_out)
    model.reproject()
    return found | {"memory_share": float(vote.share)}


class _Learning:
    """Let keys, sharpness and slots learn until the held-out rows say stop.

    A row is answered by its batch, with gradients, and by stored rows where they lay at the last
    look at the held-out rows, which needs all their keys anyway.
    """

    def __init__(
        self,
        model: "HMA",
        vote: VotingRead,
        rows: EncodedRows,
        held_out: EncodedRows | None,
        tick: Callable[[], None],
    ) -> None:
        self.model, self.vote, self.rows, self.tick = model, vote, rows, tick
        self.held_out: EncodedRows | None = None
        if held_out is not None and len(held_out.y):
            self.held_out = held_out.at_most(MOST_HELD_OUT)
        self.labels = model.target.checked(rows.y, len(rows.y))
        self.slots = model.synthetic
        self.parts: list[nn.Module] = [vote]
        if self.slots is not None:
            self.parts.append(self.slots)
        self.per_pass = -(-len(rows.y) // ROWS_A_STEP)
        self.steps = max(LEAST_STEPS, LEAST_PASSES * self.per_pass)
        self.every = max(CHECK_EVERY, self.per_pass)
        self.stored: KeyedRows | None = None
        if model.real is not None and isinstance(model.real.queue, KeyedRows):
            self.stored = model.real.queue
            assert rows.ids is not None
            self.places = self.stored.find(rows.ids)  # (N,), -1 where a bounded memory has none

    def run(self) -> int:
        """Return how many steps led to what is kept."""
        best_step, kept = 0, self._state()
        with self._trainable() as weights:
            fused = True if self.rows.features.device.type in ("cpu", "cuda") else None
            optimizer = torch.optim.AdamW(
                weights, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=fused
            )
            self.lay, best = self._look()  # with one row a class nothing can be learned from others
            for step, places in zip(range(self.steps), self._batches(), strict=False):
                for group in optimizer.param_groups:
                    group["lr"] = LEARNING_RATE * self._rate(step)
                optimizer.zero_grad()
                self._loss(places).backward()  # type: ignore[no-untyped-call]
                clip_grad_norm_(weights, CLIP_NORM)
                optimizer.step()
                self.tick()
                if (step + 1) % self.every and step + 1 < self.steps:
                    continue
                self.lay, loss = self._look()
                if loss < best:
                    best, best_step, kept = loss, step + 1, self._state()
                elif self.held_out is not None and step + 1 - best_step >= PATIENCE * self.every:
                    break
        if self.held_out is None:
            return self.steps
        for part, state in zip(self.parts, kept, strict=True):
            part.load_state_dict(state)
        return best_step

    def _loss(self, places: Tensor) -> Tensor:
        """Return the loss of rows that are answered by others."""
        vote, batch = self.vote, self.rows.at(places)
        width = vote.to_keys.in_features
        kept = torch.rand(width).to(batch.features) >= vote.dropout.p
        kept = kept / (1 - vote.dropout.p)  # the same features are dropped of all rows of a step
        keys = vote.keys(batch.features, kept)
        groups: list[Projected | Chosen] = []
        if self.stored is not None:
            groups += self._others(places, keys)
        if self.slots is not None and self.slots.slots is not None:
            groups.append(vote.at(vote.keys(self.slots.slots, kept), self.slots.labels))
        each = self.model.target.loss(vote(batch.features, groups, keys)[0], batch.y)
        if self.model.config.contrastive:
            contrast = self.model.contrast(batch.features, batch.y, ids=batch.ids)
            each = each + self.model.config.contrastive * contrast
        return each.mean() if batch.weight is None else (each * batch.weight).mean()

    def _others(self, places: Tensor, keys: Tensor) -> list[Projected | Chosen]:
        """Return the batch and stored rows; a row meets no copy of itself, unless it is to."""
        assert self.stored is not None
        count, own = self.model.config.candidates, self.places[places]
        drawn = self.stored.drawn(count)
        hidden = ~self.stored.filled()
        if not self.model.config.leave_self_out:
            bias = hiding(hidden[drawn], keys)
            return [self.vote.at(self.lay[drawn], self.stored.labels[drawn], bias)]
        absent = own < 0
        mates = (own[:, None] == own) | absent  # rows that share an id are the same row
        hidden[own[~absent]] = True  # the batch stands for them
        return [
            self.vote.at(keys, self.labels[places], hiding(mates, keys)),
            self.vote.at(self.lay[drawn], self.stored.labels[drawn], hiding(hidden[drawn], keys)),
        ]

    def _batches(self) -> Iterator[Tensor]:
        device = self.rows.features.device
        while True:
            order = torch.randperm(len(self.rows.y)).to(device)
            yield from order.tensor_split(self.per_pass)

    def _rate(self, step: int) -> float:
        """Return what the learning rate is multiplied with: up, then down along a cosine."""
        warmup = WARMUP * self.steps
        done = max(0.0, step - warmup) / (self.steps - warmup)
        return min(1.0, (step + 1) / warmup) * (1 + math.cos(math.pi * done)) / 2

    @torch.no_grad()
    def _look(self) -> tuple[Tensor, float]:
        """Return where the stored rows lie now, and the loss of the held-out rows."""
        self.vote.eval()
        rows = keys_of(self.model, self.vote)
        loss, held_out = math.inf, self.held_out
        if held_out is not None:
            said = answered(self.vote, rows, self.vote.keys(held_out.features))
            loss = held_out.mean(self.model.target.loss(said, held_out.y))
        self.vote.train()
        return rows[0][0], loss

    def _state(self) -> list[dict[str, Tensor]]:
        return [{n: v.clone() for n, v in part.state_dict().items()} for part in self.parts]

    @contextmanager
    def _trainable(self) -> Iterator[list[nn.Parameter]]:
        mode = self.vote.training
        weights = [w for part in self.parts for w in part.parameters() if w is not self.vote.gate]
        try:
            self.vote.train()
            for weight in weights:
                weight.requires_grad_(True)
            yield weights
        finally:
            self.vote.train(mode)
            for weight in weights:
                weight.requires_grad_(False).grad = None
