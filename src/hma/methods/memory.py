"""Heterogeneous memory on any backbone: the paper's rows, by configuration."""

from typing import cast

import torch
from torch import Tensor, nn

from hma.config import Context, HMAConfig
from hma.data import Batch, Task
from hma.methods.learner import BackboneFactory, Method, classification_loss
from hma.model import HMA


class WithMemory:
    """Cross entropy on an HMA model; every step writes its batch into the real memory."""

    def __init__(self, model: HMA) -> None:
        self.model = model
        self.module: nn.Module = model
        depends = model.config.batch_attention
        self.contexts: tuple[str, ...] = ("batch", "alone") if depends else ("alone",)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross entropy."""
        return classification_loss(self.module(batch.x), batch)

    def predict(self, batch: Batch) -> Tensor:
        """Return the logits in the context in use."""
        logits: Tensor = self.module(batch.x)
        return logits

    def after_step(self, batch: Batch) -> None:
        """Write the batch into the queue and move the momentum encoder."""
        self.model.remember(batch.x, batch.y, ids=batch.ids)

    def use(self, context: str) -> None:
        """Switch the model's inference context."""
        self.model.context = cast("Context", context)


def with_hma(backbone: BackboneFactory, config: HMAConfig) -> Method:
    """Return the method that gives ``backbone`` the memories of ``config``."""

    def build(task: Task, seed: int) -> WithMemory:
        torch.manual_seed(seed)
        return WithMemory(HMA(backbone(task), len(task.classes), config))

    return build
