"""HMA: a backbone, a real memory, a synthetic memory and a linear head."""

import math
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hma.added_classes import add_classes, expect_growing
from hma.checks import expect_finite, expect_shape, expect_tensor, feature_dim_of
from hma.config import ConfigError, HMAConfig
from hma.contrast import contrast_over_memory, expect_classes
from hma.encoded_rows import EncodedRows
from hma.hub import HubMixin
from hma.key_learning import learn_memory
from hma.keyed_rows import KeyedRows
from hma.memory_state import MemoryState, copied_out
from hma.momentum import evaluating, stored_features
from hma.output import Output
from hma.queue import checked_ids, checked_rows, rows_of_all_ranks
from hma.reading import MemoryReader
from hma.slots import Examples, Start, belonging, most_rows, slot_start
from hma.targets import Target, one_target
from hma.views import TwoViews, with_key_view


class HMA(HubMixin, MemoryReader):
    """Give a backbone a memory of past rows and a memory of learned ones.

    ``forward`` reads and takes no labels, so labels cannot leak into a prediction; writing
    is :meth:`remember`, called after ``optimizer.step()``.

    Args:
        backbone: Any module that maps a batch to features ``(B, F)``.
        num_classes: Number of logits, ``C``; 1 is a binary problem with one logit.
        config: Sizes and switches; :meth:`HMAConfig.paper` is the paper's.
        target: What a label is, where it is not one of ``num_classes`` class ids: soft labels,
            several yes/no labels, a number; see :mod:`hma.targets`.
        feature_dim: Width of the features, ``F``; read from the backbone's ``num_features``
            or ``feature_dim`` if it has one.
        key_encoder: What keys are made of, beside the backbone: a module that maps the same batch
            to ``(B, E)``, see :class:`hma.views.TwoViews`. By default a view of its inputs that
            the backbone offers by a method ``key_view``, or else its features.

    Shape:
        - input: whatever the backbone takes; output: ``(B, C)``.

    Example:
        >>> config = HMAConfig.paper(queue_size=8, slots_per_class=2)
        >>> model = HMA(nn.Linear(5, 16), num_classes=3, config=config, feature_dim=16)
        >>> x, y = torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
        >>> model(x).shape
        torch.Size([4, 3])
        >>> model.remember(x, y)
        >>> model.memory_state().labels.tolist()
        [0, 1, 2, 0]
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int | None = None,
        config: HMAConfig | None = None,
        *,
        target: Target | None = None,
        feature_dim: int | None = None,
        key_encoder: nn.Module | None = None,
    ) -> None:
        config = config or HMAConfig()
        kind, keys = one_target(num_classes, target), 0
        if key_encoder is not None and not config.votes:
            raise ConfigError(
                "key_encoder needs similarity='distance', got 'dot'; leave it out, or take "
                "HMAConfig()"
            )
        if config.contrastive:
            expect_classes(kind)
        if kind.beyond_head:
            expect_growing(kind, config)
        feature_dim = feature_dim_of(backbone, feature_dim)
        if config.votes:
            offered = config.key_view == "inputs"
            backbone, keys = with_key_view(backbone, key_encoder, feature_dim, offered=offered)
            feature_dim = backbone.feature_dim if isinstance(backbone, TwoViews) else feature_dim
        super().__init__(backbone, kind, feature_dim, config, keys)
        self._warned = False

    # ----------------------------------------------------------- what training lowers

    def losses(self, output: Output, y: Tensor, *, ids: Tensor | None = None) -> Tensor:
        """Return the training loss of each row, ``(B,)``: the target's, and its share of contrast.

        With ``vote='mixed'`` contrast has its share in :meth:`learn_memory` instead.

        Args:
            output: What :meth:`output` gave for the batch.
            y: True labels.
            ids: Sample ids, as :meth:`output` had them.
        """
        each = self.target.loss(output.logits, y)
        if self.config.contrastive and not self.config.mixes:
            each = each + self.config.contrastive * self.contrast(output.features, y, ids=ids)
        return each

    def contrast(self, features: Tensor, y: Tensor, *, ids: Tensor | None = None) -> Tensor:
        """Return the supervised contrastive loss of each row, ``(B,)``, whatever its weight.

        Rows are compared with their batch, with stored rows and with slots: by the keys of the
        vote, or, for 'dot', by the features. See :func:`hma.contrast.supervised_contrast`.

        Args:
            features: What the backbone made of the batch, ``(B, F)``.
            y: True labels.
            ids: Sample ids ``(B,)``; without them a row meets its own stored copy.
        """
        return contrast_over_memory(self, self._checked(features), y, ids)

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
        every rank's queue in rank order; every rank must call. Rows whose features are not
        finite are left out.

        Args:
            x: The batch, as the backbone takes it; unused if ``features`` are given.
            y: True labels, class ids ``(B,)`` or as the target has them.
            features: Features to store, ``(B, F)``, where the backbone need not run again.
            ignore: Rows not to store, ``(B,)`` of bool.
            ids: Sample ids ``(B,)``, returned by :func:`hma.explain`; -1 where not given. Of rows
                with the same id a memory with a row for each sample keeps the last.
        """
        if self.memory_frozen:
            raise RuntimeError("the memory is frozen; call model.freeze_memory(False) to write")
        if self.synthetic is not None and not self.config.mixes:
            self.synthetic.warn_if_waiting()
        if self.real is None or not self.config.has_real_memory:
            return
        self._warn_if_unlearned()
        if ids is None and self.training and self.needs_ids:
            raise ValueError(
                "ids must be given in training, so that no row reads its own stored copy; pass "
                "remember(x, y, ids=ids), or set leave_self_out=False"
            )
        if features is None:
            features = self.encode_for_memory(x)
        given = expect_tensor("features", features).detach()
        expect_shape("features", given, None, self.feature_dim)
        if self.config.check_finite:
            expect_finite("features", given)
        rows = checked_rows(self.target, given.to(self.anchors.device), y, ignore, ids)
        rows = rows_of_all_ranks(rows)
        values = self.tokens.embed(rows.labels) if self.real.queue.keeps_label_values else None
        self.real.queue.write(rows, values)
        if self.momentum_encoder is not None:
            self.momentum_encoder.update(self.backbone)

    def _warn_if_unlearned(self) -> None:
        """Say once, in training, that rows of a memory learned apart do not answer yet."""
        if self.training and self.config.mixes and not self._warned:
            self._warned = True
            warnings.warn(
                "rows that are remembered in training do not answer yet: with vote='mixed' call "
                "model.learn_memory(batches, held_out) once, when training is over, or take "
                "HMAConfig(vote='added') for keys that learn with the backbone",
                stacklevel=3,
            )

    @property
    def needs_ids(self) -> bool:
        """Whether a row could meet its own stored copy while the backbone trains."""
        return self.config.votes and self.config.leave_self_out and not self.config.mixes

    @torch.no_grad()
    def encode_for_memory(self, x: Any) -> Tensor:
        """Return the features that :meth:`remember` would store for a batch, ``(B, F)``."""
        momentum = 0.0 if self.config.votes else self.config.momentum
        return stored_features(x, self.backbone, self.momentum_encoder, momentum)

    @torch.no_grad()
    def set_anchors(self, x: Any = None, *, features: Tensor | None = None) -> None:
        """Store a support batch that every row sees in context 'anchors', instead of its own batch.

        Args:
            x: The batch, as the backbone takes it; unused if ``features`` are given.
            features: Features of the anchors, ``(A, F)``.
        """
        if not self.config.sees_batch:
            raise ConfigError(
                "set_anchors needs batch_attention=True and similarity='dot', got "
                f"{self.config.batch_attention} and {self.config.similarity!r}"
            )
        if features is None:
            with evaluating(self.backbone):
                features = expect_tensor("features", self.backbone(x))
        expect_shape("features", features, None, self.feature_dim)
        with torch.inference_mode(False):
            self.anchors = features.detach().to(self.anchors, copy=True)
        self.reproject()

    def set_slots(
        self, start: str | Start, features: Tensor | None = None, y: Tensor | None = None
    ) -> None:
        """Start the slots anew; without slots it does nothing.

        Slots of a class that ``y`` does not hold stay as they are, with a warning. Under
        ``torch.distributed`` every rank must call, and gets the slots of the first.

        Args:
            start: 'normal' or 'zeros'; from data: 'samples', 'class_means', 'kmeans' or
                'distilled'; or a function as those of :mod:`hma.slots`.
            features: Features of examples, ``(N, F)``; those that are not finite are left out.
            y: Their labels.
        """
        if (features is None) != (y is None):
            raise ValueError("features and y must be given together, or neither")
        examples = None
        if features is not None and y is not None:
            expect_shape("features", features, None, self.feature_dim)
            finite = features.isfinite().all(dim=1)
            belongs = belonging(y, len(features), self.target).to(features.device)
            examples = Examples(features.detach()[finite], belongs[finite])
        fill = slot_start(start)
        if self.synthetic is not None:
            self.synthetic.restart(fill, examples)

    @torch.no_grad()
    def start_slots(self, batches: Iterable[tuple[Any, Tensor]]) -> None:
        """Start the slots as ``config.slot_init`` says, from rows encoded in eval mode.

        Call it once, before the first step of a training loop of your own; slots that need no data
        or have been started stay. With ``vote='mixed'`` :meth:`learn_memory` does it.

        Args:
            batches: ``(x, y)`` each; no more are taken than make some thousand rows.
        """
        if self.synthetic is None or not self.synthetic.waits:
            return
        rows = self.encoded(batches, most_rows(self.target, self.synthetic.slots_per_class))
        if rows is None:
            raise ValueError("batches must hold at least one row to start slots from, got none")
        self.set_slots(self.config.slot_init, rows.features, rows.y)

    # ------------------------------------------------------------- the memory itself

    def freeze_memory(self, frozen: bool = True) -> None:
        """Fix the memory for serving: nothing more is written, keys and values are projected once.

        Compiled and exported programs then carry the projection as a constant. ``train()``
        drops it, and ``freeze_memory(False)`` makes the memory writable again.
        """
        self.memory_frozen = frozen
        self.reproject()

    def refresh(self, batches: Iterable[tuple[Any, Tensor, Tensor]], *, new: bool = True) -> None:
        """Write rows again with the weights of now, encoded in eval mode.

        Args:
            batches: ``(x, y, ids)`` each, as :meth:`remember` takes them.
            new: Whether rows that the memory does not hold are written too, and in a memory with a
                bound may take the place of others.
        """
        store = self.real.queue if self.real is not None else None
        keyed = store if isinstance(store, KeyedRows) else None
        for x, y, ids in batches:
            with torch.no_grad(), evaluating(self.backbone):
                features = expect_tensor("features", self.backbone(x))
            ids = checked_ids(ids, len(features), self.anchors.device)
            ignore = None if new or keyed is None else keyed.find(ids) < 0
            self.remember(x, y, features=features, ids=ids, ignore=ignore)

    def learn_memory(
        self,
        batches: Iterable[tuple[Any, ...]],
        held_out: Iterable[tuple[Any, ...]] = (),
        *,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Give a backbone that is trained its memory: remember rows and learn what they are worth.

        For ``vote='mixed'``, once, after training; backbone and head stay as they are. Returns
        what was found: ``memory_share`` of the answer, ``key_steps``, ``validation_loss``.

        Args:
            batches: Training rows, ``(x, y)`` or ``(x, y, ids)`` each; without ids rows are
                numbered as they come.
            held_out: Rows that nothing was learned from, ``(x, y)`` each: they decide when to stop
                and how much the memory counts. Without them it counts half.
            seed: Decides every random draw.
        """
        rows = self.encoded(batches)
        if rows is None:
            raise ValueError("batches must hold at least one row, got none")
        return learn_memory(self, rows, self.encoded(held_out), seed=seed)

    @torch.no_grad()
    def encoded(
        self, batches: Iterable[tuple[Any, ...]], most: float = math.inf
    ) -> EncodedRows | None:
        """Return the rows of batches as the backbone encodes them in eval mode; None without any.

        Args:
            batches: ``(x, y)`` or ``(x, y, ids)`` each.
            most: Rows after which no more batches are taken.
        """
        features, labels, given = [], [], []
        with evaluating(self.backbone):
            for x, y, *ids in batches:
                features.append(expect_tensor("features", self.backbone(x)).detach())
                labels.append(y.to(self.anchors.device))
                given += [checked_ids(one, len(features[-1]), self.anchors.device) for one in ids]
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

    def forget(self, ids: Tensor) -> int:
        """Take the rows of these samples out of the real memory; return how many there were.

        Args:
            ids: Sample ids, as they were given to :meth:`remember`.
        """
        if self.memory_frozen:
            raise RuntimeError("the memory is frozen; call model.freeze_memory(False) to write")
        if self.real is None or not isinstance(self.real.queue, KeyedRows):
            raise ConfigError("forget needs a memory with a row for each sample: HMAConfig()")
        return self.real.queue.forget(checked_ids(ids, None, self.anchors.device))

    def add_classes(self, count: int) -> range:
        """Let ``count`` more classes be taught by :meth:`remember` alone; return their ids.

        Nothing is trained: stored rows answer for them, see :mod:`hma.added_classes`. For two or
        more classes that vote mixed with the head or alone, without slots. The target is another
        one then; ``hma.save`` and ``hma.load`` know it.

        Args:
            count: How many.
        """
        return add_classes(self, count)

    def reset_memory(self) -> None:
        """Forget every remembered row; slots, anchors and weights stay."""
        if self.memory_frozen:
            raise RuntimeError("the memory is frozen; call model.freeze_memory(False) to reset it")
        if self.real is not None:
            self.real.queue.clear()

    def memory_state(self) -> MemoryState:
        """Return a copy of what the memories hold now."""
        return copied_out(self.real, self.synthetic, self.anchors, self.memory_frozen)

    def extra_repr(self) -> str:  # noqa: D102
        return f"num_classes={self.num_classes}, feature_dim={self.feature_dim}"
