"""NPT and BatchFormer: rows that attend to their batch, without a memory."""

from typing import Any, final

import torch
from torch import Tensor, nn

from hma.attention.block import MemoryRead
from hma.attention.tokens import LabelTokens
from hma.checks import expect_number, expect_whole, feature_dim_of
from hma.data import Batch, Task
from hma.errors import UserError
from hma.methods.learner import BackboneFactory, Learner, Method, OutputModule
from hma.methods.memory import SEEING_THE_BATCH
from hma.model import Output
from hma.options.config import SHARE
from hma.targets import Target

# ---------------------------------------------------------------------------------------------- NPT


@final
class DatapointAttention(OutputModule):
    """A backbone, blocks in which each row attends to its batch, and a linear head.

    A row's token is its features and the embedding of "unknown": no label of any row is seen.

    Args:
        backbone: Any module that maps a batch to features ``(B, F)``.
        outputs: Number of logits, ``C``.
        depth: Number of blocks.
        label_dim: Width of the "unknown" part of a token, ``L``.
        num_heads: Attention heads of each block.
        dropout: Dropout of each block.

    Shape:
        - input: whatever the backbone takes; output: ``(B, C)``.

    Example:
        >>> from hma.backbones import mlp
        >>> model = DatapointAttention(
        ...     mlp(in_features=5, hidden=(8,)), 3, depth=2, label_dim=4, num_heads=2, dropout=0.0
        ... )
        >>> model(torch.rand(4, 5)).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        backbone: nn.Module,
        outputs: int,
        *,
        depth: int,
        label_dim: int,
        num_heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        features = feature_dim_of(backbone, None)
        width = features + label_dim
        if width % num_heads:
            raise UserError(
                f"num_heads must divide the width of the features and label_dim together, got "
                f"{num_heads} and {features} + {label_dim} = {width}; "
                f"label_dim={label_dim + num_heads - width % num_heads} would fit"
            )
        self.context = "batch"
        self.backbone = backbone
        self.tokens = LabelTokens(None, features, label_dim)
        self.blocks = nn.ModuleList(
            MemoryRead(width, num_heads, dropout=dropout) for _ in range(depth)
        )
        self.head = nn.Linear(width, outputs)

    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return logits and features; in eval mode ``context`` says whether rows see the batch."""
        features = self.backbone(x) if features is None else features
        tokens = self.tokens.mask(features)  # (B, F) -> (B, D)
        neighbours = self.training or self.context == "batch"
        for block in self.blocks:
            tokens, _ = block(tokens, None, neighbours=neighbours)  # (B, D)
        return Output(self.head(tokens), features)  # (B, D) -> (B, C)


@final
class Npt(Learner):
    """The target's loss on a network whose rows see their batch."""

    contexts = SEEING_THE_BATCH
    contexts_share_features = True

    def __init__(self, model: DatapointAttention, target: Target) -> None:
        super().__init__(model, target)
        self.model = model

    def use(self, context: str) -> None:
        """Switch the inference context; in which order rows come is up to the caller."""
        self.model.context = context.removesuffix("-sorted")


def npt(
    backbone: BackboneFactory,
    *,
    depth: int = 2,
    label_dim: int = 32,
    num_heads: int = 4,
    dropout: float = 0.1,
) -> Method:
    """Return the method that puts attention between datapoints behind ``backbone``, no memory.

    Args:
        backbone: Makes the encoder for a task.
        depth: Number of attention blocks.
        label_dim: Width of the "unknown" label beside the features.
        num_heads: Attention heads; must divide features and label together.
        dropout: Dropout of the blocks.
    """
    expect_whole("depth", depth, least=1)
    expect_whole("label_dim", label_dim, least=0)
    expect_whole("num_heads", num_heads, least=1)
    expect_number("dropout", dropout, SHARE)

    def build(task: Task, seed: int) -> Npt:
        torch.manual_seed(seed)
        module = DatapointAttention(
            backbone(task),
            task.target.outputs,
            depth=depth,
            label_dim=label_dim,
            num_heads=num_heads,
            dropout=dropout,
        )
        return Npt(module, task.target)

    return build


# -------------------------------------------------------------------------------------- BatchFormer


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
    expect_whole("num_heads", num_heads, least=1)
    expect_number("dropout", dropout, SHARE)

    def build(task: Task, seed: int) -> WithBatchFormer:
        torch.manual_seed(seed)
        module = BatchFormer(backbone(task), task.target.outputs, num_heads, dropout)
        return WithBatchFormer(module, task.target)

    return build
