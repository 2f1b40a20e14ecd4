"""Heterogeneous memory on any backbone: the paper's rows, by configuration."""

from collections.abc import Callable, Iterator
from typing import Any, cast, final

import torch
from torch import Tensor

from hma.config import Context, HMAConfig
from hma.data import Batch, Split, Task
from hma.encoded_rows import EncodedRows
from hma.errors import UserError
from hma.key_learning import learn_memory
from hma.keyed_rows import KeyedRows
from hma.methods.learner import BackboneFactory, Learner, Method
from hma.model import HMA
from hma.momentum import evaluating, trains
from hma.output import Output
from hma.slots import drawn_rows

SEEING_THE_BATCH = ("batch", "batch-sorted", "alone")
"""Contexts of a method whose rows see their batch: shuffled rows, rows in order, each by itself."""
ANCHORS = "anchors"
"""Context of the same method in which every row sees the same training rows."""

ENCODED_AT_ONCE = 256
"""Training rows that are encoded at a time, where all of them are written again."""


@final
class WithMemory(Learner):
    """The target's loss on an HMA model; every step writes its batch into the real memory.

    Without a momentum encoder (nothing in the backbone trains, or ``momentum=0``) a backbone that
    stays in eval mode, as ``hma.backbones.Frozen`` and a partly tuned ViT do, runs once per step:
    its features of the forward pass are those that are written.

    Args:
        model: What is trained.
        alone: Select and answer in context 'alone' first, as a deployed model predicts.
        anchors: Training rows that stand in for the batch in one more context, 'anchors', where
            rows see their batch; 0 leaves it out.
    """

    contexts_share_features = True

    def __init__(self, model: HMA, *, alone: bool = False, anchors: int = 0) -> None:
        super().__init__(model, model.target)
        self.model, self.anchors = model, anchors
        self.contexts = ("alone",)
        if model.config.sees_batch:
            self.contexts = (
                SEEING_THE_BATCH[-1:] + SEEING_THE_BATCH[:-1] if alone else SEEING_THE_BATCH
            )
            self.contexts += (ANCHORS,) if anchors else ()
        self._encoded: tuple[Any, Tensor] | None = None

    def forward(self, batch: Batch) -> Output:
        """Return logits and features; in training they may wait for :meth:`after_step`."""
        output = self.run(batch.x, batch.features, batch.ids)
        keep = self.model.training and _writes_what_it_reads(self.model)
        self._encoded = (batch.x, output.features.detach()) if keep else None
        return output

    def losses(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of each row, with its share of contrast."""
        return self.model.losses(output, batch.y, ids=batch.ids)

    def after_step(self, batch: Batch) -> None:
        """Write the real rows of the batch into the queue and move the momentum encoder."""
        if self.model.config.mixes:
            return  # rows are written once, when training is over
        x, features = self._encoded or (None, None)
        self._encoded = None
        known = batch.features
        if known is None and x is batch.x:
            known = features
        made = None if batch.mixed is None else batch.mixed.made
        self.model.remember(batch.x, batch.y, features=known, ids=batch.ids, ignore=made)

    def before_training(self, train: Split, tick: Callable[[], None]) -> None:
        """Start slots from training rows as the weights of now encode them, where they are to."""
        learned = self.model.synthetic
        if learned is None or not learned.waits or self.model.config.mixes:
            return
        places = drawn_rows(train.labels, self.target, learned.slots_per_class)
        encoded = list(self._encode(train, places, tick))
        features = torch.cat([made for _, made in encoded])
        labels = torch.cat([batch.y for batch, _ in encoded])
        self.model.set_slots(self.model.config.slot_init, features, labels)

    def before_evaluation(self, train: Split, tick: Callable[[], None]) -> None:
        """Encode anchors, and rows that vote by distance, again with the weights of now.

        A memory with a bound keeps the rows it has, so that doing it twice is doing it once.
        """
        if ANCHORS in self.contexts:
            encoded = self._encode(train, anchor_places(len(train), self.anchors), tick)
            self.model.set_anchors(features=torch.cat([features for _, features in encoded]))
        store = self.model.real.queue if self.model.real is not None else None
        if not isinstance(store, KeyedRows) or self.model.config.mixes:
            return
        if not trains(self.model.backbone) and int(store.written) >= len(train):
            return  # what is stored is what the backbone gives
        for batch, features in self._encode(train, torch.arange(len(train)), tick):
            unknown = store.find(batch.ids) < 0 if store.bound is not None else None
            self.model.remember(batch.x, batch.y, features=features, ids=batch.ids, ignore=unknown)
        store.trim()

    @torch.no_grad()
    def _encode(
        self, split: Split, places: Tensor, tick: Callable[[], None]
    ) -> Iterator[tuple[Batch, Tensor]]:
        """Yield rows and their features in eval mode, part by part."""
        for part in torch.split(places, ENCODED_AT_ONCE):
            batch = split.batch(part).to(self.model.anchors.device)
            features = batch.features
            if features is None:
                with evaluating(self.model.backbone):
                    features = self.model.backbone(batch.x)
            yield batch, features
            tick()

    def after_training(
        self, task: Task, *, seed: int, weight: Tensor | None, tick: Callable[[], None]
    ) -> dict[str, Any]:
        """Remember the training rows and learn their keys, where that is done apart."""
        if not self.model.config.mixes:
            return {}
        rows = self._encoded_rows(task.train, tick)
        if weight is not None:
            own = 1.0 if rows.weight is None else rows.weight
            rows = rows._replace(weight=own * weight.to(rows.features.device))
        held_out = self._encoded_rows(task.validation, tick) if len(task.validation) else None
        return learn_memory(self.model, rows, held_out, seed=seed, tick=tick)

    def _encoded_rows(self, split: Split, tick: Callable[[], None]) -> EncodedRows:
        found = self._encode(split, torch.arange(len(split)), tick)
        parts = [(features, batch.y, batch.ids, batch.weight) for batch, features in found]
        features, y, ids, weight = zip(*parts, strict=True)
        whole = None if weight[0] is None else torch.cat(weight)
        return EncodedRows(torch.cat(features), torch.cat(y), torch.cat(ids), whole)

    def use(self, context: str) -> None:
        """Switch the model's inference context; in which order rows come is up to the caller."""
        self.model.context = cast("Context", context.removesuffix("-sorted"))


def _writes_what_it_reads(model: HMA) -> bool:
    """Return whether the features of the step are those that the memory would be given after it."""
    # DIFF[paper 3.2]: with momentum=0 and a backbone that trains, the features are those of before
    # the step, as those of any momentum encoder are; encoding again would double the cost.
    if model.config.votes:
        return True
    if model.momentum_encoder is not None:
        return False
    return not any(part.training for part in model.backbone.modules())


def anchor_places(rows: int, count: int) -> Tensor:
    """Return which of so many training rows are the anchors: drawn by their number alone.

    Example:
        >>> anchor_places(rows=6, count=2).tolist(), anchor_places(rows=1, count=2).tolist()
        ([2, 0], [0])
    """
    return torch.randperm(rows, generator=torch.Generator().manual_seed(rows))[:count]


def with_hma(
    backbone: BackboneFactory, config: HMAConfig, *, alone: bool = False, anchors: int = 0
) -> Method:
    """Return the method that gives ``backbone`` the memories of ``config``.

    Args:
        backbone: Makes the encoder.
        config: Sizes and switches.
        alone: Select epochs in context 'alone' instead of the paper's 'batch'.
        anchors: Training rows of the context 'anchors', see :class:`WithMemory`.
    """
    if not isinstance(anchors, int) or isinstance(anchors, bool) or anchors < 0:
        raise UserError(f"anchors must be a whole number of at least 0, got {anchors!r}")

    def build(task: Task, seed: int) -> WithMemory:
        torch.manual_seed(seed)
        model = HMA(backbone(task), config=config, target=task.target)
        return WithMemory(model, alone=alone, anchors=anchors)

    return build
