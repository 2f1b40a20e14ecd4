"""Argument checks whose messages name the argument, the rule and the value received."""

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor, nn

from hma.errors import UserError


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


def expect_whole(name: str, value: object, least: int) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``.

    >>> expect_whole("k", 0, least=1)
    Traceback (most recent call last):
    hma.errors.UserError: k must be a whole number of at least 1, got 0
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, got {value!r}")


def expect_number(name: str, value: float, rule: tuple[str, Callable[[float], bool]]) -> None:
    """Raise unless ``value`` is what a rule says, in words and as a test.

    >>> from hma.options.config import SHARE
    >>> expect_number("dropout", 1.0, SHARE)
    Traceback (most recent call last):
    hma.errors.UserError: dropout must be at least 0 and below 1, got 1.0
    """
    says, holds = rule
    if not holds(value):
        raise UserError(f"{name} must be {says}, got {value}")


def expect_images(images: Tensor, channels: int) -> None:
    """Raise unless ``images`` have the channels that a network was built for."""
    try:
        expect_shape("images", images, None, channels, None, None)
    except ValueError as error:
        raise ValueError(f"{error}; build the network with in_channels of your images") from None


def expect_tensor(name: str, value: object) -> Tensor:
    """Return ``value`` if it is a tensor, else say what arrived instead."""
    if isinstance(value, Tensor):
        return value
    raise TypeError(
        f"{name} must be a tensor, got {type(value).__name__}; wrap the backbone in a module "
        "whose forward returns the (B, F) tensor"
    )


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
    classes = getattr(backbone, "num_classes", 0)
    if hasattr(backbone, "reset_classifier") and isinstance(classes, int) and classes > 0:
        raise ValueError(
            f"backbone must give features, got a timm {type(backbone).__name__} that still has its "
            f"classifier of {classes} classes; build it with num_classes=0, or call "
            "backbone.reset_classifier(0)"
        )
    said = getattr(backbone, "num_features", None), getattr(backbone, "feature_dim", None)
    for width in (given, *said):
        if isinstance(width, int) and not isinstance(width, bool):
            return width
    raise ValueError(
        f"feature_dim must be given: {type(backbone).__name__} has neither num_features nor "
        "feature_dim; pass HMA(..., feature_dim=<width of the backbone's output>)"
    )


def other_sizes(
    own: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    prototypes: int,
    growing: Collection[str] = (),
) -> list[str]:
    """Say in which fields the model behind the state ``theirs`` was built differently.

    Args:
        own: State of this model.
        theirs: State to be loaded.
        prototypes: Classes that have slots.
        growing: Names of tensors that may have any number of rows.
    """
    problems = []
    for field, name, axis, unit in [
        ("queue_size", "real.queue.labels", 0, 1),
        ("slots_per_class", "synthetic.slots", 0, prototypes),
        ("label_dim", "tokens.table.weight", 1, 1),
        ("width", "tokens.narrow.weight", 0, 1),
        ("num_classes", "head.bias", 0, 1),
        ("feature_dim", "anchors", 1, 1),
    ]:
        mine, other = (
            state[name].shape[axis] // unit if name in state else 0 for state in (own, theirs)
        )
        if mine != other and not (name in growing and axis == 0):
            problems.append(f"{field} is {other} in the state, {mine} in this model")
    return problems
