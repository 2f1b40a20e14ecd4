"""Image models of timm by name, untrained or with weights from a file."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hma.backbones.efficientnet_names import from_first_port, named_for_timm
from hma.backbones.named_backbone import ImagesWanted, NamedBackbone
from hma.backbones.weights import (
    State,
    difference,
    read_weights,
    without_classifier,
)
from hma.errors import UserError, reason
from hma.extras import ensure_torchvision, needed

UNFIT = (RuntimeError, ValueError, TypeError, AssertionError, KeyError, IndexError)
"""What timm's models raise on images or weights they cannot take."""


class TimmFeatures(nn.Module):
    """Run a timm model without a classifier; the width of its output is measured, not read.

    ``num_features`` of some models is the width before their last layer.

    Args:
        model: A model that timm made with ``num_classes=0``.
        shape: Channels, height and width of the images it will be given.
    """

    def __init__(self, model: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.model = model.eval()
        with torch.no_grad():
            probe = model(torch.zeros(1, *shape))
        if not isinstance(probe, Tensor) or probe.dim() != 2:
            raise ValueError("it does not return one vector per image")
        self.feature_dim = probe.shape[1]
        model.train()

    def forward(self, images: Tensor) -> Tensor:
        """Return one vector per image."""
        features: Tensor = self.model(images)
        return features


def timm_backbone(name: str, shape: tuple[int, ...], weights: Path | None = None) -> TimmFeatures:
    """Build a timm model for images of ``shape``, untrained or with weights from a file.

    Nothing is downloaded. Arguments as :func:`timm_model`.
    """
    model = timm_model(name, shape, weights)
    try:
        return TimmFeatures(model, shape)
    except UNFIT as error:
        raise _cannot_take(name, shape, error) from error


def timm_model(
    name: str,
    shape: tuple[int, ...],
    weights: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return timm's own model without a classifier.

    Args:
        name: A name of ``timm.list_models()``, with or without the tag of its weights.
        shape: Channels, height and width.
        weights: A local file.
        settings: Further arguments of ``timm.create_model``, such as ``depth``.
    """
    timm = _timm()
    known = _settings(timm, name)
    given: dict[str, Any] = {"num_classes": 0, "in_chans": shape[0]}
    if known is not None and known.fixed_input_size:
        given["img_size"] = tuple(shape[1:])
    given |= settings or {}
    try:
        if weights is not None:
            return _with_weights(timm, name, given, known, weights)
        model: nn.Module = timm.create_model(name, pretrained=False, **given)
        return model
    except UserError:
        raise
    except UNFIT as error:
        raise _cannot_take(name, shape, error) from error


def images_wanted(name: str) -> ImagesWanted | None:
    """Return the images that timm tests a model on; None where it does not say.

    A model of timm that is tested on images squashed or with a border gets them squashed.

    Args:
        name: A name of ``timm.list_models()``; with the tag of its weights where they are not
            those that timm would fetch.
    """
    known = _settings(_timm(), name)
    if known is None or known.crop_pct is None:
        return None
    return ImagesWanted(
        image_size=known.input_size[-1],
        crop=known.crop_pct if known.crop_mode == "center" else None,
        interpolation="bilinear" if known.interpolation == "bilinear" else "bicubic",
        mean=tuple(known.mean),
        std=tuple(known.std),
    )


def _settings(timm: Any, name: str) -> Any:
    """Return what timm says of the weights of a model."""
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        close = get_close_matches(architecture, timm.list_models(), n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "see timm.list_models()"
        raise UserError(f"timm has no model called {architecture!r}; {hint}")
    try:
        return timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise UserError(f"timm:{name} cannot be built: {reason(error)}") from error


def _cannot_take(name: str, shape: tuple[int, ...], error: Exception) -> UserError:
    return UserError(f"timm:{name} cannot take images of shape {tuple(shape)}: {reason(error)}")


def _timm() -> Any:
    try:
        ensure_torchvision()
    except ImportError as error:
        raise UserError(f"timm needs torchvision: {error}") from error
    return needed("timm", "this backbone", extra="vision")


def _with_weights(
    timm: Any, name: str, given: Mapping[str, Any], settings: Any, path: Path
) -> nn.Module:
    """Return the model with timm's own way of fitting weights: other channels, other sizes."""
    classifiers = _names(getattr(settings, "classifier", None))
    state = read_weights(path)
    if from_first_port(state):
        state = named_for_timm(state, _own_state(timm, name, given))
    state = without_classifier(state, classifiers)
    if not state:
        raise UserError(f"{path} holds nothing but a classifier; give the weights of the model")
    changes: dict[str, Any] = {
        "state_dict": state, "num_classes": 0, "url": "", "hf_hub_id": None, "custom_load": False
    }  # fmt: skip
    for stem in _names(getattr(settings, "first_conv", None)):
        weight = state.get(f"{stem}.weight")
        channels = given["in_chans"] if weight is None else weight.shape[1]
        if channels == given["in_chans"]:
            changes["first_conv"] = None
        elif channels != 3:  # timm would leave the layer at its random start
            raise UserError(
                f"{path} was trained on images with {channels} channels, these have "
                f"{given['in_chans']}; only weights for 3 channels can be carried over"
            )
    try:
        model: nn.Module = timm.create_model(
            name, pretrained=True, pretrained_cfg_overlay=changes, **given
        )
    except UNFIT as error:
        told = difference(state, _own_state(timm, name, given)) or reason(error)
        raise UserError(f"{path} does not fit timm:{name}: {told}") from error
    for described in ("pretrained_cfg", "default_cfg"):
        getattr(model, described, {}).pop("state_dict", None)  # or every copy would carry it
    return model


def _own_state(timm: Any, name: str, given: Mapping[str, Any]) -> State:
    state: State = timm.create_model(name, pretrained=False, **given).state_dict()
    return state


def _names(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


NAMED = (
    NamedBackbone(
        "timm:NAME",
        ("image",),
        lambda asked: timm_backbone(asked.name, asked.shape, asked.weights),
        fits_weights=True,
        images=images_wanted,
    ),
)
