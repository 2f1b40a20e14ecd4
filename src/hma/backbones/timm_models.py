"""Image models of timm by name, untrained or with weights from a file."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

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
PORT_MARK = "_conv_stem.weight"
"""An entry that every file of the first PyTorch port of EfficientNet has, and no other model."""
EFFICIENTNET_LAYERS = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
EXPANDED_BLOCK = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
"""Layers of a block that widens its input first, and their names in timm."""
SEPARABLE_BLOCK = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
"""Layers of a block that does not."""
SQUEEZE = {"_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
BLOCK = re.compile(r"_blocks\.(\d+)\.(\w+)\.(.+)")


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
            return _create_with_weights(timm, name, given, known, weights)
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


def _create_with_weights(
    timm: Any, name: str, given: Mapping[str, Any], settings: Any, path: Path
) -> nn.Module:
    """Return the model with timm's own way of fitting weights: other channels, other sizes."""
    classifiers = _names(getattr(settings, "classifier", None))
    state = read_weights(path)
    if is_first_port(state):
        state = rename_for_timm(state, _own_state(timm, name, given))
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
        lambda request: timm_backbone(request.name, request.shape, request.weights),
        fits_weights=True,
        images=images_wanted,
    ),
)


def is_first_port(state: State) -> bool:
    """Tell whether weights are named as in the first PyTorch port of EfficientNet."""
    return PORT_MARK in state


def rename_for_timm(state: State, own: State) -> State:
    """Return the weights of the first PyTorch port of EfficientNet under timm's names.

    That port counts its blocks from the first to the last, timm counts them stage by stage.

    Args:
        state: Tensors by name, from a file.
        own: Tensors of the timm model, whose order of blocks decides.
    """
    blocks = list(dict.fromkeys(".".join(n.split(".")[:3]) for n in own if n.startswith("blocks.")))
    widened = {name.split(".")[1] for name in state if "._expand_conv." in name}
    renamed = {}
    for name, value in state.items():
        inside = BLOCK.fullmatch(name)
        if inside is None:
            layer, _, rest = name.partition(".")
            renamed[f"{EFFICIENTNET_LAYERS.get(layer, layer)}.{rest}"] = value
            continue
        number, layer, rest = inside.groups()
        layers = SQUEEZE | (EXPANDED_BLOCK if number in widened else SEPARABLE_BLOCK)
        block = blocks[int(number)] if int(number) < len(blocks) else f"_blocks.{number}"
        renamed[f"{block}.{layers.get(layer, layer)}.{rest}"] = value
    return renamed
