"""HMA: a backbone, a real memory, a synthetic memory and a linear head."""

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from hma.attention import MemoryRead, Weights
from hma.cache import ProjectionCache
from hma.checks import (
    expect_finite,
    expect_shape,
    expect_sizes,
    expect_tensor,
    feature_dim_of,
    other_sizes,
)
from hma.config import CHOICES, ConfigError, Context, HMAConfig, wrong_choice
from hma.hub import HubMixin
from hma.memory import Memories, MemoryState, RealMemory, SyntheticMemory
from hma.momentum import evaluating, follow, trains
from hma.queue import MemoryQueue, Rows, checked_rows, rows_of_all_ranks
from hma.tokens import LabelTokens


class Trace(NamedTuple):
    """A prediction and the attention of both reads that led to it; None where a read is off."""

    logits: Tensor
    real: Weights | None
    synthetic: Weights | None


class HMA(HubMixin, nn.Module):
    """Give a backbone a memory of past rows and a memory of learned ones.

    ``forward`` reads and takes no labels, so labels cannot leak into a prediction; writing
    is :meth:`remember`, called after ``optimizer.step()``.

    Args:
        backbone: Any module that maps a batch to features ``(B, F)``.
        num_classes: Number of logits, ``C``; 1 is a binary problem with one logit.
        config: Sizes and switches; the defaults are the paper's.
        feature_dim: Width of the features, ``F``; read from the backbone's ``num_features``
            or ``feature_dim`` if it has one.

    Shape:
        - input: whatever the backbone takes; output: ``(B, C)``.

    Example:
        >>> config = HMAConfig(queue_size=8, slots_per_class=2)
        >>> model = HMA(nn.Linear(5, 16), num_classes=3, config=config, feature_dim=16)
        >>> x, y = torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
        >>> model(x).shape
        torch.Size([4, 3])
        >>> model.remember(x, y)
        >>> model.memory_state().labels.tolist()
        [0, 1, 2, 0]
    """

    anchors: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        config: HMAConfig | None = None,
        *,
        feature_dim: int | None = None,
    ) -> None:
        super().__init__()
        config = config or HMAConfig()
        width = feature_dim_of(backbone, feature_dim)
        expect_sizes(num_classes, width, config)
        self.config = config
        self.num_classes = num_classes
        self.num_labels = max(num_classes, 2)  # one logit still tells two classes apart
        self.feature_dim = width
        self.frozen = False
        self._context: Context = config.context
        self._cache = ProjectionCache()

        self.backbone = backbone
        self.momentum_encoder = (
            follow(backbone, config.momentum) if config.has_real_memory else None
        )
        self.tokens = LabelTokens(self.num_labels, width, config.label_dim)
        keep = config.empty_reads == "keep"
        self.real = self._real_memory() if config.has_real_memory or keep else None
        self.synthetic = self._synthetic_memory() if config.has_synthetic_memory or keep else None
        self.register_buffer("anchors", torch.empty(0, width))
        self.head = nn.Linear(len(range(width + config.label_dim)[self._readout]), num_classes)

    def _real_memory(self) -> RealMemory:
        frozen = self.config.label_dim if self.config.queue_labels == "frozen" else None
        queue = MemoryQueue(self.config.queue_size, self.feature_dim, frozen)
        return RealMemory(queue, self._memory_read())

    def _synthetic_memory(self) -> SyntheticMemory:
        return SyntheticMemory(
            self.num_labels,
            self.feature_dim,
            self.config.slots_per_class,
            self.config.slot_init,
            self._memory_read(),
        )

    def _memory_read(self) -> MemoryRead:
        return MemoryRead(
            self.feature_dim + self.config.label_dim,
            self.config.num_heads,
            dropout=self.config.dropout,
            scale=self.config.scale,
            top_k=self.config.top_k,
            gather_batch=self.config.gather_batch,
        )

    # ------------------------------------------------------------------ reading

    def forward(self, x: Any) -> Tensor:
        """Return the logits of a batch."""
        return self.classify(self.backbone(x))

    def classify(self, features: Tensor) -> Tensor:
        """Return the logits of features that the backbone has already made."""
        return self.trace(features).logits

    def trace(self, features: Tensor) -> Trace:
        """Return the logits and the attention weights of both reads."""
        features = expect_tensor("features", features)
        expect_shape("features", features, None, self.feature_dim)
        if self.config.check_finite:
            expect_finite("features", features)
        memories = self._memories()
        tokens = self.tokens.mask(features)  # (B, F) -> (B, D)
        real = synthetic = None
        if self.real is not None:
            tokens, real = self.real.read.read(tokens, memories.real, neighbours=False)
        if self.synthetic is not None:
            tokens, synthetic = self.synthetic.read.read(
                tokens, memories.synthetic, neighbours=self._sees_neighbours
            )
        logits = self.head(tokens[:, self._readout])  # (B, D) -> (B, C)
        return Trace(logits, real, synthetic)

    @property
    def context(self) -> Context:
        """What a row sees of others in eval mode: 'batch', 'alone' or 'anchors'."""
        return self._context

    @context.setter
    def context(self, context: Context) -> None:
        if context not in CHOICES["context"]:
            raise ConfigError(wrong_choice("context", context, CHOICES["context"]))
        if context == "anchors" and not self.config.batch_attention:
            raise ConfigError("context='anchors' needs batch_attention=True, got False")
        self._context = context
        self._refresh()

    @property
    def _sees_neighbours(self) -> bool:
        return self.config.batch_attention and (self.training or self._context == "batch")

    @property
    def _readout(self) -> slice:
        slices = {
            "all": slice(None),
            "features": slice(None, self.feature_dim),
            "label": slice(self.feature_dim, None),
        }
        return slices[self.config.readout]

    # ------------------------------------------------- memories, projected or cached

    def _memories(self) -> Memories:
        """Return both memories projected; in eval mode only once for the same weights and rows."""
        if self.training:
            return self._project()
        if torch.compiler.is_compiling():
            held = self._cache.pinned(self._context) if self.frozen else None
            return self._project() if held is None else held
        return self._cache.get(self._context, self._behind_memories(), self._project)

    def _project(self) -> Memories:
        real = self.real.project(self.tokens) if self.real is not None else None
        if self.synthetic is None:
            return Memories(real, None)
        anchors = None
        if self._context == "anchors" and not self.training:
            if len(self.anchors) == 0:
                raise RuntimeError(
                    "context='anchors' needs an anchor batch; call model.set_anchors(x) first"
                )
            anchors = self.tokens.mask(self.anchors)  # (A, F) -> (A, D)
            if self.real is not None:
                anchors = self.real.read(anchors, real, neighbours=False)
        return Memories(real, self.synthetic.project(self.tokens, anchors))

    def _refresh(self) -> None:
        """Drop the cached projection; a frozen memory in eval mode is projected anew."""
        self._cache.clear()
        unset = self._context == "anchors" and self.anchors.shape[0] == 0
        if self.frozen and not self.training and not unset:
            with torch.autocast(self.anchors.device.type, enabled=False):
                self._cache.pin(self._context, self._behind_memories(), self._project)

    def _behind_memories(self) -> Iterator[Tensor]:
        yield self.anchors
        for module in (self.tokens, self.real, self.synthetic):
            if module is not None:
                yield from module.parameters()
                yield from module.buffers()

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a change of it drops the cached projection."""
        changed = mode != self.training
        super().train(mode)
        if changed:
            self._refresh()
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._refresh()
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._cache.clear()
        stored = state_dict.get(prefix + "anchors")
        if isinstance(stored, Tensor) and stored.shape[1:] == self.anchors.shape[1:]:
            self.anchors = self.anchors.new_empty(stored.shape)  # any number of anchors fits
        theirs = {n.removeprefix(prefix): v for n, v in state_dict.items() if n.startswith(prefix)}
        args[-1].extend(other_sizes(self.state_dict(), theirs, self.num_labels))  # error messages
        super()._load_from_state_dict(state_dict, prefix, *args)

    # ------------------------------------------------------------------ writing

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
        """Write a batch into the real memory and move the momentum encoder one step.

        Call it after ``optimizer.step()``. Without a queue it does nothing, so one training
        loop serves every ablation. Under ``torch.distributed`` the rows of all ranks enter
        every rank's queue in rank order; every rank must call.

        Args:
            x: The batch, as the backbone takes it; unused if ``features`` are given.
            y: True class ids ``(B,)``.
            features: Features to store, ``(B, F)``, where the backbone need not run again.
            ignore: Rows not to store, ``(B,)`` of bool.
            ids: Sample ids ``(B,)``, returned by :func:`hma.explain`; -1 where not given.
        """
        if self.frozen:
            raise RuntimeError("the memory is frozen; call model.freeze_memory(False) to write")
        if self.real is None or self.real.queue.size == 0:
            return
        given = (features if features is not None else self._encode(x)).detach()
        expect_shape("features", given, None, self.feature_dim)
        if self.config.check_finite:
            expect_finite("features", given)
        rows = checked_rows(given.to(self.anchors.device), y, ignore, ids, self.num_labels)
        rows = rows_of_all_ranks(rows)
        values = self.tokens.embed(rows.labels) if self.real.queue.frozen_labels else None
        self.real.queue.write(rows, values)
        if self.momentum_encoder is not None:
            self.momentum_encoder.update(self.backbone)

    def _encode(self, x: Any) -> Tensor:
        if self.momentum_encoder is not None:
            self.momentum_encoder.copy_buffers(self.backbone)
            return expect_tensor("features", self.momentum_encoder(x))
        if self.config.momentum and trains(self.backbone):
            warnings.warn(
                "the backbone was frozen when HMA was built and trains now, so no momentum "
                "encoder follows it; unfreeze before building HMA, or set momentum=0",
                stacklevel=3,
            )
        with evaluating(self.backbone):
            return expect_tensor("features", self.backbone(x))

    @torch.no_grad()
    def set_anchors(self, x: Any = None, *, features: Tensor | None = None) -> None:
        """Store a support batch that every row sees in context 'anchors', instead of its own batch.

        Args:
            x: The batch, as the backbone takes it; unused if ``features`` are given.
            features: Features of the anchors, ``(A, F)``.
        """
        if not self.config.batch_attention:
            raise ConfigError("set_anchors needs batch_attention=True, got False")
        if features is None:
            with evaluating(self.backbone):
                features = expect_tensor("features", self.backbone(x))
        expect_shape("features", features, None, self.feature_dim)
        with torch.inference_mode(False):
            self.anchors = features.detach().to(self.anchors, copy=True)
        self._refresh()

    # ------------------------------------------------------------- the memory itself

    def freeze_memory(self, frozen: bool = True) -> None:
        """Fix the memory for serving: nothing more is written, keys and values are projected once.

        Compiled and exported programs then carry the projection as a constant. ``train()``
        drops it, and ``freeze_memory(False)`` makes the memory writable again.
        """
        self.frozen = frozen
        self._refresh()

    def reset_memory(self) -> None:
        """Forget every remembered row; slots, anchors and weights stay."""
        if self.frozen:
            raise RuntimeError("the memory is frozen; call model.freeze_memory(False) to reset it")
        if self.real is not None:
            self.real.queue.clear()

    def memory_state(self) -> MemoryState:
        """Return a copy of what the memories hold now."""
        empty = self.anchors.new_empty(0, self.feature_dim)
        none = torch.empty(0, dtype=torch.long, device=empty.device)
        rows = self.real.queue.rows() if self.real is not None else Rows(empty, none, none)
        slots = self.synthetic.slots if self.synthetic is not None else None
        classes = self.synthetic.classes if self.synthetic is not None else none
        return MemoryState(
            features=rows.features.clone(),
            labels=rows.labels.clone(),
            ids=rows.ids.clone(),
            slots=empty.clone() if slots is None else slots.detach().clone(),
            slot_classes=classes.clone(),
            anchors=self.anchors.clone(),
            frozen=self.frozen,
        )

    def extra_repr(self) -> str:  # noqa: D102
        return f"num_classes={self.num_classes}, feature_dim={self.feature_dim}"
