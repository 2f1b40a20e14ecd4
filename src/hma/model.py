"""HMA: a backbone, a real memory, a synthetic memory and a linear head."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hma.added_classes import add_classes, expect_growing
from hma.checks import expect_shape, expect_tensor, feature_dim_of
from hma.config import ConfigError, HMAConfig
from hma.contrast import contrast_over_memory, expect_classes
from hma.encoded_rows import EncodedRows
from hma.hub import HubMixin
from hma.key_learning import learn_memory
from hma.momentum import evaluating
from hma.output import Output
from hma.queue import checked_ids
from hma.slots import Examples, Start, belonging, most_rows, slot_start
from hma.targets import Target, one_target
from hma.views import TwoViews, with_key_view
from hma.writing import MemoryWriter


class HMA(HubMixin, MemoryWriter):
    """Give a backbone a memory of past rows and a memory of learned ones.

    ``forward`` reads and takes no labels, so labels cannot leak into a prediction; writing
    is :meth:`remember`, called after ``optimizer.step()``. Its parts are ``backbone``,
    ``momentum_encoder`` (None where the backbone does not train or there is no queue), ``tokens``,
    ``real``, ``synthetic`` and ``head``; ``real.nearest`` chooses the stored rows that a query
    reads, see :class:`hma.retrieval.BestRows`.

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

    # --------------------------------------------------------------- starting slots

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

    # --------------------------------------------------- after training: keys, classes

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

    def add_classes(self, count: int) -> range:
        """Let ``count`` more classes be taught by :meth:`remember` alone; return their ids.

        Nothing is trained: stored rows answer for them, see :mod:`hma.added_classes`. For two or
        more classes that vote mixed with the head or alone, without slots. The target is another
        one then; ``hma.save`` and ``hma.load`` know it.

        Args:
            count: How many.
        """
        return add_classes(self, count)

    def extra_repr(self) -> str:  # noqa: D102
        return f"num_classes={self.num_classes}, feature_dim={self.feature_dim}"
