"""Writing into the memories of a model: rows, anchors; and keeping them as they are."""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from hma.checks import expect_finite, expect_shape, expect_tensor
from hma.config import ConfigError
from hma.keyed_rows import KeyedRows
from hma.many_rows import many
from hma.memory_state import MemoryState, copied_out
from hma.momentum import evaluating, stored_features
from hma.queue import checked_ids, checked_rows, rows_of_all_ranks
from hma.reading import MemoryReader


class MemoryWriter(MemoryReader):
    """Adds to a model that reads the verbs that write: all labels enter here.

    Args:
        backbone, target, ...: As :class:`hma.reading.MemoryReader` says.
    """

    _warned = False

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

        Call it after ``optimizer.step()``; in eval mode it teaches a trained model. Without a
        queue it does nothing, so one training loop serves every ablation. Under
        ``torch.distributed`` the rows of all ranks enter every rank's queue in rank order; every
        rank must call. Rows whose features are not finite are left out.

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
        if many(self.real.queue.size):
            self._cache.clear()  # it would keep the rows as they were
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

    def forget(self, ids: Tensor) -> int:
        """Take the rows of these samples out of the real memory; return how many there were.

        Every read is then, to the last bit, that of a memory that never had them. What backbone,
        head and keys learned from them stays.

        Args:
            ids: Sample ids, as they were given to :meth:`remember`.
        """
        if self.memory_frozen:
            raise RuntimeError("the memory is frozen; call model.freeze_memory(False) to write")
        if self.real is None or not isinstance(self.real.queue, KeyedRows):
            raise ConfigError("forget needs a memory with a row for each sample: HMAConfig()")
        self._cache.clear()  # it would keep the rows that were, beside those that are left
        return self.real.queue.forget(checked_ids(ids, None, self.anchors.device))

    def reset_memory(self) -> None:
        """Forget every remembered row; slots, anchors and weights stay."""
        if self.memory_frozen:
            raise RuntimeError("the memory is frozen; call model.freeze_memory(False) to reset it")
        if self.real is not None:
            self.real.queue.clear()

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

    def freeze_memory(self, frozen: bool = True) -> None:
        """Fix the memory for serving: nothing more is written, keys and values are projected once.

        Compiled and exported programs then carry the projection as a constant. ``train()``
        drops it, and ``freeze_memory(False)`` makes the memory writable again.
        """
        self.memory_frozen = frozen
        self.reproject()

    def memory_state(self) -> MemoryState:
        """Return a copy of what the memories hold now."""
        return copied_out(self.real, self.synthetic, self.anchors, self.memory_frozen)
