"""The module that the paper's authors released for graphs, with all of its choices."""

import copy
import math
from typing import Any, final

import torch
from torch import Tensor, nn

from hma.attention.momentum import trains
from hma.checks import expect_number, expect_whole, feature_dim_of
from hma.data import Batch, Task
from hma.errors import UserError
from hma.methods.learner import BackboneFactory, Learner, Method, OutputModule
from hma.model import Output
from hma.options.config import SHARE, WEIGHT
from hma.paper.rivals.invariant_subgraphs import class_contrast
from hma.targets import Classes

EPSILON, DROPOUT = 1e-12, 0.1


class ReleasedBlock(nn.Module):
    r"""Attention with a learned layer on the residual, and scores divided by the root of ``D``.

    .. math:: h = W_r x + \mathrm{heads}(\mathrm{LN}(x), \mathrm{LN}(m)), \quad
        y = h + \mathrm{FF}(\mathrm{LN}(h))

    Args:
        width: Of tokens, ``D``.
        heads: Number of heads.

    Shape:
        - ``queries`` ``(N, Q, D)``, ``memory`` ``(N, K, D)``; output ``(N, Q, D)``.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise UserError(f"num_heads must divide the width of a token, got {heads} and {width}")
        self.heads, self.scale = heads, math.sqrt(width)
        self.norm_queries, self.norm_memory = (nn.LayerNorm(width, eps=EPSILON) for _ in range(2))
        self.to_queries, self.to_keys, self.to_values, self.residual = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.norm_hidden = nn.LayerNorm(width, eps=EPSILON)
        self.dropout = nn.Dropout(DROPOUT)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(DROPOUT),
            nn.Linear(4 * width, width), nn.Dropout(DROPOUT),
        )  # fmt: skip

    def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
        """Return what the queries become."""
        seen = self.norm_memory(memory)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, T, D) -> (N, H, T, D / H)
            for part in (
                self.to_queries(self.norm_queries(queries)),
                self.to_keys(seen),
                self.to_values(seen),
            )
        )
        shares = (q @ k.transpose(2, 3) / self.scale).softmax(dim=-1)  # (N, H, Q, K)
        read = (shares @ v).transpose(1, 2).flatten(2)  # (N, H, Q, D / H) -> (N, Q, D)
        hidden = self.residual(queries) + self.dropout(read)
        out: Tensor = hidden + self.feed_forward(self.norm_hidden(hidden))
        return out


@final
class ReleasedModule(OutputModule):
    """Read a queue that starts as noise, then the batch and slots that start as zeros.

    The head sees the label part alone. In training rows see their batch, and in evaluation too.

    Args:
        backbone: Maps a batch to ``(B, F)``.
        classes: Number of classes, at least 2.
        label_dim, queue_size, slots_per_class, num_heads: As of :class:`hma.HMAConfig`.
        momentum: Share of itself that the momentum encoder keeps.
        settings: What else was asked for; printed with the module, and so part of a run's identity.
    """

    queue: Tensor
    place: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        classes: int,
        *,
        label_dim: int,
        queue_size: int,
        slots_per_class: int,
        num_heads: int,
        momentum: float,
        settings: str = "",
    ) -> None:
        super().__init__()
        width = feature_dim_of(backbone, None)
        self.backbone, self.momentum, self.width = backbone, momentum, width
        self.settings = settings
        self.slow = copy.deepcopy(backbone).requires_grad_(False)  # in training mode in training
        self.table = nn.Embedding(classes + 1, label_dim)
        noise = torch.randn(queue_size, width + label_dim)
        self.register_buffer("queue", nn.functional.normalize(noise, dim=1))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))
        self.slots = nn.Parameter(torch.zeros(classes * slots_per_class, width))
        self.register_buffer("classes", torch.arange(classes).repeat_interleave(slots_per_class))
        self.real = ReleasedBlock(width + label_dim, num_heads)
        self.synthetic = ReleasedBlock(width + label_dim, num_heads)
        self.head = nn.Linear(label_dim, classes)

    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return logits, and the features of the last tokens."""
        made = self.backbone(x) if features is None else features  # (B, F)
        unknown = self.table.weight[-1].expand(len(made), -1)
        tokens = torch.cat([made, unknown], dim=1)[:, None]  # (B, 1, D)
        stored = self.queue.expand(len(made), -1, -1)  # (B, M, D)
        tokens = self.real(tokens, torch.cat([tokens, stored], dim=1))[:, 0]  # (B, D)
        slots = torch.cat([self.slots, self.table(self.get_buffer("classes"))], dim=1)  # (S, D)
        tokens = self.synthetic(tokens[None], torch.cat([tokens, slots])[None])[0]
        return Output(self.head(tokens[:, self.width :]), tokens[:, : self.width])

    def extra_repr(self) -> str:  # noqa: D102
        return f"momentum={self.momentum}, heads={self.real.heads}, {self.settings}"

    @torch.no_grad()
    def store(self, x: Any, y: Tensor) -> None:
        """Move the slow encoder, then write a batch, labels as they are embedded now.

        A batch whose size does not divide that of the queue is not stored.
        """
        fast = self.backbone.parameters()
        for mine, theirs in zip(self.slow.parameters(), fast, strict=True):
            mine.mul_(self.momentum).add_(theirs, alpha=1 - self.momentum)
        rows = torch.cat([self.slow(x), self.table(y)], dim=1)
        if len(self.queue) % len(rows) == 0:
            start = int(self.place)
            self.queue[start : start + len(rows)] = rows
            self.place.fill_((start + len(rows)) % len(self.queue))


@final
class Released(Learner):
    """The target's loss, and contrast of the final features; rows are stored before the step.

    Args:
        module: What is trained.
        target: Classes.
        contrast: What the contrast counts.
        stores: Whether rows are stored; else the queue stays the noise that it starts as.
    """

    contexts = ("batch", "batch-sorted")

    def __init__(
        self, module: ReleasedModule, target: Classes, contrast: float, stores: bool
    ) -> None:
        super().__init__(module, target)
        self.released, self.contrast, self.stores = module, contrast, stores

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of a batch, and store its rows if it is trained on."""
        if self.released.training and self.stores:
            self.released.store(batch.x, batch.y)
        total = super().loss_of(output, batch)
        if not self.contrast:
            return total
        return total + self.contrast * class_contrast(output.features, batch.y, self.target)


def released_hma(
    backbone: BackboneFactory,
    *,
    label_dim: int = 16,
    queue_size: int = 256,
    slots_per_class: int = 8,
    num_heads: int = 4,
    momentum: float = 0.999,
    contrast: float = 0.0,
    stores: bool = True,
) -> Method:
    """Return the method that trains a backbone as the paper's released code does on graphs.

    What differs from :class:`hma.HMA`: the head reads the label part alone; a learned layer is on
    the residuals; the queue starts as noise that is attended to, keeps label embeddings of when
    they were written, and stores a batch only if its size divides that of the queue; slots start
    as zeros, so that those of a class stay alike; the momentum encoder is in training mode, has
    statistics of its own, and moves before the step. That code tests rows in file order, which is
    context 'batch-sorted'; epochs are selected, and rows compared, in shuffled order.

    Args:
        backbone: Makes the encoder.
        label_dim, queue_size, slots_per_class, num_heads: As of :class:`hma.HMAConfig`.
        momentum: Share of itself that the momentum encoder keeps.
        contrast: What a supervised contrast of the final features counts; 0 for none.
        stores: Whether rows are stored; the released command for Twitter stores none.
    """
    sizes = {
        "label_dim": label_dim,
        "queue_size": queue_size,
        "slots_per_class": slots_per_class,
        "num_heads": num_heads,
    }
    for name, value in sizes.items():
        expect_whole(name, value, 1)
    expect_number("momentum", momentum, SHARE)
    expect_number("contrast", contrast, WEIGHT)

    def build(task: Task, seed: int) -> Released:
        target = task.target
        if not isinstance(target, Classes) or target.outputs < 2:
            raise UserError(f"released_hma needs two classes or more, {task.name!r} has not")
        torch.manual_seed(seed)
        made = backbone(task)
        if not trains(made):
            raise UserError("released_hma needs a backbone that trains")
        settings = f"contrast={contrast}, stores={stores}"
        module = ReleasedModule(made, target.outputs, momentum=momentum, settings=settings, **sizes)
        return Released(module, target, contrast, stores)

    return build
