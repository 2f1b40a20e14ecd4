"""HMA, the paper's memory: attention over a queue of training rows, slots and the batch."""

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, final, get_args

import torch
from torch import Tensor, nn

from hma.attention.config import HMAConfig
from hma.attention.contrast import contrast_over_memory, expect_classes
from hma.attention.momentum import follow, stored_features
from hma.attention.reads import (
    joint_read,
    projected,
    read_in_turn,
    real_memory,
    synthetic_memory,
)
from hma.attention.tokens import LabelTokens
from hma.checks import expect_shape, expect_tensor, feature_dim_of
from hma.errors import wrong_choice
from hma.memory.attribution import ExactParts, Shares
from hma.memory.locking import reads, writes
from hma.memory.memories import Memories, MemoryState, copy_memories
from hma.memory.projected import Weights
from hma.memory.rows import MemoryRows
from hma.model import Context, MemoryModel, Output, Trace
from hma.options.config import ConfigError
from hma.targets import Target, one_target


@final
class HMA(MemoryModel):
    """Give a backbone a memory of past rows and a memory of learned ones, as the paper does.

    A token is a row's features beside the embedding of its label, unknown for a query. It attends
    to itself and the queue, then to its batch and the slots; a linear head reads the result. After
    ``optimizer.step()``, :meth:`remember` writes the batch and moves the momentum encoder.

    Args:
        backbone: Any module that maps a batch to features ``(B, F)``.
        num_classes: Number of logits, ``C``; 1 is a binary problem with one logit.
        config: Sizes and switches; :meth:`HMAConfig.ablation` has the rows of the paper's tables.
        target: What a label is, where it is not one of ``num_classes`` class ids: soft labels,
            several yes/no labels, a number; see :mod:`hma.targets`.
        feature_dim: Width of the features, ``F``; read from the backbone's ``num_features``
            or ``feature_dim`` if it has one.

    Attributes:
        momentum_encoder: Writes the queue; None where the backbone does not train or there is no
            queue.
        tokens: Joins features and label embeddings.

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

    memory: ClassVar[str] = "hma"
    keeps_rows_of_steps: ClassVar[bool] = True
    growing = ("anchors",)
    anchors: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int | None = None,
        config: HMAConfig | None = None,
        *,
        target: Target | None = None,
        feature_dim: int | None = None,
    ) -> None:
        config = config or HMAConfig()
        kind = one_target(num_classes, target)
        if config.contrastive:
            expect_classes(kind)
        if kind.beyond_head:
            raise ConfigError(
                "classes that were added need a memory whose rows vote, got HMA; take "
                "hma.VotingMemory"
            )
        feature_dim = feature_dim_of(backbone, feature_dim)
        super().__init__(backbone, kind, feature_dim)
        _expect_heads_fit(feature_dim, config)
        self.config: HMAConfig = config
        self._context: Context = config.context
        self.momentum_encoder = None
        if config.has_real_memory:
            self.momentum_encoder = follow(backbone, config.momentum, config.momentum_warmup)
        self.tokens = LabelTokens(kind, feature_dim, config.label_dim, config.width)
        self.real = real_memory(kind, feature_dim, config)
        self.synthetic = synthetic_memory(kind, feature_dim, config)
        self.joint = joint_read(feature_dim, config)
        self.register_buffer("anchors", torch.empty(0, feature_dim))
        if self.synthetic is not None:
            self.synthetic.begin()
        read = len(range(feature_dim + config.label_dim)[self._readout])
        self.head = nn.Linear(read, self.num_classes)

    # ------------------------------------------------------------------------- reading

    @reads
    def trace(
        self,
        features: Tensor,
        *,
        context: Context | None = None,
        memories: Memories | None = None,
        weights: bool = True,
    ) -> Trace:
        """Return the logits and the attention weights of both reads.

        Args:
            features: What the backbone made, ``(B, F)``.
            context: Inference context; the model's own if not given.
            memories: Read these instead of the model's own, as they are.
            weights: Whether the weights are asked for; a linear read makes them only then.
        """
        features = self._validate(features)
        # read once: another thread may set the model's context meanwhile
        context = self._context if context is None else self.allowed_context(context)
        memories = self.memories(context) if memories is None else memories
        tokens = self.tokens.mask(features)  # (B, F) -> (B, D)
        whole = self.config.batch_attention and (self.training or context == "batch")
        turn = partial(read_in_turn, self.synthetic) if self.joint is None else self.joint
        read, real, synthetic = turn(
            self.real, self.tokens.narrowed(tokens), memories, neighbours=whole, weights=weights
        )
        logits: Tensor = self.head(self.tokens.widened(tokens, read)[:, self._readout])
        return Trace(logits, real, synthetic)  # (B, D) -> (B, C)

    def head_logits(self, features: Tensor) -> Tensor:
        """Return what the linear head says of features that read nothing, ``(B, C)``."""
        logits: Tensor = self.head(self.tokens.mask(features)[:, self._readout])
        return logits

    def attribute(
        self, features: Tensor, places: Tensor
    ) -> tuple[Tensor, Shares, ExactParts | None]:
        """Return logits and shares of attention, followed through both reads to their sources."""
        logits, shares = attention_shares(self, features, places)
        return logits, shares, None

    @property
    def _readout(self) -> slice:
        slices = {
            "all": slice(None),
            "features": slice(None, self.feature_dim),
            "label": slice(self.feature_dim, None),
        }
        return slices[self.config.readout]

    # ------------------------------------------------------- what a row sees of others

    @property
    def sees_batch(self) -> bool:
        """Whether a prediction may depend on the other rows of its batch."""
        return self.config.batch_attention

    @property
    def context(self) -> Context:
        """What a row sees of others in eval mode: 'batch', 'alone' or 'anchors'."""
        return self._context

    @context.setter
    @writes
    def context(self, context: Context) -> None:
        self._context = self.allowed_context(context)
        self.reproject()

    def allowed_context(self, context: Context) -> Context:
        """Return ``context``, or say why this model cannot answer in it."""
        if context not in get_args(Context):
            raise ConfigError(wrong_choice("context", context, get_args(Context)))
        if context == "anchors" and not self.config.batch_attention:
            raise ConfigError("context='anchors' needs batch_attention=True, got False")
        return context

    @writes
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
            with self.reading():
                features = expect_tensor("features", self.backbone(x))
        expect_shape("features", features, None, self.feature_dim)
        with torch.inference_mode(False):
            self.anchors = features.detach().to(self.anchors, copy=True)
        self.reproject()

    # ------------------------------------------------------------- training and writing

    def losses(self, output: Output, y: Tensor, *, ids: Tensor | None = None) -> Tensor:
        """Return the training loss of each row, ``(B,)``: the target's, and its share of contrast.

        Args:
            output: What :meth:`output` gave for the batch.
            y: True labels.
            ids: Sample ids; without them contrast compares a row with its own stored copy.
        """
        each = super().losses(output, y)
        if self.config.contrastive:
            each = each + self.config.contrastive * self.contrast(output.features, y, ids=ids)
        return each

    @reads
    def contrast(self, features: Tensor, y: Tensor, *, ids: Tensor | None = None) -> Tensor:
        """Return the supervised contrastive loss of each row, ``(B,)``, whatever its weight.

        Rows are compared with their batch, with stored rows and with slots, by their features. See
        :func:`hma.attention.contrast.supervised_contrast`.

        Args:
            features: What the backbone made of the batch, ``(B, F)``.
            y: True labels.
            ids: Sample ids ``(B,)``; without them a row meets its own stored copy.
        """
        return contrast_over_memory(self, self._validate(features), y, ids)

    @property
    def waits_for_rows(self) -> bool:
        """Whether slots are to start from training rows before the first step."""
        return self.synthetic is not None and self.synthetic.waits

    @property
    def keeps_step_features(self) -> bool:
        """Whether the features of a step are those that the memory would be given after it."""
        # DIFF[paper 3.2]: with momentum=0 and a backbone that trains, the features are those of
        # before the step, as those of any momentum encoder are; encoding again would double the
        # cost.
        if self.momentum_encoder is not None:
            return False
        return not any(part.training for part in self.backbone.modules())

    def after_step(
        self,
        x: Any,
        y: Tensor,
        *,
        features: Tensor | None = None,
        ids: Tensor | None = None,
        ignore: Tensor | None = None,
    ) -> None:
        """Write the batch of a step; as :meth:`remember` takes it."""
        self.remember(x, y, features=features, ids=ids, ignore=ignore)

    def _before_write(self) -> None:
        if self.synthetic is not None:
            self.synthetic.warn_if_waiting()

    @torch.no_grad()
    def _write(self, rows: MemoryRows) -> None:
        assert self.real is not None
        queue = self.real.queue
        queue.write(rows, self.tokens.embed(rows.labels) if queue.keeps_label_values else None)
        if self.momentum_encoder is not None:
            self.momentum_encoder.update(self.backbone)

    @torch.no_grad()
    def encode_for_memory(self, x: Any) -> Tensor:
        """Return the features that :meth:`remember` would store for a batch, ``(B, F)``."""
        slow = self.momentum_encoder  # it takes over buffers of the backbone
        with self.reading() if slow is None else self.lock.exclusive():
            return stored_features(x, self.backbone, slow, self.config.momentum)

    @reads
    def memory_state(self) -> MemoryState:
        """Return a copy of what the memories hold now."""
        return copy_memories(self.real, self.synthetic, self.anchors, self.memory_frozen)

    def describe(self) -> str:
        """Return in words what kind of memory this is."""
        config = self.config
        if not config.reads_anything:
            return "none: the blocks are there without anything to read"
        width = self.feature_dim + config.label_dim if config.width is None else config.width
        return (
            f"the paper's: attention with {config.num_heads} heads over tokens of width {width:,}"
            f"{'' if config.attention == 'exact' else ', linear'}"
        )

    # ---------------------------------------------------------------------- projections

    def _project(
        self,
        context: Context,
        labels_of: Tensor | None = None,
        rows: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> Memories:
        anchors = self.anchors if context == "anchors" and not self.training else None
        parts = self.real, self.synthetic, self.tokens, anchors, labels_of
        if self.joint is not None:
            return self.joint.project(*parts, hidden=(rows, slots))
        return projected(*parts, rows).hide(slots=slots)

    def _can_project(self) -> bool:
        return self._context != "anchors" or len(self.anchors) > 0

    def _behind_memories(self) -> Iterator[Tensor]:
        yield self.anchors
        for module in (self.tokens, self.real, self.synthetic, self.joint):
            if module is not None:
                yield from module.parameters()
                yield from module.buffers()


def _expect_heads_fit(feature_dim: int, config: HMAConfig) -> None:
    """Raise unless the heads divide the width that is read."""
    heads, token = config.num_heads, feature_dim + config.label_dim
    if config.width is not None:
        if config.width % heads:
            fits = config.width + heads - config.width % heads
            raise ConfigError(
                f"num_heads must divide width, got {heads} and {config.width}; "
                f"width={fits} would fit"
            )
    elif token % heads:
        raise ConfigError(
            f"num_heads must divide feature_dim + label_dim, got {heads} and "
            f"{feature_dim} + {config.label_dim} = {token}; "
            f"label_dim={config.label_dim + heads - token % heads} would fit"
        )


def attention_shares(model: "HMA", features: Tensor, places: Tensor) -> tuple[Tensor, Shares]:
    """Return logits and the shares of attention, followed through the reads to their sources.

    The weights of both reads, averaged over heads, are followed back to what entered the model: a
    neighbour's share is split into what came from the neighbour itself and what it had read from
    the queue. Residual connections are not counted.

    Args:
        model: The model, in eval mode.
        features: What the backbone made, ``(B, F)``.
        places: Where the stored rows lie that are named, ``(N,)``.
    """
    context, trace = model.context, model.trace(features)
    anchors = model.anchors if context == "anchors" else model.anchors[:0]
    read_before = len(anchors) and model.joint is None
    anchor_trace = model.trace(anchors, context=context) if read_before else None
    count, size = len(features), 0 if model.real is None else model.real.queue.size
    own_real, queue_real = _first_read(trace.real, count, size, places)
    num_slots = 0 if model.synthetic is None else len(model.synthetic.classes)
    own, rest = _second_read(trace.synthetic, count, num_slots + len(anchors), features.device)
    slots, to_anchors = rest[:, :num_slots], rest[:, num_slots:]  # (B, S), (B, A)
    queue = queue_real if model.joint is not None else own @ queue_real  # (B, N)
    if anchor_trace is not None:
        own_anchor, queue_anchor = _first_read(anchor_trace.real, len(anchors), size, places)
        queue = queue + to_anchors @ queue_anchor
        to_anchors = to_anchors * own_anchor
    batch = own * own_real if model.joint is None else own  # (B, B): what came from each row itself
    itself = batch.diagonal().clone()  # (B,)
    batch = batch - torch.diag(itself)
    parts = [itself[:, None], queue, batch, to_anchors, slots]
    total = torch.cat(parts, dim=1).sum(dim=1, keepdim=True)  # below 1 where top_k dropped some
    itself, *others = (part / total for part in parts)
    return trace.logits, Shares(itself[:, 0], *others)


def _first_read(
    weights: Weights | None, count: int, size: int, places: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the share each row kept for itself ``(B,)`` and gave to queue rows ``(B, N)``."""
    if weights is None:
        return torch.ones(count, device=places.device), torch.zeros(count, 0, device=places.device)
    own = weights.own.float().mean(dim=0)[:, :1].sum(dim=1)  # (H, B, 1) -> (B,)
    return own, weights.over_rows(size)[:, places]  # (B, M) -> (B, N)


def _second_read(
    weights: Weights | None, count: int, rows: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the shares over the batch ``(B, B)`` and over slots and anchors ``(B, S + A)``."""
    if weights is None:
        return torch.eye(count, device=device), torch.zeros(count, 0, device=device)
    own = weights.own.float().mean(dim=0)  # (H, B, B or 1) -> (B, B or 1)
    if own.shape[1] != count or weights.own.shape[-1] == 1:
        own = torch.diag(own[:, 0])
    return own, weights.over_rows(rows)
