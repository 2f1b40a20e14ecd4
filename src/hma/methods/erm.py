"""Empirical risk minimisation: a backbone and a linear head, the row all others are held to."""

import torch
from torch import Tensor, nn

from hma.checks import feature_dim_of
from hma.data import Batch, Task
from hma.methods.learner import BackboneFactory, Method, classification_loss


class Classifier(nn.Module):
    """A backbone and a linear head."""

    def __init__(self, backbone: nn.Module, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(feature_dim_of(backbone, None), num_classes)

    def forward(self, x: object) -> Tensor:
        """Return the logits of a batch."""
        logits: Tensor = self.head(self.backbone(x))
        return logits


class Erm:
    """Cross entropy on a classifier, nothing after the step."""

    contexts: tuple[str, ...] = ("alone",)

    def __init__(self, module: Classifier) -> None:
        self.module: nn.Module = module

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross entropy."""
        return classification_loss(self.module(batch.x), batch)

    def predict(self, batch: Batch) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.module(batch.x)
        return logits

    def after_step(self, batch: Batch) -> None:
        """Do nothing: there is no memory to write."""

    def use(self, context: str) -> None:
        """Do nothing: a prediction never depends on its neighbours."""


def erm(backbone: BackboneFactory) -> Method:
    """Return the method that trains ``backbone`` with a linear head."""

    def build(task: Task, seed: int) -> Erm:
        torch.manual_seed(seed)
        return Erm(Classifier(backbone(task), len(task.classes)))

    return build
