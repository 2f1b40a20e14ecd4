"""Empirical risk minimisation: a backbone and a linear head, the row all others are held to."""

from typing import Any, final

import torch
from torch import Tensor, nn

from hma.checks import feature_dim_of
from hma.data import Task
from hma.methods.learner import BackboneFactory, Learner, Method, OutputModule
from hma.model import Output


@final
class Classifier(OutputModule):
    """A backbone and a linear head with so many ``outputs``."""

    def __init__(self, backbone: nn.Module, outputs: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(feature_dim_of(backbone, None), outputs)

    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return logits and features of a batch."""
        features = self.backbone(x) if features is None else features
        return Output(self.head(features), features)


@final
class Erm(Learner):
    """The target's loss on a classifier, and nothing else."""


def erm(backbone: BackboneFactory) -> Method:
    """Return the method that trains ``backbone`` with a linear head."""

    def build(task: Task, seed: int) -> Erm:
        torch.manual_seed(seed)
        return Erm(Classifier(backbone(task), task.target.outputs), task.target)

    return build
