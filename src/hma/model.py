"""What every memory promises: all that is outside asks this class, never which design it is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import torch
from torch import Tensor, nn

from hma.checks import expect_finite, expect_shape, expect_tensor, other_sizes
from hma.io.hub import HubMixin
from hma.memory.attribution import ExactParts, Shares
from hma.memory.growing import Growing, growing_names
from hma.memory.locking import ReadWriteLock, eval_mode, reads, writes
from hma.memory.memories import (
    LearnedRows,
    Memories,
    MemoryState,
    ProjectionCache,
    StoredRows,
    copy_memories,
)
from hma.memory.projected import Weights
from hma.memory.rows import (
    EncodedRows,
    KeyedRows,
    MemoryRows,
    check_ids,
    check_rows,
    expect_labels,
    gather_memory_rows,
    split_batch,
)
from hma.memory.slots import Examples, Start, find_prototypes, most_rows, slot_start
from hma.options.config import ConfigError
from hma.targets import Target

Context = Literal["batch", "alone", "anchors"]


class Output(NamedTuple):
    """Logits ``(B, C)`` of a batch and the backbone's features of it, ``(B, F)``."""

    logits: Tensor
    features: Tensor


class Trace(NamedTuple):
    """A prediction, and what it read of each memory; None where a read is off."""

    logits: Tensor
    real: Weights | None
    synthetic: Weights | None


class LeftOut(NamedTuple):
    """What all rows but their own say of stored rows.

    Shape:
        - ``counted`` ``(B, V)``: the ballots of stored rows, weighed; ``logits`` ``(B, outputs)``:
          the answer, slots and head included.
        - ``weights`` ``(B, K)``: of the stored rows that voted; ``places`` ``(B, K)``: which these
          are, None for all in order.
    """

    counted: Tensor
    logits: Tensor
    weights: Tensor
    places: Tensor | None


class MemoryModel(HubMixin, Growing, ABC):
    """A backbone, stored rows, learned rows and a linear head.

    ``forward`` reads and takes no labels, so labels cannot leak into a prediction; writing is
    :meth:`remember`. All state that outlives a call is a parameter or a buffer.

    Threads may share a model: any number of them may read (``forward``, :func:`hma.explain`,
    :func:`hma.contributions`, :func:`hma.audit`, :func:`hma.suspects`, :func:`hma.unfamiliarity`,
    :meth:`memory_state`, :func:`hma.save`), and whoever writes has it alone (:meth:`remember`,
    :meth:`forget`, :meth:`add_classes`, ``learn_memory``, ``load_state_dict``): a reader sees the
    model before a write or after it, never between. Training steps are not locked.

    Args:
        backbone: Any module that maps a batch to features ``(B, F)``.
        target: What a label is.
        feature_dim: Width of the features, ``F``.

    Attributes:
        real: The rows that are stored, or None; ``real.nearest`` chooses those that a query reads,
            see :class:`hma.vote.search.BestRows`.
        synthetic: The rows that are learned, or None.
        head: What the features say without a memory.
    """

    memory: ClassVar[str]
    """Short name of the design, as commands and checkpoints have it."""
    config: Any
    real: StoredRows | None
    synthetic: LearnedRows | None
    head: nn.Linear
    key_width: int = 0
    """How many of the features, the last ones, only keys are made of."""

    def __init__(self, backbone: nn.Module, target: Target, feature_dim: int) -> None:
        super().__init__()
        if feature_dim < 1:
            raise ValueError(f"feature_dim must be at least 1, got {feature_dim}")
        self.target = target
        self.num_classes = target.outputs
        self.num_labels = len(target.prototypes())
        self.feature_dim = feature_dim
        self.memory_frozen = False
        self._cache = ProjectionCache()
        self.lock = ReadWriteLock()
        self.backbone = backbone

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.head.weight.device

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read the model in eval mode while no other thread writes into it.

        Other readers go on meanwhile; where a part of the model is in training mode, they wait,
        and every part then gets its own mode back.
        """
        with self.lock.shared():
            if not any(part.training for part in self.modules()):
                yield
                return
        with self.lock.exclusive(), eval_mode(self):
            yield

    # ------------------------------------------------------------------------- reading

    @reads
    def forward(self, x: Any, *, context: Context | None = None) -> Tensor:
        """Return the logits of a batch, in the model's context or in the one given.

        Args:
            x: The batch, as the backbone takes it.
            context: Inference context; the model's own if not given.
        """
        return self.classify(self._encode(x), context=context)

    @reads
    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return the logits of a batch and its features, which may be known beforehand."""
        features = self._encode(x) if features is None else features
        return Output(self.classify(features), features)

    def _encode(self, x: Any) -> Any:
        """Return what the backbone makes of a batch."""
        return self.backbone(x)

    @reads
    def classify(self, features: Tensor, *, context: Context | None = None) -> Tensor:
        """Return the logits of features that the backbone has already made."""
        return self.trace(features, context=context, weights=False).logits

    @abstractmethod
    def trace(
        self,
        features: Tensor,
        *,
        context: Context | None = None,
        memories: Memories | None = None,
        weights: bool = True,
    ) -> Trace:
        """Return the logits of features, and what was read with which weights.

        Args:
            features: What the backbone made, ``(B, F)``.
            context: Inference context; the model's own if not given.
            memories: Read these instead of the model's own, as they are.
            weights: Whether the weights are asked for.
        """

    @abstractmethod
    def head_logits(self, features: Tensor) -> Tensor:
        """Return what the linear head alone says, ``(B, C)``."""

    @abstractmethod
    def attribute(
        self, features: Tensor, places: Tensor
    ) -> tuple[Tensor, Shares, ExactParts | None]:
        """Return logits, the share of each source, and exact parts where the answer is a sum.

        Args:
            features: What the backbone made, ``(B, F)``.
            places: Where the stored rows lie that are named, ``(N,)``.
        """

    def losses(self, output: Output, y: Tensor, *, ids: Tensor | None = None) -> Tensor:
        """Return the training loss of each row, ``(B,)``.

        Args:
            output: What :meth:`output` gave for the batch.
            y: True labels.
            ids: Sample ids, where they are known.
        """
        return self.target.loss(output.logits, y)

    def _validate(self, features: Tensor) -> Tensor:
        features = expect_tensor("features", features)
        expect_shape("features", features, None, self.feature_dim)
        if self.config.check_finite:
            expect_finite("features", features)
        return features

    # ------------------------------------------------------- what a row sees of others

    @property
    @abstractmethod
    def sees_batch(self) -> bool:
        """Whether a prediction may depend on the other rows of its batch."""

    @abstractmethod
    def allowed_context(self, context: Context) -> Context:
        """Return the context that is answered in when asked for ``context``, or refuse it."""

    @property
    @abstractmethod
    def context(self) -> Context:
        """What a row sees of others in eval mode: 'batch', 'alone' or 'anchors'."""

    @context.setter
    @abstractmethod
    def context(self, context: Context) -> None: ...

    # ---------------------------------------------------------- in a training loop

    @property
    def waits_for_rows(self) -> bool:
        """Whether slots are to start from training rows before the first step."""
        return False

    keeps_rows_of_steps: ClassVar[bool] = False
    """Whether :meth:`after_step` stores the rows of a step."""

    @property
    def keeps_step_features(self) -> bool:
        """Whether :meth:`after_step` may be given the features of the step itself."""
        return False

    def after_step(
        self,
        x: Any,
        y: Tensor,
        *,
        features: Tensor | None = None,
        ids: Tensor | None = None,
        ignore: Tensor | None = None,
    ) -> None:
        """Do what the memory needs after each ``optimizer.step()``; as :meth:`remember` takes it.

        One training loop serves every memory: those that are learned after training do nothing.
        """

    def after_training(
        self,
        rows: Callable[[], EncodedRows | None],
        held_out: Callable[[], EncodedRows | None],
        *,
        like: Mapping[str, Any] | None = None,
        seed: int = 0,
        tick: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Learn what is learned when backbone and head are trained; return what a record says.

        Args:
            rows: Gives the training rows, encoded; called only where they are needed.
            held_out: The same of rows that nothing was learned from.
            like: What an earlier call returned, whose held-out rows decided.
            seed: Decides every random draw.
            tick: Called after each step.
        """
        return {}

    # ------------------------------------------------------------------------- writing

    @writes
    @torch.no_grad()
    def remember(
        self,
        x: Any,
        y: Tensor,
        *,
        features: Tensor | None = None,
        ignore: Tensor | None = None,
        ids: Tensor | None = None,
    ) -> None:
        """Write labelled rows into the real memory; without one it does nothing.

        Under ``torch.distributed`` the rows of all ranks enter every rank's memory in rank order;
        every rank must call. Rows whose features are not finite are left out.

        Args:
            x: The batch, as the backbone takes it; unused if ``features`` are given.
            y: True labels, class ids ``(B,)`` or as the target has them.
            features: Features to store, ``(B, F)``, where the backbone need not run again.
            ignore: Rows not to store, ``(B,)`` of bool.
            ids: Sample ids ``(B,)``, returned by :func:`hma.explain`; -1 where not given. Of rows
                with the same id a memory with a row for each sample keeps the last.
        """
        self._expect_writable("write")
        self._before_write()
        if self.real is None or not self.config.has_real_memory:
            return
        if features is None:
            features = self.encode_for_memory(x)
        given = expect_tensor("features", features).detach()
        expect_shape("features", given, None, self.feature_dim)
        if self.config.check_finite:
            expect_finite("features", given)
        rows = check_rows(self.target, given.to(self.device), y, ignore, ids)
        self._write(gather_memory_rows(rows))

    def _before_write(self) -> None:
        """Warn of what a loop may have left out."""

    @abstractmethod
    def _write(self, rows: MemoryRows) -> None:
        """Put rows that were checked into the real memory."""

    @abstractmethod
    def encode_for_memory(self, x: Any) -> Tensor:
        """Return the features that :meth:`remember` would store for a batch, ``(B, F)``."""

    def forget(self, ids: Tensor) -> int:
        """Take the rows of these samples out of the real memory; return how many there were."""
        self._refuse("forget")

    def add_classes(self, count: int) -> range:
        """Let ``count`` more classes be taught by :meth:`remember` alone; return their ids."""
        self._refuse("add_classes")

    def expect_growing(self) -> None:
        """Raise unless classes can be added."""
        self._refuse("added classes")

    @writes
    def reset_memory(self) -> None:
        """Forget every remembered row; slots and weights stay."""
        self._expect_writable("reset it")
        if self.real is not None:
            self.real.queue.clear()

    @writes
    def freeze_memory(self, frozen: bool = True) -> None:
        """Fix the memory for serving: nothing more is written, keys and values are projected once.

        Compiled and exported programs then carry the projection as a constant. ``train()``
        drops it, and ``freeze_memory(False)`` makes the memory writable again.
        """
        self.memory_frozen = frozen
        self.reproject()

    @reads
    def memory_state(self) -> MemoryState:
        """Return a copy of what the memories hold now."""
        none = self.head.weight.new_empty(0, self.feature_dim)
        return copy_memories(self.real, self.synthetic, none, self.memory_frozen)

    def _expect_writable(self, verb: str) -> None:
        if self.memory_frozen:
            raise RuntimeError(f"the memory is frozen; call model.freeze_memory(False) to {verb}")

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(
            f"{what} needs a memory whose rows vote, one for each sample, got "
            f"{type(self).__name__}; take hma.VotingMemory"
        )

    # ------------------------------------------------------------------ starting slots

    @writes
    def set_slots(
        self,
        start: str | Start,
        features: Tensor | None = None,
        y: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        """Start the slots anew; without slots it does nothing.

        Slots of a class that ``y`` does not hold stay as they are, with a warning. Under
        ``torch.distributed`` every rank must call, and gets the slots of the first.

        Args:
            start: 'normal' or 'zeros'; from data: 'samples', 'class_means', 'kmeans' or
                'distilled'; or a function as those of :mod:`hma.memory.slots`.
            features: Features of examples, ``(N, F)``; those that are not finite are left out.
            y: Their labels.
            generator: Of the CPU, draws what is random of a start from data; torch's own if not
                given.
        """
        if (features is None) != (y is None):
            raise ValueError("features and y must be given together, or neither")
        examples = None
        if features is not None and y is not None:
            expect_shape("features", features, None, self.feature_dim)
            finite = features.isfinite().all(dim=1)
            belongs = find_prototypes(y, len(features), self.target).to(features.device)
            examples = Examples(features.detach()[finite], belongs[finite], generator)
        fill = slot_start(start)
        if self.synthetic is not None:
            self.synthetic.restart(fill, examples)

    @writes
    @torch.no_grad()
    def start_slots(self, batches: Iterable[Any]) -> None:
        """Start the slots as ``config.slot_init`` says, from rows encoded in eval mode.

        Call it once, before the first step of your own training loop; slots that need no data or
        have been started stay.

        Args:
            batches: As :meth:`encode_rows` takes them; no more are taken than make some thousand
                rows.
        """
        if self.synthetic is None or not self.synthetic.waits:
            return
        rows = self.encode_rows(batches, most_rows(self.target, self.synthetic.slots_per_class))
        if rows is None:
            raise ValueError("batches must hold at least one row to start slots from, got none")
        self.set_slots(self.config.slot_init, rows.features, rows.y)

    @torch.no_grad()
    def encode_rows(
        self, batches: Iterable[Any], most: float = math.inf, *, name: str = "batches"
    ) -> EncodedRows | None:
        """Return the rows of batches as the backbone encodes them in eval mode; None without any.

        Args:
            batches: ``(x, y)`` or ``(x, y, ids)`` each; a dict with its labels as 'y', 'label' or
                'labels' and a PyG ``Batch`` with ``y`` will do too.
            most: Rows after which no more batches are taken.
            name: What errors call the batches.
        """
        features, labels, given = [], [], []
        with self.reading():
            for batch in batches:
                x, y, ids = split_batch(batch, name)
                features.append(expect_tensor("features", self.backbone(x)).detach())
                expect_labels(self.target, y, len(features[-1]), name)
                labels.append(y.to(self.device))
                if ids is not None:
                    given.append(check_ids(ids, len(features[-1]), self.device))
                if sum(map(len, labels)) >= most:
                    break
        if not features:
            return None
        if len(given) not in (0, len(features)):
            raise ValueError(
                f"ids must come with every batch or with none, got {len(given)} of {len(features)}"
            )
        every = torch.cat(given) if given else None
        return EncodedRows(torch.cat(features), torch.cat(labels), every)

    # ----------------------------------------------- what only rows that vote can answer

    @property
    def tells_unfamiliar(self) -> bool:
        """Whether :meth:`unfamiliarity` has an answer."""
        return False

    def unfamiliarity(self, features: Tensor) -> Tensor:
        """Return how far each row lies from the rows that vote, ``(B,)``."""
        self._refuse("unfamiliarity")

    def stored_samples(self, what: str) -> KeyedRows:
        """Return the store with one row for each sample, or say that ``what`` needs it."""
        self._refuse(what)

    def leave_one_out(self, own: Tensor, *, slots: bool = True) -> LeftOut:
        """Return what all others say of the stored rows at the places ``own``, ``(B,)``.

        Args:
            own: Places of stored rows.
            slots: Whether slots are among the others.
        """
        self._refuse("leave_one_out")

    @property
    def memory_share(self) -> float | None:
        """What the memory counts in an answer beside the head; None where both are one."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """Return in words what kind of memory this is."""

    # ------------------------------------------------- memories, projected or cached

    def memories(self, context: Context | None = None) -> Memories:
        """Return both memories projected; in eval mode only once for the same weights and rows."""
        # read once: another thread may set the model's context meanwhile
        context = self.context if context is None else self.allowed_context(context)
        if self.training:
            return self._project(context)
        if torch.compiler.is_compiling():
            held = self._cache.get_pinned(context) if self.memory_frozen else None
            return self._project(context) if held is None else held
        return self._cache.get(context, self._behind_memories(), partial(self._project, context))

    @reads
    def memories_with(
        self,
        *,
        context: Context | None = None,
        labels_of: Tensor | None = None,
        hidden_rows: Tensor | None = None,
        hidden_slots: Tensor | None = None,
    ) -> Memories:
        """Return the memories as they would be otherwise, for :meth:`trace`; nothing is changed.

        Args:
            context: Inference context; the model's own if not given.
            labels_of: Places whose labels stored rows take, ``(M,)``; their own if not given.
            hidden_rows, hidden_slots: What is not there, ``(M,)`` and ``(S,)`` of bool; ``(B, M)``
                and ``(B, S)`` for each query, where there are no anchors.
        """
        context = self.context if context is None else self.allowed_context(context)
        return self._project(context, labels_of, hidden_rows, hidden_slots)

    @abstractmethod
    def _project(
        self,
        context: Context,
        labels_of: Tensor | None = None,
        rows: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> Memories:
        """Return both memories as the reads see them, without what is hidden."""

    @abstractmethod
    def _behind_memories(self) -> Iterator[Tensor]:
        """Yield every tensor that decides what :meth:`_project` gives."""

    @reads
    def reproject(self) -> None:
        """Drop the cached projection; a frozen memory in eval mode is projected anew.

        Needed only after weights or rows were changed behind autograd's back, through
        ``tensor.data``: everything else is noticed.
        """
        self._cache.clear()
        if self.memory_frozen and not self.training and self._can_project():
            with torch.autocast(self.device.type, enabled=False):
                project = partial(self._project, self.context)
                self._cache.pin(self.context, self._behind_memories(), project)

    def _can_project(self) -> bool:
        return True

    @property
    def _grows(self) -> bool:
        """Whether the real memory holds any number of rows."""
        return False

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a change of it drops the cached projection."""
        with self.lock.shared():
            if all(part.training == mode for part in self.modules()):
                return self
        with self.lock.exclusive():
            changed = mode != self.training
            super().train(mode)
            if changed:
                self.reproject()
        return self

    @writes
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a state as any module does, while no other thread reads."""
        return super().load_state_dict(state_dict, strict, assign)

    @writes
    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.reproject()
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._cache.clear()
        theirs = {n.removeprefix(prefix): v for n, v in state_dict.items() if n.startswith(prefix)}
        growing = growing_names(self) if self._grows else ()
        sizes = other_sizes(self.state_dict(), theirs, self.num_labels, growing)
        args[-1].extend(sizes)  # error messages
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:  # noqa: D102
        return f"num_classes={self.num_classes}, feature_dim={self.feature_dim}"
