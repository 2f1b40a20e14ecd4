"""Heterogeneous memory on any backbone: the paper's rows, by configuration."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from hma.config import Context, HMAConfig
from hma.data import Batch, Task
from hma.methods.learner import BackboneFactory, Method, classification_loss
from hma.model import HMA

SEEING_THE_BATCH = ("batch", "batch-sorted", "alone")
"""Contexts of a method whose rows see their batch: shuffled rows, rows in order, each by itself."""


class WithMemory:
    """Cross entropy on an HMA model; every step writes its batch into the real memory.

    Without a momentum encoder (nothing in the backbone trains, or ``momentum=0``) a backbone that
    stays in eval mode, as ``hma.backbones.Frozen`` and a partly tuned ViT do, runs once per step:
    its features of the forward pass are those that are written.
    """

    def __init__(self, model: HMA) -> None:
        self.model = model
        self.module: nn.Module = model
        depends = model.config.batch_attention
        self.contexts: tuple[str, ...] = SEEING_THE_BATCH if depends else ("alone",)
        self._encoded: tuple[Any, Tensor] | None = None

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross entropy."""
        self._encoded = None
        if not _writes_what_it_reads(self.model):
            return classification_loss(self.module(batch.x), batch)
        made: list[Tensor] = []
        hook = self.model.backbone.register_forward_hook(lambda *seen: made.append(seen[-1]))
        try:
            logits: Tensor = self.module(batch.x)
        finally:
            hook.remove()
        self._encoded = batch.x, made[-1]
        return classification_loss(logits, batch)

    def predict(self, batch: Batch) -> Tensor:
        """Return the logits in the context in use."""
        logits: Tensor = self.module(batch.x)
        return logits

    def after_step(self, batch: Batch) -> None:
        """Write the batch into the queue and move the momentum encoder."""
        x, features = self._encoded or (None, None)
        self._encoded = None
        known = features if x is batch.x else None
        self.model.remember(batch.x, batch.y, features=known, ids=batch.ids)

    def use(self, context: str) -> None:
        """Switch the model's inference context; in which order rows come is up to the caller."""
        self.model.context = cast("Context", context.removesuffix("-sorted"))


def _writes_what_it_reads(model: HMA) -> bool:
    """Return whether the features of the step are those that the memory would be given after it."""
    # DIFF[paper 3.2]: with momentum=0 and a backbone that trains, the features are those of before
    # the step, as those of any momentum encoder are; encoding again would double the cost.
    if model.momentum_encoder is not None:
        return False
    return not any(part.training for part in model.backbone.modules())


def with_hma(backbone: BackboneFactory, config: HMAConfig) -> Method:
    """Return the method that gives ``backbone`` the memories of ``config``."""

    def build(task: Task, seed: int) -> WithMemory:
        torch.manual_seed(seed)
        return WithMemory(HMA(backbone(task), len(task.classes), config))

    return build
