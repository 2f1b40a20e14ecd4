"""What a step would take on a cluster: from what is sent, from counted work and stated speeds.

``python -m benchmarks.many_machines`` prints the table of ``docs/many-machines.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from benchmarks.counts import forward_multiply_adds
from benchmarks.messages import Design, messages
from benchmarks.shapes import VIT_SHAPE, Shape
from hma.attention.config import HMAConfig
from hma.attention.hma import HMA
from hma.model import MemoryModel
from hma.vote.voting_memory import VotingMemory


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Figures that are assumed, not measured."""

    name: str
    bandwidth: float
    """Bytes per second that a process sends to its neighbour in the ring."""
    latency: float
    """Seconds until the first of them is there."""
    multiply_adds: float
    """Multiply-adds per second that a process comes to."""


FAST = Cluster(name="25 GB/s, 10 µs", bandwidth=25e9, latency=10e-6, multiply_adds=50e12)
SLOW = Cluster(name="1.25 GB/s, 50 µs", bandwidth=1.25e9, latency=50e-6, multiply_adds=50e12)

VIT_WIDTH, VIT_DEPTH, VIT_TOKENS, PATCH = 768, 12, 50, 3 * 32 * 32
"""Sizes of ViT-B/32 at 224 pixels, the class token included."""


def backbone_multiply_adds() -> int:
    """Count the multiply-adds of ViT-B/32 for one image, forward.

    Example:
        >>> backbone_multiply_adds()
        4408418304
    """
    block = 12 * VIT_TOKENS * VIT_WIDTH**2 + 2 * VIT_TOKENS**2 * VIT_WIDTH
    return VIT_DEPTH * block + (VIT_TOKENS - 1) * PATCH * VIT_WIDTH


def backbone_weights() -> int:
    """Count the weights of ViT-B/32 without a head.

    Example:
        >>> backbone_weights()
        87455232
    """
    block = 12 * VIT_WIDTH**2 + 13 * VIT_WIDTH  # both linear parts with biases, two norms
    around = PATCH * VIT_WIDTH + VIT_WIDTH * (1 + 1 + VIT_TOKENS + 2)
    return VIT_DEPTH * block + around


def trained_weights(design: Design, shape: Shape) -> int:
    """Count the weights that get a gradient: backbone, and what is trained with it."""
    with torch.device("meta"):
        head = _head(design, shape)
    own = sum(weight.numel() for weight in head.parameters() if weight.requires_grad)
    return backbone_weights() + own


def _head(design: Design, shape: Shape) -> MemoryModel:
    if design == "default":
        return VotingMemory(nn.Identity(), shape.classes, feature_dim=shape.features)
    config = HMAConfig(
        label_dim=shape.label, queue_size=shape.queue, slots_per_class=shape.slots_per_class
    )
    return HMA(nn.Identity(), shape.classes, config, feature_dim=shape.features)


def step_multiply_adds(design: Design, shape: Shape, processes: int) -> int:
    """Count the multiply-adds of a step of one process; the batch of all is attended to."""
    backbone = shape.batch * backbone_multiply_adds()
    if design == "default":
        return 3 * (backbone + shape.batch * shape.features * shape.classes)
    others = 2 * shape.batch * (processes - 1) * shape.batch * shape.token  # scores and mix
    slow_copy = backbone
    return 3 * (backbone + forward_multiply_adds(shape) + others) + slow_copy


class StepTime(NamedTuple):
    """Seconds of one step of every process together, nothing hidden behind anything else."""

    compute: float
    sending: float

    @property
    def whole(self) -> float:
        """Return both, one after the other."""
        return self.compute + self.sending


def step_time(design: Design, shape: Shape, processes: int, cluster: Cluster) -> StepTime:
    """Return what a step would take: operations / speed, hops * latency + bytes / bandwidth."""
    told = messages(design, shape, processes, trained_weights(design, shape))
    sending = sum(
        one.hops(processes) * cluster.latency + one.sent(processes) / cluster.bandwidth
        for one in told
    )
    compute = step_multiply_adds(design, shape, processes) / cluster.multiply_adds
    return StepTime(compute, sending)


# ------------------------------------------------------------------------------------ the tables


def simulation(
    shape: Shape = VIT_SHAPE,
    processes: Sequence[int] = (1, 2, 8, 64),
    clusters: Sequence[Cluster] = (FAST, SLOW),
) -> str:
    """Return the table of ``docs/many-machines.md`` as Markdown."""
    lines = [
        "| processes | link | design | sent per step and process | of it for the memory | "
        "computing | sending | rows per second |",
        "|--:|---|---|--:|--:|--:|--:|--:|",
    ]
    designs: tuple[Design, ...] = ("default", "paper")
    for count in processes:
        for cluster in clusters if count > 1 else clusters[:1]:
            for design in designs:
                lines.append(_line(design, shape, count, cluster))
    return "\n".join(lines) + "\n"


def _line(design: Design, shape: Shape, processes: int, cluster: Cluster) -> str:
    told = messages(design, shape, processes, trained_weights(design, shape))
    sent = sum(one.sent(processes) for one in told)
    without = messages("default", shape, processes, trained_weights("default", shape))
    plain = sum(one.sent(processes) for one in without)
    time = step_time(design, shape, processes, cluster)
    link = cluster.name if processes > 1 else "none"
    cells = [
        str(processes),
        link,
        design,
        f"{sent / 1e6:,.1f} MB",
        f"{(sent - plain) / 1e6:,.1f} MB",
        f"{1e3 * time.compute:,.1f} ms",
        f"{1e3 * time.sending:,.1f} ms",
        f"{processes * shape.batch / time.whole:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(simulation(), end="")
