"""Choices about the input, each for one kind of data."""

import math
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from hma.errors import UserError

Kind = Literal["table", "image", "graph", "text"]
"""What a row is."""
Transform = Literal["measured", "vit", "vit-mirror", "weights"]
Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True, kw_only=True)
class PreparationOptions:
    """Choices about the input, each for one kind of data.

    Example:
        >>> PreparationOptions(image_size=0, max_length=9)
        Traceback (most recent call last):
        hma.errors.UserError: image_size must be at least 1, got 0
    """

    image_size: int | None = field(default=None, metadata={"kind": "image"})
    """Images: side in pixels; by default 32 where the median side is 48 or less, else 224."""
    transform: Transform | None = field(default=None, metadata={"kind": "image"})
    """Images: 'measured' takes mean and deviation from the training rows, and --augment shifts by
    up to 4 pixels and mirrors; 'vit' is 224 pixels and 0.5 for both, and --augment cuts out random
    parts and mirrors; 'vit-mirror' only mirrors; 'weights' is what the --weights of a timm:NAME or
    vit:NAME were trained with, and --augment as with 'vit'. By default 'weights' where they say,
    for built-in data as its authors do, else 'measured'."""
    crop: float | None = field(default=None, metadata={"kind": "image"})
    """Images: keep the ratio of the sides and cut the middle out, this share of the shorter side;
    by default as the transform has it: 'weights' cuts, the others squash the whole image."""
    interpolation: Interpolation | None = field(default=None, metadata={"kind": "image"})
    """Images: how they are resized; by default as the transform has it, or bilinear."""
    mean: tuple[float, ...] = field(default=(), metadata={"kind": "image"})
    """Images: of each channel, from 0 to 1; by default as the transform has it."""
    std: tuple[float, ...] = field(default=(), metadata={"kind": "image"})
    """Images: deviation of each channel; by default as the transform has it."""
    augment: bool | None = field(default=None, metadata={"kind": "image"})
    """Images: train on random variants; by default only where the data's authors do."""
    encoder: str | None = field(default=None, metadata={"kind": "text"})
    """Text: folder or name of the encoder whose tokenizer cuts the text."""
    max_length: int | None = field(default=None, metadata={"kind": "text"})
    """Text: tokens kept of each text; by default as many as the encoder was made for, at most
    512."""
    drop: tuple[str, ...] = field(default=(), metadata={"kind": "table"})
    """Tables: a column to leave out; may be given several times."""
    categorical: tuple[str, ...] = field(default=(), metadata={"kind": "table"})
    """Tables: columns of numbers or dates to be taken as categories."""
    max_categories: int = field(default=256, metadata={"kind": "table"})
    """Tables: categories kept of a column, the most frequent ones; the rest counts as unseen."""
    node_attributes: bool | None = field(default=None, metadata={"kind": "graph"})
    """Graphs: use the node attributes; by default only where there are no node labels."""
    edge_labels: bool = field(default=False, metadata={"kind": "graph"})
    """Graphs: use the labels and attributes of edges, where there are any."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least 1, got {getattr(self, name)}"
            for name in ("image_size", "max_length", "max_categories")
            if getattr(self, name) is not None and getattr(self, name) < 1
        ]
        if self.transform not in (None, *get_args(Transform)):
            allowed = ", ".join(map(repr, get_args(Transform)))
            problems.append(f"transform must be one of {allowed}, got {self.transform!r}")
        if self.crop is not None and not 0 < self.crop <= 1:
            problems.append(f"crop must be above 0 and at most 1, got {self.crop}")
        if len(self.mean) != len(self.std) or not all(0 < value < math.inf for value in self.std):
            problems.append(
                "mean and std must be given together, one of each for a channel and std above 0, "
                f"got {self.mean} and {self.std}"
            )
        if problems:
            raise UserError("; ".join(problems))

    def expect_for(self, kind: Kind) -> None:
        """Raise if a choice was made that means nothing for this kind of data."""
        for choice in fields(self):
            concerns = choice.metadata["kind"]
            if getattr(self, choice.name) != choice.default and concerns != kind:
                raise UserError(
                    f"{choice.name} is for data of kind {concerns!r}, but the source is of kind "
                    f"{kind!r}; leave it out"
                )
