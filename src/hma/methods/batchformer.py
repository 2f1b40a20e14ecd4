"""BatchFormer: rows attend to their batch in training only, and share one head with themselves."""

from typing import Any, final

import torch
from torch import Tensor, nn

from hma.checks import feature_dim_of
from hma.data import Batch, Task
from hma.errors import UserError
from hma.methods.learner import BackboneFactory, Learner, Method, OutputModule
from hma.model import Output


@final
class BatchFormer(OutputModule):
    """A classifier with an encoder layer over the batch that only training passes through.

    Args:
        backbone: Any module that maps a batch to features ``(B, F)``.
        outputs: Number of logits, ``C``.
        num_heads: Attention heads of the layer.
        dropout: Dropout of the layer.

    Shape:
        - logits: ``(2 B, C)`` in training mode, first the rows themselves, then the same rows
          with their batch; ``(B, C)`` in eval mode. Features: ``(B, F)``.

    Example:
        >>> from hma.backbones import mlp
        >>> model = BatchFormer(mlp(in_features=5, hidden=(8,)), 3, num_heads=2, dropout=0.0)
        >>> model(torch.rand(4, 5)).shape, model.eval()(torch.rand(4, 5)).shape
        (torch.Size([8, 3]), torch.Size([4, 3]))
    """

    def __init__(self, backbone: nn.Module, outputs: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        width = feature_dim_of(backbone, None)
        self.backbone = backbone
        self.head = nn.Linear(width, outputs)
        if width % num_heads:
            raise UserError(
                f"num_heads must divide the width of the backbone's features, got {num_heads} and "
                f"{width}; choose a divisor of {width}"
            )
        self.encoder = nn.TransformerEncoderLayer(
            width, num_heads, dim_feedforward=width, dropout=dropout
        )

    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return the logits of a batch, in training twice, and its features."""
        features = rows = self.backbone(x) if features is None else features  # (B, F)
        if self.training:
            # (B, F) -> (B, 1, F): the batch is the sequence, and there is one of it
            mixed = self.encoder(features[:, None])[:, 0]  # (B, F)
            rows = torch.cat([features, mixed])  # (2 B, F)
        return Output(self.head(rows), features)


@final
class WithBatchFormer(Learner):
    """The target's loss on both streams; predictions are those of the plain classifier."""

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of the rows by themselves and with their batch."""
        weight = None if batch.weight is None else batch.weight.repeat(2)
        twice = batch._replace(y=torch.cat([batch.y, batch.y]), weight=weight)
        return super().loss_of(output, twice)


def batchformer(backbone: BackboneFactory, *, num_heads: int = 4, dropout: float = 0.5) -> Method:
    """Return the method that trains ``backbone`` with attention over the batch, unused at test.

    Args:
        backbone: Makes the encoder for a task.
        num_heads: Attention heads; must divide the width of the features.
        dropout: Dropout of the layer.
    """
    if not isinstance(num_heads, int) or isinstance(num_heads, bool) or num_heads < 1:
        raise UserError(f"num_heads must be a whole number of at least 1, got {num_heads!r}")
    if not 0 <= dropout < 1:
        raise UserError(f"dropout must be at least 0 and below 1, got {dropout}")

    def build(task: Task, seed: int) -> WithBatchFormer:
        torch.manual_seed(seed)
        module = BatchFormer(backbone(task), task.target.outputs, num_heads, dropout)
        return WithBatchFormer(module, task.target)

    return build
