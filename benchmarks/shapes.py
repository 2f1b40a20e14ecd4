"""The sizes of one training step, and a head of those sizes with its memory filled."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hma.attention.config import HMAConfig
from hma.attention.hma import HMA


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes that decide what one step costs; the letters are those of the design.

    Example:
        >>> Shape(batch=2, features=6, label=2, classes=1, queue=4, slots_per_class=3).slots
        6
    """

    batch: int
    """Rows of a batch, ``B``."""
    features: int
    """Width of the features, ``F``."""
    label: int
    """Width of the label embedding, ``L``."""
    classes: int
    """Logits, ``C``; one logit still has slots for two classes."""
    queue: int
    """Rows of the real memory, ``M``."""
    slots_per_class: int
    """Slots of each class, ``m2``."""
    heads: int = 4
    """Attention heads, ``H``."""
    batch_attention: bool = True
    """Whether the synthetic read sees the other rows of the batch."""

    @property
    def token(self) -> int:
        """Width of a token, ``D = F + L``."""
        return self.features + self.label

    @property
    def slots(self) -> int:
        """Rows of the synthetic memory, ``S``."""
        return max(self.classes, 2) * self.slots_per_class

    def __str__(self) -> str:
        return (
            f"B {self.batch}, F {self.features}, L {self.label}, C {self.classes}, "
            f"M {self.queue}, m2 {self.slots_per_class}"
        )


VIT_SHAPE = Shape(batch=128, features=768, label=64, classes=47, queue=512, slots_per_class=16)
"""ViT features on a texture data set of 47 classes."""
RESNET_SHAPE = Shape(batch=128, features=512, label=64, classes=10, queue=512, slots_per_class=16)
"""Features of a small residual network, 10 classes."""
GRAPH_SHAPE = Shape(batch=32, features=128, label=32, classes=5, queue=512, slots_per_class=16)
"""Features of a graph network, 5 classes."""


class Head(NamedTuple):
    """A model without a backbone and one batch of features for it.

    Shape:
        - ``features``: ``(B, F)``, a leaf that requires a gradient, as a trained backbone's would.
        - ``labels``: ``(B,)``.
    """

    model: HMA
    features: Tensor
    labels: Tensor


def build_head(
    shape: Shape, *, dropout: float = 0.1, filled: int | None = None, **changes: Any
) -> Head:
    """Return a head in training mode, the same one for the same shape, with rows in its queue.

    Args:
        shape: Its sizes.
        dropout: Dropout of both reads.
        filled: Queue rows written; None fills the queue.
        changes: Further fields of the configuration.
    """
    config = HMAConfig(
        label_dim=shape.label,
        queue_size=shape.queue,
        slots_per_class=shape.slots_per_class,
        num_heads=shape.heads,
        dropout=dropout,
        batch_attention=shape.batch_attention,
        **changes,
    )
    rows = shape.queue if filled is None else filled
    classes = max(shape.classes, 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = HMA(nn.Identity(), shape.classes, config, feature_dim=shape.features)
        past = torch.randn(rows, shape.features), torch.randint(classes, (rows,))
        features = torch.randn(shape.batch, shape.features, requires_grad=True)
        labels = torch.randint(classes, (shape.batch,))
    model.remember(None, past[1], features=past[0])
    return Head(model, features, labels)
