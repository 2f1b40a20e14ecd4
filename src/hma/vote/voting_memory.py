"""VotingMemory: training rows that vote beside the head, learned after the backbone."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, final, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hma.checks import expect_tensor, feature_dim_of
from hma.errors import wrong_choice
from hma.memory.attribution import ExactParts, Shares
from hma.memory.blocks import MOST_DISTANCES, in_blocks, is_large
from hma.memory.locking import reads, writes
from hma.memory.memories import LearnedRows, Memories, StoredRows
from hma.memory.rows import EncodedRows, KeyedRows, MemoryRows, check_ids
from hma.model import Context, LeftOut, MemoryModel, Trace
from hma.options.config import ConfigError
from hma.targets import Target, one_target
from hma.targets.target import NO_VOTE
from hma.vote.added_classes import (
    add_classes,
    complete_head,
    expect_growing,
    pad_unseen_classes,
)
from hma.vote.config import VoteConfig
from hma.vote.factor import fingerprints
from hma.vote.learning import Settled, learn_memory
from hma.vote.near import NEAREST, NearRows
from hma.vote.read import VotingRead
from hma.vote.solved import (
    MOST_SEARCHED,
    MOST_SOLVED,
    NearParts,
    SolvedParts,
    SolvedRows,
    SolvedVote,
    solved_parts,
)
from hma.vote.views import TwoViews, with_key_view


@final
class VotingMemory(MemoryModel):
    r"""Give a trained backbone a memory of its training rows: the nearest answer beside the head.

    .. math:: p(x) = s_0\, p_{head}(x) + s_1 \sum_j w_j y_j
        + \sum_v s_v\, \mathrm{softmax}\big(\tau_v \sum_j \kappa_v(x, j) A_{vj}\big)

    Train backbone and head as always; :meth:`learn_memory` then stores the training rows and learns
    what they are found by. A row votes for its label, the nearer the more; and it says what was
    solved for, so that all rows together are right (:mod:`hma.vote.solved`). Held-out rows decide
    what each of these answers counts. A row's part in an answer is exact. Rows can be taught
    (:meth:`remember`) and forgotten (:meth:`forget`), and classes added, without training.

    Args:
        backbone: Any module that maps a batch to features ``(B, F)``.
        num_classes: Number of logits, ``C``; 1 is a binary problem with one logit.
        config: Which rows are kept and what they are found by.
        target: What a label is, where it is not one of ``num_classes`` class ids: soft labels,
            several yes/no labels, a number; see :mod:`hma.targets`.
        feature_dim: Width of the features, ``F``; read from the backbone's ``num_features``
            or ``feature_dim`` if it has one.
        key_encoder: What keys are made of, beside the backbone: a module that maps the same batch
            to ``(B, E)``, see :class:`hma.vote.views.TwoViews`. By default a view of its inputs
            that the backbone offers by a method ``key_view``, or else its features.

    Attributes:
        vote: The read: keys, sharpness and share of the vote.
        solved: Solved votes, one for each view that rows are looked at in.

    Shape:
        - input: whatever the backbone takes; output: ``(B, C)``.

    Example:
        >>> model = VotingMemory(nn.Linear(5, 16), num_classes=3, feature_dim=16)
        >>> x, y = torch.randn(12, 5), torch.arange(12) % 3
        >>> found = model.learn_memory([(x, y)], held_out=[(x, y)])
        >>> model.eval()(x[:4]).shape, len(model.memory_state().ids)
        (torch.Size([4, 3]), 12)
    """

    memory: ClassVar[str] = "vote"
    solved: Sequence[SolvedVote]
    _warned = False

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int | None = None,
        config: VoteConfig | None = None,
        *,
        target: Target | None = None,
        feature_dim: int | None = None,
        key_encoder: nn.Module | None = None,
    ) -> None:
        config = config or VoteConfig()
        kind = one_target(num_classes, target)
        if kind.beyond_head:
            expect_growing(kind, config)
        feature_dim = feature_dim_of(backbone, feature_dim)
        offered = config.key_view == "inputs"
        backbone, key_width = with_key_view(backbone, key_encoder, feature_dim, offered=offered)
        feature_dim = backbone.feature_dim if isinstance(backbone, TwoViews) else feature_dim
        super().__init__(backbone, kind, feature_dim)
        self.config: VoteConfig = config
        self.key_width = key_width
        self.real = None
        if config.has_real_memory:
            self.real = StoredRows(KeyedRows(config.memory_size, feature_dim, kind))
        self.synthetic = None
        if config.slots_per_class:
            self.synthetic = LearnedRows(
                kind, feature_dim, config.slots_per_class, config.slot_init
            )
            self.synthetic.begin()
            self.synthetic.requires_grad_(False)  # learned with the keys, not with the backbone
        self.head = nn.Linear(feature_dim - key_width, self.num_classes - kind.beyond_head)
        self.vote = VotingRead(
            kind,
            feature_dim,
            config.key_dim,
            config.key_dropout,
            first=feature_dim - key_width if key_width else 0,
        )
        view_width = feature_dim - self.vote.first
        self.solved = nn.ModuleList(  # type: ignore[assignment]
            SolvedVote(kind, view, config.key_dim if view == "keys" else view_width)
            for view in config.solved_views
        )

    # ------------------------------------------------------------------------- reading

    def _encode(self, x: Any) -> Any:
        if self.training and isinstance(self.backbone, TwoViews):
            return self.backbone.without_keys(x)  # they learn when its training is over
        return self.backbone(x)

    @reads
    def classify(self, features: Tensor, *, context: Context | None = None) -> Tensor:
        """Return the logits of features; in training those of the head alone."""
        if self.training:
            return self.head_logits(self._validate(features))
        return super().classify(features, context=context)

    @reads
    def trace(
        self,
        features: Tensor,
        *,
        context: Context | None = None,
        memories: Memories | None = None,
        weights: bool = True,
    ) -> Trace:
        """Return the logits, and the share of each row in the vote.

        Args:
            features: What the backbone made, ``(B, F)``.
            context: Not needed: a row sees no other row of its batch.
            memories: Read these instead of the model's own, as they are.
            weights: Whether shares are asked for.
        """
        features = self._validate(features)
        memories = self.memories(context) if memories is None else memories
        ballot = self.vote.answer(features, memories, self.real, weights=weights)
        solved = self._solved_logits(features, memories)
        logits = self._mix(self.head_logits(features), ballot.logits, ballot.heard, solved)
        return Trace(logits, ballot.stored, ballot.learned)

    def view_of(self, solved: SolvedVote, features: Tensor) -> Tensor:
        """Return what a solved vote sees of features, ``(N, F)`` to ``(N, E)``."""
        if solved.view == "keys":
            return in_blocks(self.vote.keys, features)
        return features[:, self.vote.first :]

    def _solved_logits(self, features: Tensor, memories: Memories) -> list[Tensor | None]:
        """Return the answer of each solved vote; None where rows are too many to be solved for."""
        return [
            None if rows is None else solved.answer(self.view_of(solved, features), rows)
            for solved, rows in zip(self.solved, memories.solved, strict=True)
        ]

    def _shares(self, heard: Tensor, there: Sequence[bool]) -> Tensor:
        """Return what head, vote and each solved vote count for each query, ``(2 + V, B)``.

        Where no row votes the head answers alone; a solved vote that is not there leaves its
        share to the vote.
        """
        voted = heard.clamp(max=1)  # rounded, rows may vote with more than 1
        vote, shares = self.vote.share, []
        for solved, present in zip(self.solved, there, strict=True):
            shares.append(solved.share * voted if present else 0 * voted)
            vote = vote if present else vote + solved.share
        others = torch.stack([vote * voted, *shares])
        return torch.cat([(1 - others.sum(dim=0, keepdim=True)).clamp(min=0), others])

    def _mix(
        self, head: Tensor, vote: Tensor, heard: Tensor, solved: Sequence[Tensor | None]
    ) -> Tensor:
        """Return all answers together, as logits."""
        shares = self._shares(heard, [said is not None for said in solved])
        kept = [0, 1, *(2 + place for place, said in enumerate(solved) if said is not None)]
        said = [complete_head(head, vote, self.target), vote]
        said += [one for one in solved if one is not None]
        return self.target.mix_logits(said, shares[kept])

    def head_logits(self, features: Tensor) -> Tensor:
        """Return what the linear head alone says, ``(B, C)``; nothing of classes added since."""
        logits: Tensor = self.head(features[:, : self.feature_dim - self.key_width])
        return pad_unseen_classes(logits, self.target)

    def attribute(
        self, features: Tensor, places: Tensor
    ) -> tuple[Tensor, Shares, ExactParts | None]:
        """Return logits, shares of the answer, and what each row put into each probability."""
        trace, count, size = self.trace(features), len(features), 0
        if self.real is not None:
            size = self.real.queue.size
        none = torch.zeros(count, 0, device=features.device)
        queue = none if trace.real is None else trace.real.over_rows(size)[:, places]  # (B, N)
        slots = none
        if trace.synthetic is not None and self.synthetic is not None:
            slots = trace.synthetic.over_rows(len(self.synthetic.classes))  # (B, S)
        heard = queue.sum(dim=1, keepdim=True) + slots.sum(dim=1, keepdim=True)  # (B, 1)
        voted = (heard > 0).to(heard)  # without a row to hear the head answers alone
        rows, of_slots = queue / (heard + (1 - voted)), slots / (heard + (1 - voted))
        parts, spoken, ways = self._solved_parts(features, places, heard[:, 0])
        head, counted = ways[0][:, None].to(rows), ways[1][:, None].to(rows)
        exact = exact_parts(self, self.head_logits(features), queue, slots, places, ways, parts)
        unknown = self._unknown_to_head(places).to(rows)  # (N,)
        kept = rows * (counted + head * unknown) + spoken.to(rows)
        itself = head * (1 - rows @ unknown[:, None])
        nobody = heard.new_zeros(count, count)
        shares = Shares(itself[:, 0], kept, nobody, nobody[:, :0], of_slots * counted)
        return trace.logits, shares, exact

    def _solved_parts(
        self, features: Tensor, places: Tensor, heard: Tensor
    ) -> tuple[list[tuple[SolvedParts | NearParts, Tensor]], Tensor, Tensor]:
        """Return what rows say that was solved for, what each counts by it, and all shares.

        Shape:
            - a part of each solved vote with its whole answer ``(B, O)``; ``(B, N)``; ``(2 + V,
              B)`` as :meth:`_shares`.
        """
        memories = self.memories()
        shares = self._shares(heard, [rows is not None for rows in memories.solved])
        found, spoken = [], features.new_zeros(len(features), len(places))
        each = zip(self.solved, memories.solved, shares[2:], strict=True)
        for solved, rows, share in each:
            if rows is None:
                continue
            view = self.view_of(solved, features)
            parts = solved_parts(solved, rows, view, places, share)
            said = self.target.expected(solved.answer(view, rows))
            found.append((parts, share.view(-1, *[1] * (said.dim() - 1)) * said))
            loud = parts.loudness().to(spoken)  # (B, N)
            least = torch.finfo(loud.dtype).tiny
            spoken = spoken + share[:, None] * loud / loud.sum(dim=1, keepdim=True).clamp(min=least)
        return found, spoken, shares

    def _unknown_to_head(self, places: Tensor) -> Tensor:
        """Return how far each stored row is of classes that the head does not know, ``(N,)``."""
        new = self.target.beyond_head
        if self.real is None or not new:
            return torch.zeros(len(places), device=places.device)
        labels, belongs = self.real.queue.labels[places], self.target.membership
        return in_blocks(lambda part: belongs(part)[:, -new:].sum(dim=1), labels)

    # ------------------------------------------------------- what a row sees of others

    @property
    def sees_batch(self) -> bool:
        """Whether a prediction may depend on the other rows of its batch: never."""
        return False

    @property
    def context(self) -> Context:
        """What a row sees of others: always 'alone'."""
        return "alone"

    @context.setter
    def context(self, context: Context) -> None:
        self.allowed_context(context)

    def allowed_context(self, context: Context) -> Context:
        """Return 'alone', or say why this model cannot answer in ``context``."""
        if context not in get_args(Context):
            raise ConfigError(wrong_choice("context", context, get_args(Context)))
        if context == "anchors":
            raise ConfigError(
                "context='anchors' needs rows that see their batch, got VotingMemory, which "
                "answers each row alone; take hma.HMA, or leave it out"
            )
        return "alone"  # a row sees no other anyway

    # -------------------------------------------------------------------------- learning

    @writes
    def learn_memory(
        self,
        batches: Iterable[Any],
        held_out: Iterable[Any] = (),
        *,
        like: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Remember rows, and learn what they are found by and what their vote counts.

        Call it once, after training; backbone and head stay as they are. Returns what was found:
        ``memory_share`` of the answer, ``key_steps``, ``validation_loss``.

        Args:
            batches: Training rows, ``(x, y)`` or ``(x, y, ids)`` each; without ids rows are
                numbered as they come. A dict with its labels as 'y', 'label' or 'labels' and a
                PyG ``Batch`` with ``y`` will do too.
            held_out: Rows that nothing was learned from, ``(x, y)`` each or as ``batches``: they
                decide when to stop and how much the memory counts. Without them it counts half.
            like: What an earlier call returned, whose held-out rows decided: they may be among the
                ``batches`` now, so that every row is learned from.
            seed: Decides every random draw; torch's own random numbers are not used.
        """
        validation = self.encode_rows(held_out, name="held_out")  # few rows: mistakes show at once
        rows = self.encode_rows(batches)
        if rows is None:
            raise ValueError("batches must hold at least one row, got none")
        if like is not None and validation is not None:
            raise ValueError("learn_memory takes held_out or like, got both; leave one of them out")
        return learn_memory(self, rows, validation, settled=Settled.of(like), seed=seed)

    def after_training(
        self,
        rows: Callable[[], EncodedRows | None],
        held_out: Callable[[], EncodedRows | None],
        *,
        like: Mapping[str, Any] | None = None,
        seed: int = 0,
        tick: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Remember the training rows and learn their keys; see :meth:`learn_memory`."""
        given = rows()
        if given is None:
            warnings.warn(
                "the training rows cannot be asked for again, so the memory is not learned yet; "
                "call model.learn_memory(batches) with them",
                stacklevel=3,
            )
            return {}
        settled = Settled.of(like)
        return learn_memory(self, given, held_out(), settled=settled, seed=seed, tick=tick)

    # --------------------------------------------------------------------------- writing

    def _before_write(self) -> None:
        """Say once, in training, that rows do not answer before the memory is learned."""
        if self.training and not self._warned:
            self._warned = True
            warnings.warn(
                "rows that are remembered in training do not answer yet; call "
                "model.learn_memory(batches, held_out) once, when training is over",
                stacklevel=4,
            )

    def _write(self, rows: MemoryRows) -> None:
        assert self.real is not None
        if is_large(self.real.queue.size):
            self._cache.clear()  # it would keep the rows as they were
        self.real.queue.write(rows)

    @torch.no_grad()
    def encode_for_memory(self, x: Any) -> Tensor:
        """Return the features that :meth:`remember` would store for a batch, ``(B, F)``."""
        with self.reading():
            return expect_tensor("features", self.backbone(x))

    @writes
    def forget(self, ids: Tensor) -> int:
        """Take the rows of these samples out of the memory; return how many there were.

        Every read is then that of a memory that never had them: to the last bit where rows vote,
        to rounding where they are solved for. What backbone, head and keys learned from them stays.

        Args:
            ids: Sample ids, as they were given to :meth:`remember`.
        """
        self._expect_writable("write")
        store = self.stored_samples("forget")
        self._cache.clear()  # it would keep the rows that were, beside those that are left
        return store.forget(check_ids(ids, None, self.device))

    @writes
    def add_classes(self, count: int) -> range:
        """Let ``count`` more classes be taught by :meth:`remember` alone; return their ids.

        Nothing is trained: stored rows answer for them, see :mod:`hma.vote.added_classes`. For two
        or more classes, without slots. The target is another one then; ``hma.save`` and
        ``hma.load`` know it.

        Args:
            count: How many.
        """
        self._expect_writable("add classes")
        return add_classes(self, count)

    def expect_growing(self) -> None:
        """Raise unless classes can be added."""
        expect_growing(self.target, self.config)

    # ------------------------------------------------------------------ what it can tell

    @property
    def tells_unfamiliar(self) -> bool:
        """Whether there are rows to be far from."""
        held = 0 if self.real is None else int(self.real.queue.written)
        return held + self.config.slots_per_class > 0

    @reads
    def unfamiliarity(self, features: Tensor) -> Tensor:
        """Return how far each row lies from the rows that vote, ``(B,)``.

        See :mod:`hma.questions.unfamiliar`; infinite where nothing is stored.
        """
        held = 0 if self.real is None else self.real.queue.size
        memories, far = self.memories(), []
        for part in torch.split(features, max(1, MOST_DISTANCES // max(1, held))):
            keys = self.vote.keys(part)
            groups, _ = self.vote.groups(keys, memories, self.real)
            scores = [one[0] for one in self.vote.scores(keys, groups)]
            every = torch.cat([keys.new_empty(len(keys), 0), *scores], dim=1)  # (B, N)
            far.append(-every.logsumexp(dim=1))
        return torch.cat(far)

    def stored_samples(self, what: str) -> KeyedRows:
        """Return the store with one row for each sample, or say that ``what`` needs it."""
        if self.real is None or not isinstance(self.real.queue, KeyedRows):
            raise ConfigError(f"{what} needs stored rows, got memory_size=0; take VoteConfig()")
        return self.real.queue

    @reads
    def leave_one_out(self, own: Tensor, *, slots: bool = True) -> LeftOut:
        """Return what all others say of the stored rows at the places ``own``, ``(B,)``.

        Args:
            own: Places of stored rows.
            slots: Whether slots are among the others.
        """
        features = self.stored_samples("leave_one_out").features[own]
        memories = self.memories()
        memories = memories if slots else memories._replace(synthetic=None)
        assert self.real is not None
        assert memories.real is not None
        chosen = self.real.places(self.vote.queries(self.vote.keys(features)), memories.real)
        votes, groups = self.vote.leave_one_out(features, own, memories, chosen)
        heard = torch.stack([one[0].sum(dim=-1) for one in votes.shares]).sum(dim=0)  # (B,)
        held = self.real.queue.labels
        solved = [
            None if rows is None else vote.leave_one_out(rows, held[: len(rows.keys)], own)
            for vote, rows in zip(self.solved, memories.solved, strict=True)
        ]
        return LeftOut(
            counted=groups[0].mix(votes.shares[0])[0],
            logits=self._mix(self.head_logits(features), votes.logits, heard, solved),
            weights=votes.shares[0][0],
            places=None if chosen is None else chosen[0],
        )

    @property
    def memory_share(self) -> float | None:
        """What stored rows count in an answer beside the head."""
        return float(sum((solved.share for solved in self.solved), self.vote.share))

    def describe(self) -> str:
        """Return in words what kind of memory this is."""
        held = 0 if self.real is None else int(self.real.queue.written)
        also = " and say what was solved for" if self.solved and held <= MOST_SEARCHED else ""
        if also and held > MOST_SOLVED:
            also += f" ({NEAREST} near each query together)"
        return (
            f"rows near a query vote for their labels{also}, by keys of width "
            f"{self.config.key_dim:,}; they have {self.memory_share:.0%} of the answer, "
            "the head has the rest"
        )

    # ---------------------------------------------------------------------- projections

    def _project(
        self,
        context: Context,
        labels_of: Tensor | None = None,
        rows: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> Memories:
        voting = self.vote.memories(self.real, self.synthetic, labels_of).hide(rows, slots)
        return voting._replace(solved=tuple(self.solve(labels_of, rows)))

    def solve(
        self, labels_of: Tensor | None = None, hidden: Tensor | None = None
    ) -> Iterator[SolvedRows | NearRows | None]:
        """Yield what stored rows say in each view; None if it has no share, or rows are too many.

        Args:
            labels_of, hidden: As :meth:`memories_with` takes labels and hidden rows.
        """
        if self.real is None:
            return
        queue = self.stored_samples("solved votes")
        whole = torch.compiler.is_compiling() or self.config.memory_size is not None
        held = queue.size if whole else int(queue.written)
        there, of_each = queue.filled()[:held], None
        if hidden is not None and hidden.dim() == 1:
            there = there & ~pad(hidden, (0, max(0, held - len(hidden))))[:held]
        elif hidden is not None:
            of_each = pad(hidden, (0, max(0, held - hidden.shape[1])))[:, :held]
        labels = (queue.labels if labels_of is None else queue.labels[labels_of])[:held]
        features, weight, names = queue.features[:held], queue.weight[:held], None
        if not torch.compiler.is_compiling() and 0 < held <= MOST_SOLVED:
            names = fingerprints(features, weight)
        for solved in self.solved:
            rows, asked = None, torch.compiler.is_compiling() or float(solved.share) > 0
            if asked:
                rows = solved.rows(
                    self.view_of(solved, features),
                    labels,
                    there,
                    weight,
                    names=names,
                    behind=list(self.vote.parameters()) if solved.view == "keys" else (),
                    keep=hidden is None,
                )
            yield rows if rows is None or of_each is None else replace(rows, hidden=of_each)

    def _behind_memories(self) -> Iterator[Tensor]:
        for module in (self.real, self.synthetic, self.vote, *self.solved):
            if module is not None:
                yield from module.parameters()
                yield from module.buffers()

    @property
    def _grows(self) -> bool:
        return self.config.memory_size is None


# ------------------------------------------------------------------------- exact parts of an answer


def exact_parts(
    model: "VotingMemory",
    head: Tensor,
    queue: Tensor,
    slots: Tensor,
    places: Tensor,
    ways: Tensor,
    solved: Sequence[tuple[SolvedParts | NearParts, Tensor]] = (),
) -> ExactParts:
    r"""Return what predictions are made of.

    .. math:: p_c = s_0 (1 - u)\, p_{head,c} + s_c \frac{\sum_j w_j y_{jc} + \epsilon e_c}
        {\sum_j w_j + \epsilon} + \sum_v s_v\, p_{v,c}

    with :math:`s_c = s_1`, and :math:`u = 0`, but for classes that were added, see
    :mod:`hma.vote.added_classes`: there :math:`s_c = s_0 + s_1`, and the vote's :math:`u` is
    theirs.

    Args:
        model: Whose predictions.
        head: Logits of the head, ``(B, outputs)``.
        queue, slots: Weights of stored rows ``(B, N)`` and slots ``(B, S)``.
        places: Where the stored rows lie, ``(N,)``.
        ways: What head, vote and solved votes count, ``(2 + V, B)``.
        solved: Parts of each solved vote, and its whole answer.
    """
    target = model.target
    even = target.expected(target.tally(head.new_zeros(1, target.ballot_width)))  # (1, O)
    stored, learned = model.real, model.synthetic
    states = [
        target.stated(stored.queue.labels[places]) if stored is not None else even[:0],
        target.stated(learned.labels) if learned is not None else even[:0],
    ]
    known = [(~one.isnan()).to(queue) for one in states]
    states = [one.nan_to_num().to(queue) for one in states]
    left, share = (one.to(queue).view(-1, *[1] * (even.dim() - 1)) for one in ways[:2])
    total = queue @ known[0] + slots @ known[1] + NO_VOTE  # (B, O)
    counts = share / total
    if target.beyond_head:
        new = slice(even.shape[1] - target.beyond_head, None)
        counts[:, new] = (left + share) / total[:, new]
        left = left * (1 - ((queue @ states[0])[:, new] / total[:, new]).sum(dim=1, keepdim=True))
    said = [parts.total().reshape(whole.shape).to(queue) for parts, whole in solved]
    prior = [whole.to(queue) - rows for (_, whole), rows in zip(solved, said, strict=True)]
    nothing = torch.zeros_like(counts)
    return ExactParts(
        head=left * target.expected(head).to(queue),
        from_queue=counts * (queue @ states[0]) + sum(said, nothing),
        from_slots=counts * (slots @ states[1]),
        even=counts * NO_VOTE * even.to(queue) + sum(prior, nothing),
        linear=nothing,
        queue_weights=queue,
        slot_weights=slots,
        counts=counts,
        queue_states=states[0],
        slots_state=states[1],
        solved=tuple(parts for parts, _ in solved),
    )
