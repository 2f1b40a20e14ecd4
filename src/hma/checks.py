"""Argument checks whose messages name the argument, the rule and the value received."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hma.config import ConfigError, HMAConfig


def expect_shape(name: str, tensor: Tensor, *shape: int | None) -> None:
    """Raise unless ``tensor`` has ``shape``; ``None`` matches any size.

    >>> expect_shape("features", torch.zeros(8, 64), None, 32)
    Traceback (most recent call last):
    ValueError: features must have shape (*, 32), got (8, 64)
    """
    received = tuple(tensor.shape)
    fits = len(received) == len(shape) and all(
        want is None or want == got for want, got in zip(shape, received, strict=True)
    )
    if not fits:
        wanted = ", ".join("*" if size is None else str(size) for size in shape)
        wanted += "," if len(shape) == 1 else ""
        raise ValueError(f"{name} must have shape ({wanted}), got {received}")


def expect_tensor(name: str, value: object) -> Tensor:
    """Return ``value`` if it is a tensor, else say what arrived instead."""
    if isinstance(value, Tensor):
        return value
    raise TypeError(
        f"{name} must be a tensor, got {type(value).__name__}; wrap the backbone in a module "
        "whose forward returns the (B, F) tensor"
    )


def expect_labels(labels: Tensor, count: int, num_classes: int) -> None:
    """Raise unless ``labels`` holds ``count`` class ids below ``num_classes``.

    >>> expect_labels(torch.tensor([0, 3]), count=2, num_classes=3)
    Traceback (most recent call last):
    ValueError: y must hold class ids from 0 to 2, got 3; rows not to store belong in `ignore`
    """
    if labels.dtype.is_floating_point or labels.dtype.is_complex:
        raise TypeError(
            f"y must hold class ids of an integer dtype, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}; for soft labels pass the ids before mixing, "
            "or y.argmax(dim=1), and for 0/1 floats y.long()"
        )
    expect_shape("y", labels, count)
    rule = f"y must hold class ids from 0 to {num_classes - 1}"
    remedy = "rows not to store belong in `ignore`"
    outside = (labels < 0) | (labels >= num_classes)
    if labels.device.type != "cpu":  # reading the answer back would stall the device
        torch._assert_async(~outside.any(), f"{rule}; {remedy}")
    elif outside.any():
        raise ValueError(f"{rule}, got {int(labels[outside][0])}; {remedy}")


def expect_finite(name: str, tensor: Tensor) -> None:
    """Raise if ``tensor`` holds NaN or infinity, naming the first bad row."""
    bad = ~torch.isfinite(tensor).flatten(1).all(dim=1)
    if bad.any():
        first = int(bad.nonzero()[0, 0])
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {int(bad.sum())} of {len(tensor)} "
            f"rows, the first is row {first}; look at the input and the learning rate"
        )


def feature_dim_of(backbone: nn.Module, given: int | None) -> int:
    """Return the width of the backbone's features: as given, or as the backbone says."""
    said = getattr(backbone, "num_features", None), getattr(backbone, "feature_dim", None)
    for width in (given, *said):
        if isinstance(width, int) and not isinstance(width, bool):
            return width
    raise ValueError(
        f"feature_dim must be given: {type(backbone).__name__} has neither num_features nor "
        "feature_dim; pass HMA(..., feature_dim=<width of the backbone's output>)"
    )


def expect_sizes(num_classes: int, feature_dim: int, config: HMAConfig) -> None:
    """Raise unless a model of these sizes can be built."""
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1 (one logit is binary), got {num_classes}")
    if feature_dim < 1:
        raise ValueError(f"feature_dim must be at least 1, got {feature_dim}")
    token, heads = feature_dim + config.label_dim, config.num_heads
    if token % heads:
        raise ConfigError(
            f"num_heads must divide feature_dim + label_dim, got {heads} and "
            f"{feature_dim} + {config.label_dim} = {token}; "
            f"label_dim={config.label_dim + heads - token % heads} would fit"
        )


def other_sizes(
    own: Mapping[str, Tensor], theirs: Mapping[str, Tensor], num_labels: int
) -> list[str]:
    """Say in which fields the model behind the state ``theirs`` was built differently.

    Args:
        own: State of this model.
        theirs: State to be loaded.
        num_labels: Classes that have slots.
    """
    problems = []
    for field, name, axis, unit in [
        ("queue_size", "real.queue.labels", 0, 1),
        ("slots_per_class", "synthetic.slots", 0, num_labels),
        ("label_dim", "tokens.table.weight", 1, 1),
        ("num_classes", "head.bias", 0, 1),
        ("feature_dim", "anchors", 1, 1),
    ]:
        mine, other = (
            state[name].shape[axis] // unit if name in state else 0 for state in (own, theirs)
        )
        if mine != other:
            problems.append(f"{field} is {other} in the state, {mine} in this model")
    return problems
