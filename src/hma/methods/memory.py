"""A memory on any backbone, by its configuration."""

from collections.abc import Callable, Mapping
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from hma.attention.config import HMAConfig
from hma.attention.hma import HMA
from hma.checks import expect_whole
from hma.data import Batch, Split, Task
from hma.memory.rows import EncodedRows
from hma.memory.slots import draw_rows
from hma.methods.learner import BackboneFactory, Learner, Method
from hma.model import Context, MemoryModel, Output
from hma.targets import Target
from hma.vote.config import VoteConfig
from hma.vote.voting_memory import VotingMemory

SEEING_THE_BATCH = ("batch", "batch-sorted", "alone")
"""Contexts of a method whose rows see their batch: shuffled rows, rows in order, each by itself."""
ANCHORS = "anchors"
"""Context of the same method in which every row sees the same training rows."""

ENCODED_AT_ONCE = 256
"""Training rows that are encoded at a time, where all of them are written again."""


MODELS: dict[type, type[HMA] | type[VotingMemory]] = {HMAConfig: HMA, VoteConfig: VotingMemory}
"""Configuration -> the model that it is of."""


@final
class WithMemory(Learner):
    """The target's loss on a model with a memory, which is written or learned when it wants.

    Where the features of a step are those that the memory is to store (nothing in the backbone
    trains, and it stays in eval mode, as ``hma.backbones.Frozen`` and a partly tuned ViT do), the
    backbone runs once per step.

    Args:
        model: What is trained.
        alone: Select and answer in context 'alone' first, as a deployed model predicts.
        anchors: Training rows that stand in for the batch in one more context, 'anchors', where
            rows see their batch; 0 leaves it out.
    """

    contexts_share_features = True

    def __init__(self, model: MemoryModel, *, alone: bool = False, anchors: int = 0) -> None:
        super().__init__(model, model.target)
        self.model, self.anchors = model, anchors
        self.contexts = ("alone",)
        if model.sees_batch:
            self.contexts = (
                SEEING_THE_BATCH[-1:] + SEEING_THE_BATCH[:-1] if alone else SEEING_THE_BATCH
            )
            self.contexts += (ANCHORS,) if anchors else ()
        self._encoded: tuple[Any, Tensor] | None = None

    def forward(self, batch: Batch) -> Output:
        """Return logits and features; in training they may wait for :meth:`after_step`."""
        output = self.run(batch.x, batch.features)
        keep = self.model.training and self.model.keeps_step_features
        self._encoded = (batch.x, output.features.detach()) if keep else None
        return output

    def losses(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of each row."""
        return self.model.losses(output, batch.y, ids=batch.ids)

    def after_step(self, batch: Batch) -> None:
        """Give the memory the real rows of the batch."""
        x, features = self._encoded or (None, None)
        self._encoded = None
        known = batch.features
        if known is None and x is batch.x:
            known = features
        made = None if batch.mixed is None else batch.mixed.made
        self.model.after_step(batch.x, batch.y, features=known, ids=batch.ids, ignore=made)

    def before_training(self, train: Split, tick: Callable[[], None]) -> None:
        """Start slots from training rows as the weights of now encode them, where they are to."""
        learned = self.model.synthetic
        if learned is None or not self.model.waits_for_rows:
            return
        places = draw_rows(train.labels, self.target, learned.slots_per_class)
        rows = self._encode(train, places, tick)
        self.model.set_slots(self.model.config.slot_init, rows.features, rows.y)

    def before_evaluation(self, train: Split, tick: Callable[[], None]) -> None:
        """Encode anchors again with the weights of now."""
        if ANCHORS in self.contexts:
            assert isinstance(self.model, HMA)
            places = anchor_places(len(train), self.anchors)
            self.model.set_anchors(features=self._encode(train, places, tick).features)

    @torch.no_grad()
    def _encode(self, split: Split, places: Tensor, tick: Callable[[], None]) -> EncodedRows:
        """Return rows as the backbone encodes them in eval mode; known features stay."""
        parts = []
        for some in torch.split(places, ENCODED_AT_ONCE):
            batch = split.batch(some).to(self.model.device)
            features = batch.features
            if features is None:
                with self.model.reading():
                    features = self.model.backbone(batch.x)
            parts.append((features, batch.y, batch.ids, batch.weight))
            tick()
        features, y, ids, weight = zip(*parts, strict=True)
        whole = None if weight[0] is None else torch.cat(weight)
        return EncodedRows(torch.cat(features), torch.cat(y), torch.cat(ids), whole)

    def after_training(
        self,
        task: Task,
        *,
        seed: int,
        weight: Tensor | None,
        tick: Callable[[], None],
        like: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Let the memory learn what it learns when backbone and head are trained."""

        def rows() -> EncodedRows:
            found = self._encode(task.train, torch.arange(len(task.train)), tick)
            if weight is None:
                return found
            own = 1.0 if found.weight is None else found.weight
            return found._replace(weight=own * weight.to(found.features.device))

        def held_out() -> EncodedRows | None:
            every = torch.arange(len(task.validation))
            return self._encode(task.validation, every, tick) if len(every) else None

        return self.model.after_training(rows, held_out, like=like, seed=seed, tick=tick)

    def use(self, context: str) -> None:
        """Switch the model's inference context; in which order rows come is up to the caller."""
        self.model.context = cast("Context", context.removesuffix("-sorted"))


def anchor_places(rows: int, count: int) -> Tensor:
    """Return which of so many training rows are the anchors: drawn by their number alone.

    Example:
        >>> anchor_places(rows=6, count=2).tolist(), anchor_places(rows=1, count=2).tolist()
        ([2, 0], [0])
    """
    return torch.randperm(rows, generator=torch.Generator().manual_seed(rows))[:count]


def with_memory(
    backbone: BackboneFactory,
    config: HMAConfig | VoteConfig,
    *,
    alone: bool = False,
    anchors: int = 0,
) -> Method:
    """Return the method that gives ``backbone`` the memory of ``config``.

    Args:
        backbone: Makes the encoder.
        config: Which memory, and its sizes.
        alone: Select epochs in context 'alone' instead of the paper's 'batch'.
        anchors: Training rows of the context 'anchors', see :class:`WithMemory`.
    """
    expect_whole("anchors", anchors, least=0)

    def build(task: Task, seed: int) -> WithMemory:
        torch.manual_seed(seed)
        model = memory_model(backbone(task), config, task.target)
        return WithMemory(model, alone=alone, anchors=anchors)

    return build


def memory_model(
    backbone: nn.Module,
    config: HMAConfig | VoteConfig,
    target: Target,
    feature_dim: int | None = None,
) -> MemoryModel:
    """Return the model that a configuration is of.

    Args:
        backbone: The encoder.
        config: Which memory, and its sizes.
        target: What a label is.
        feature_dim: Width of the features, where the backbone does not say.
    """
    build: Any = MODELS[type(config)]
    model: MemoryModel = build(backbone, config=config, target=target, feature_dim=feature_dim)
    return model
