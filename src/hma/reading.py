"""From a batch to logits: backbone, both memories, head. Reading only; see ``writing.py``."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from hma.added_classes import with_silence
from hma.cache import ProjectionCache
from hma.checks import expect_finite, expect_shape, expect_sizes, expect_tensor, other_sizes
from hma.config import Context, HMAConfig
from hma.contexts import allowed_context
from hma.growing import Growing, growing_names
from hma.memory import Memories, real_memory, synthetic_memory
from hma.momentum import follow
from hma.output import Output
from hma.queue import checked_ids
from hma.reads import Trace, joint_read, projected, read_in_turn
from hma.targets import Target
from hma.tokens import LabelTokens
from hma.views import TwoViews
from hma.voting import VotingRead, voting_read


class MemoryReader(Growing):
    """Lead features through the real memory, the synthetic memory and a linear head.

    Args:
        backbone: Any module that maps a batch to features ``(B, F)``.
        target: What a label is.
        feature_dim: Width of the features, ``F``.
        config: Sizes and switches.
        key_width: How many features, the last ones, keys alone are made of; 0 for a backbone
            with one view, of which head and keys read all.
    """

    growing = ("anchors",)
    anchors: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        target: Target,
        feature_dim: int,
        config: HMAConfig,
        key_width: int = 0,
    ) -> None:
        super().__init__()
        expect_sizes(feature_dim, config)
        self.config = config
        self.target = target
        self.num_classes = target.outputs
        self.num_labels = len(target.prototypes())
        self.feature_dim = feature_dim
        self.key_width = key_width
        self.memory_frozen = False
        self._context: Context = "alone" if config.votes else config.context
        self._cache = ProjectionCache()

        self.backbone = backbone
        averaged = config.has_real_memory and not config.votes
        self.momentum_encoder = (
            follow(backbone, config.momentum, config.momentum_warmup) if averaged else None
        )
        label_dim = 0 if config.votes else config.label_dim
        width = None if config.votes else config.width
        self.tokens = LabelTokens(target, feature_dim, label_dim, width)
        self.real = real_memory(target, feature_dim, config)
        self.synthetic = synthetic_memory(target, feature_dim, config)
        self.joint = joint_read(feature_dim, config)
        self.register_buffer("anchors", torch.empty(0, feature_dim))
        if self.synthetic is not None:
            self.synthetic.begin()
        read = len(range(feature_dim + label_dim)[self._readout])
        self.head = nn.Linear(read, self.num_classes - target.beyond_head)
        self.vote: VotingRead | None = None
        if config.votes:
            self.vote = voting_read(target, feature_dim, key_width, config)
        if config.mixes and self.synthetic is not None:
            self.synthetic.requires_grad_(False)  # learned with the keys, not with the backbone
        if self.vote is not None and config.vote == "alone":
            self.vote.gate.requires_grad_(False)  # the votes themselves are the answer
            for weight in self.head.parameters():
                nn.init.zeros_(weight.requires_grad_(False))

    def forward(
        self, x: Any, *, context: Context | None = None, ids: Tensor | None = None
    ) -> Tensor:
        """Return the logits of a batch, in the model's context or in the one given.

        Args:
            x: The batch, as the backbone takes it.
            context: Inference context; the model's own if not given.
            ids: Sample ids ``(B,)``; in training a row does not read its own stored copy.
        """
        return self.classify(self._encoded(x), context=context, ids=ids)

    def output(self, x: Any, features: Tensor | None = None, ids: Tensor | None = None) -> Output:
        """Return the logits of a batch and its features, which may be known beforehand."""
        features = self._encoded(x) if features is None else features
        return Output(self.classify(features, ids=ids), features)

    def _encoded(self, x: Any) -> Any:
        """Return what the backbone makes of a batch, without what keys alone would read."""
        if self.training and self.config.mixes and isinstance(self.backbone, TwoViews):
            return self.backbone.without_keys(x)  # they learn when its training is over
        return self.backbone(x)

    def classify(
        self, features: Tensor, *, context: Context | None = None, ids: Tensor | None = None
    ) -> Tensor:
        """Return the logits of features that the backbone has already made."""
        if self.training and self.config.mixes:
            return self.headed(self._checked(features))
        if self.vote is not None and self.training and self.real is not None:
            return self._learned_vote(self._checked(features), ids)
        return self.trace(features, context=context, weights=False).logits

    def _learned_vote(self, features: Tensor, ids: Tensor | None) -> Tensor:
        """Return the logits of a training batch whose rows do not meet themselves."""
        assert self.vote is not None
        assert self.real is not None
        if ids is None and self.config.leave_self_out:
            raise ValueError(
                "ids must be given in training: without them a row would find its own stored copy, "
                "with its label; pass model(x, ids=ids), such as places in the data set, or set "
                "leave_self_out=False"
            )
        if ids is not None:
            ids = checked_ids(ids, len(features), features.device)
        votes = self.vote.learn(
            features,
            self.real,
            self.synthetic,
            ids=ids if self.config.leave_self_out else None,
            candidates=self.config.candidates,
            batch=self.config.batch_attention,
            gather=self.config.gather_batch,
        )
        return self.headed(features, votes.mixed) + votes.logits

    def headed(self, tokens: Tensor, mixed: Tensor | None = None) -> Tensor:
        """Return what the linear head alone says of features, or of tokens after the reads.

        ``mixed``, ``(B, F)``, is what it reads in their place where rows have values.
        """
        read = tokens[:, self._readout] if mixed is None else mixed
        logits: Tensor = self.head(read)  # (B, D) -> (B, C)
        return with_silence(logits, self.target, self.config)

    def _checked(self, features: Tensor) -> Tensor:
        features = expect_tensor("features", features)
        expect_shape("features", features, None, self.feature_dim)
        if self.config.check_finite:
            expect_finite("features", features)
        return features

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
        features = self._checked(features)
        # read once: another thread may set the model's context meanwhile
        context = self._context if context is None else allowed_context(context, self.config)
        memories = self._memories(context) if memories is None else memories
        if self.vote is not None:
            ballot = self.vote.answer(features, memories, self.real, weights=weights)
            logits = self.vote.joined(self.headed(features, ballot.mixed), ballot)
            return Trace(logits, ballot.stored, ballot.learned)
        tokens = self.tokens.mask(features)  # (B, F) -> (B, D)
        whole = self.config.batch_attention and (self.training or context == "batch")
        turn = partial(read_in_turn, self.synthetic) if self.joint is None else self.joint
        read, real, synthetic = turn(
            self.real, self.tokens.narrowed(tokens), memories, neighbours=whole, weights=weights
        )
        return Trace(self.headed(self.tokens.widened(tokens, read)), real, synthetic)

    @property
    def context(self) -> Context:
        """What a row sees of others in eval mode: 'batch', 'alone' or 'anchors'."""
        return self._context

    @context.setter
    def context(self, context: Context) -> None:
        self._context = allowed_context(context, self.config)
        self.reproject()

    @property
    def _readout(self) -> slice:
        if self.config.votes:
            return slice(None, self.feature_dim - self.key_width)
        slices = {
            "all": slice(None),
            "features": slice(None, self.feature_dim),
            "label": slice(self.feature_dim, None),
        }
        return slices[self.config.readout]

    # ------------------------------------------------- memories, projected or cached

    def _memories(self, context: Context) -> Memories:
        """Return both memories projected; in eval mode only once for the same weights and rows."""
        if self.training:
            return self._project(context)
        if torch.compiler.is_compiling():
            held = self._cache.pinned(context) if self.memory_frozen else None
            return self._project(context) if held is None else held
        return self._cache.get(context, self._behind_memories(), partial(self._project, context))

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
        context = self._context if context is None else allowed_context(context, self.config)
        return self._project(context, labels_of, hidden_rows, hidden_slots)

    def _project(
        self,
        context: Context,
        labels_of: Tensor | None = None,
        rows: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> Memories:
        if self.vote is not None:
            return self.vote.memories(self.real, self.synthetic, labels_of).hiding(rows, slots)
        anchors = self.anchors if context == "anchors" and not self.training else None
        parts = self.real, self.synthetic, self.tokens, anchors, labels_of
        if self.joint is not None:
            return self.joint.project(*parts, hidden=(rows, slots))
        return projected(*parts, rows).hiding(slots=slots)

    def reproject(self) -> None:
        """Drop the cached projection; a frozen memory in eval mode is projected anew.

        Needed only after weights or rows were changed behind autograd's back, through
        ``tensor.data``: everything else is noticed.
        """
        self._cache.clear()
        context = self._context
        unset = context == "anchors" and self.anchors.shape[0] == 0
        if self.memory_frozen and not self.training and not unset:
            with torch.autocast(self.anchors.device.type, enabled=False):
                project = partial(self._project, context)
                self._cache.pin(context, self._behind_memories(), project)

    def _behind_memories(self) -> Iterator[Tensor]:
        yield self.anchors
        for module in (self.tokens, self.real, self.synthetic, self.joint, self.vote):
            if module is not None:
                yield from module.parameters()
                yield from module.buffers()

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a change of it drops the cached projection."""
        changed = mode != self.training
        super().train(mode)
        if changed:
            self.reproject()
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.reproject()
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._cache.clear()
        theirs = {n.removeprefix(prefix): v for n, v in state_dict.items() if n.startswith(prefix)}
        unbounded = growing_names(self) if self.config.queue_size is None else ()
        problems = other_sizes(self.state_dict(), theirs, self.num_labels, unbounded)
        args[-1].extend(problems)  # error messages
        super()._load_from_state_dict(state_dict, prefix, *args)
