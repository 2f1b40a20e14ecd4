"""Both memories of a model: stored rows and slots, their projections, and a copy of them."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hma.memory.distributed import share_first_rank
from hma.memory.projected import Group, LabelledRows, Nearest, Projected
from hma.memory.rows import MemoryQueue
from hma.memory.slots import FROM_NOTHING, Examples, Start, slot_start
from hma.options.config import SlotInit
from hma.targets import Target


class StoredRows(nn.Module):
    """Past training rows, whoever reads them.

    Args:
        queue: Where the rows are kept.

    Attributes:
        nearest: Chooses the rows that each query reads, see :mod:`hma.vote.search`; None for all.
            It is a choice of the running program and not saved.
    """

    def __init__(self, queue: MemoryQueue) -> None:
        super().__init__()
        self.queue = queue
        self.nearest: Nearest | None = None

    def unseen(self) -> Tensor:
        """Return a bias that hides the places where no row is, ``(M,)``."""
        # DIFF[released code]: it starts from noise and attends to it; the paper's queue is empty.
        features = self.queue.features
        hidden = features.new_full((len(features),), float("-inf"))
        return hidden.masked_fill(self.queue.filled(), 0.0)

    def places(self, queries: Tensor, rows: Projected | LabelledRows) -> Tensor | None:
        """Return the places of the rows that ``nearest`` lets queries read; None for all."""
        placed = rows.placed if isinstance(rows, LabelledRows) else rows
        return None if self.nearest is None else self.nearest(queries, placed)

    def choose(
        self, queries: Tensor, rows: Projected | LabelledRows
    ) -> tuple[Group, Tensor | None]:
        """Return the rows that queries read, and their places; None for all."""
        places = self.places(queries, rows)
        return (rows if places is None else rows.at(places)), places


class LearnedRows(nn.Module):
    """Learnable rows, ``slots_per_class`` for each class, whoever reads them.

    Args:
        target: What a label is; each of its prototypes has slots, as a class has.
        feature_dim: Width of a slot, ``F``.
        slots_per_class: Slots of each class.
        start: How slots start, see :mod:`hma.memory.slots`; by noise until there is data, if it
            needs any.
    """

    classes: Tensor
    labels: Tensor
    waiting: Tensor | None

    def __init__(
        self, target: Target, feature_dim: int, slots_per_class: int, start: SlotInit = "normal"
    ) -> None:
        super().__init__()
        self.start = start
        labels = target.prototypes().repeat_interleave(slots_per_class, dim=0)  # (S, ...)
        classes = torch.arange(len(target.prototypes())).repeat_interleave(slots_per_class)
        self.slots_per_class = slots_per_class
        self.slots: nn.Parameter | None = None
        if slots_per_class:
            self.slots = nn.Parameter(torch.zeros(len(labels), feature_dim))
        self.register_buffer("classes", classes, persistent=False)  # (S,)
        self.register_buffer("labels", labels, persistent=False)
        waits = bool(slots_per_class) and start not in FROM_NOTHING
        self.register_buffer("waiting", torch.tensor(True) if waits else None)
        self._warned = False

    def begin(self) -> None:
        """Give every slot a value while there is no data."""
        waits = self.waiting is not None
        self._fill(slot_start("normal" if waits else self.start), None)

    @torch.no_grad()
    def restart(self, start: Start, examples: Examples | None = None) -> None:
        """Give every slot a first value; all ranks get that of the first."""
        self._fill(start, examples)
        if self.slots is not None:
            share_first_rank(self.slots)
        if self.waiting is not None:
            self.waiting.fill_(False)

    @torch.no_grad()
    def _fill(self, start: Start, examples: Examples | None) -> None:
        if self.slots is not None:
            self.slots.copy_(start(self.slots, self.classes, examples))

    @property
    def waits(self) -> bool:
        """Whether slots that are to start from data have been given none yet."""
        return self.waiting is not None and bool(self.waiting)

    def warn_if_waiting(self) -> None:
        """Say once that training goes on with slots that were to start from data."""
        if not self._warned and self.waits:
            warnings.warn(
                f"slot_init={self.start!r} needs rows and has been given none, so the slots start "
                "as noise; call model.start_slots(batches) before the first step",
                stacklevel=4,
            )
        self._warned = True

    def extra_repr(self) -> str:  # noqa: D102
        return f"slots are noise until {self.start!r} is given rows" if self.waits else ""


class Memories(NamedTuple):
    """Both memories as the reads see them now; None where there is nothing to read.

    Where one read serves both, ``real`` holds the rows of all, see :mod:`hma.attention.reads`.
    """

    real: Projected | LabelledRows | None
    synthetic: Projected | LabelledRows | None
    solved: tuple[Any, ...] = ()
    """What stored rows say where it was solved for, see :mod:`hma.vote.solved`."""

    def hide(self, rows: Tensor | None = None, slots: Tensor | None = None) -> "Memories":
        """Return them without stored rows or slots, as :meth:`Projected.hide` has it."""
        real, synthetic, solved = self
        return Memories(
            real if real is None or rows is None else real.hide(rows),
            synthetic if synthetic is None or slots is None else synthetic.hide(slots),
            solved,
        )


# ------------------------------------------------------------------------ projections that are kept


Key = tuple[object, ...]


class Held(NamedTuple):
    """A projection, what it was made from, and aliases that keep those addresses taken."""

    key: Key
    memories: Memories
    aliases: list[Tensor]


class ProjectionCache:
    """Remember the projected memories until a weight, a queue row or the context changes.

    Change is seen by each tensor's storage and version counter, so asking costs microseconds
    and never waits for the device. Writing through ``tensor.data`` moves neither: after that,
    call ``model.reproject()``.
    """

    def __init__(self) -> None:
        self._held: Held | None = None
        self._pinned: tuple[str, Memories] | None = None

    def get(
        self, context: str, behind: Iterable[Tensor], build: Callable[[], Memories]
    ) -> Memories:
        """Return what ``build`` gives for ``behind``, building only where something changed."""
        behind = list(behind)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in behind):
            return build()  # gradients must reach the memory
        try:
            key = _key(context, behind)
        except RuntimeError:  # tensors of inference mode have no version, of torch.func no address
            return build()
        held = self._held
        if held is None or held.key != key:
            self._held = held = None  # not both at once: rows may be many
            # a tensor born in inference mode could never again meet one that needs a gradient
            with torch.inference_mode(False), torch.no_grad():
                held = Held(key, build(), [tensor.detach() for tensor in behind])
            self._held = held
        return held.memories

    def pin(self, context: str, behind: Iterable[Tensor], build: Callable[[], Memories]) -> None:
        """Project now, for compilers to find."""
        with torch.no_grad():
            real, synthetic, solved = self.get(context, behind, build)
            copies = _copy_constants(real), _copy_constants(synthetic)
            self._pinned = context, Memories(*copies, solved)

    def get_pinned(self, context: str) -> Memories | None:
        """Return what was pinned for ``context``, unchecked: for compilers, which see constants."""
        if self._pinned is not None and self._pinned[0] == context:
            return self._pinned[1]
        return None

    def clear(self) -> None:
        """Forget the projection."""
        self._held = self._pinned = None


def _copy_constants(rows: Projected | LabelledRows | None) -> Projected | LabelledRows | None:
    """Return keys and values with storage of their own, as exporters want constants to be."""
    return _make_contiguous(rows) if isinstance(rows, Projected) else rows


def _make_contiguous(rows: Projected) -> Projected:
    summary = None if rows.summary is None else _make_contiguous(rows.summary)
    return Projected(rows.keys.contiguous(), rows.values.contiguous(), rows.bias, summary)


def _key(context: str, behind: list[Tensor]) -> Key:
    device = behind[0].device.type
    lower = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    versions = [(tensor.data_ptr(), tensor._version, tensor.dtype) for tensor in behind]
    return (context, lower, *versions)


# --------------------------------------------------------------------------------------- copied out


@dataclass(frozen=True)
class MemoryState:
    """What the memories hold now, copied out.

    Shape:
        - ``features`` ``(N, F)``, ``labels`` ``(N, ...)``, ``ids`` ``(N,)``: queue rows, oldest
          first; -1 (NaN where labels are no class ids) stands for what was never given.
        - ``slots`` ``(S, F)``, ``slot_classes`` ``(S,)``: which prototype of the target, or class.
        - ``anchors`` ``(A, F)``.
    """

    features: Tensor
    labels: Tensor
    ids: Tensor
    slots: Tensor
    slot_classes: Tensor
    anchors: Tensor
    frozen: bool


def copy_memories(
    real: StoredRows | None, synthetic: LearnedRows | None, anchors: Tensor, frozen: bool
) -> MemoryState:
    """Return a copy of what the memories hold now."""
    none = torch.empty(0, dtype=torch.long, device=anchors.device)
    features, labels, ids = anchors[:0], none, none
    if real is not None:
        features, labels, ids, *_ = real.queue.rows()  # copies
        labels = real.queue.target.given(labels)
    slots, classes = anchors[:0], none
    if synthetic is not None:
        slots = slots if synthetic.slots is None else synthetic.slots.detach()
        classes = synthetic.classes
    return MemoryState(
        features=features,
        labels=labels.clone(),
        ids=ids,
        slots=slots.clone(),
        slot_classes=classes.clone(),
        anchors=anchors.clone(),
        frozen=frozen,
    )
