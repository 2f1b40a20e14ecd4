"""Encoders of other libraries by name: image models of timm, text models of Hugging Face."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hma.backbones.efficientnet_names import from_first_port, named_for_timm
from hma.backbones.text import TransformerFeatures
from hma.backbones.weights import (
    State,
    difference,
    first_line,
    load_weights,
    read_weights,
    shown,
    without_classifier,
)
from hma.errors import UserError
from hma.extras import needed, needed_beside_torchvision
from hma.torchvision_ops import ensure_torchvision

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

    Nothing is downloaded.

    Args:
        name: A name of ``timm.list_models()``, with or without the tag of its weights.
        shape: Channels, height and width.
        weights: A local file.
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
    """Return timm's own model without a classifier, as :func:`timm_backbone` does.

    Args:
        name: A name of ``timm.list_models()``, with or without the tag of its weights.
        shape: Channels, height and width.
        weights: A local file.
        settings: Further arguments of ``timm.create_model``, such as ``depth``.
    """
    timm = _timm()
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        close = get_close_matches(architecture, timm.list_models(), n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "see timm.list_models()"
        raise UserError(f"timm has no model called {architecture!r}; {hint}")
    try:
        known = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise UserError(f"timm:{name} cannot be built: {first_line(error)}") from error
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


def _cannot_take(name: str, shape: tuple[int, ...], error: Exception) -> UserError:
    return UserError(f"timm:{name} cannot take images of shape {tuple(shape)}: {first_line(error)}")


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
        found = state.get(f"{stem}.weight")
        channels = given["in_chans"] if found is None else found.shape[1]
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
        reason = difference(state, _own_state(timm, name, given)) or first_line(error)
        raise UserError(f"{path} does not fit timm:{name}: {reason}") from error
    for described in ("pretrained_cfg", "default_cfg"):
        getattr(model, described, {}).pop("state_dict", None)  # or every copy would carry it
    return model


def _own_state(timm: Any, name: str, given: Mapping[str, Any]) -> State:
    state: State = timm.create_model(name, pretrained=False, **given).state_dict()
    return state


def _names(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def hf_backbone(name: str, tokens: int, weights: Path | None = None) -> TransformerFeatures:
    """Load a text encoder from a folder or from the local cache; nothing is downloaded.

    Args:
        name: A folder that ``save_pretrained`` wrote, or a name of the Hugging Face hub that
            has been downloaded before.
        tokens: Largest number of tokens in a row.
        weights: A local file to take the weights from instead.
    """
    transformers = needed_beside_torchvision("transformers", "this backbone", extra="text")
    folder = Path(name).expanduser()
    source = str(folder) if folder.is_dir() else name
    try:
        with _without_bars(transformers.utils.logging):
            model, report = transformers.AutoModel.from_pretrained(
                source, local_files_only=True, output_loading_info=True
            )
    except (OSError, ValueError) as error:
        raise UserError(_not_loaded(name, folder, error)) from error
    absent = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if absent and weights is None:
        raise UserError(
            f"hf:{name} lacks weights of its own encoder: {len(absent)} missing ({shown(absent)}); "
            "give a folder with all of them"
        )
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and tokens > most:
        raise UserError(
            f"hf:{name} reads at most {most} tokens, the rows have up to {tokens}; "
            "prepare the texts with a smaller length"
        )
    model = model.float().train()  # what from_pretrained returns is in eval mode
    if weights is not None:
        load_weights(model, _encoder_part(read_weights(weights), model), weights, f"hf:{name}")
    if isinstance(getattr(model, "pooler", None), nn.Module):
        model.pooler.requires_grad_(False)  # no feature passes through it
    return TransformerFeatures(model)


def _encoder_part(state: State, model: Any) -> State:
    """Return what a model with a head keeps under the name of its encoder, or all of it."""
    prefix = f"{model.base_model_prefix}."
    part = {name: value for name, value in state.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): value for name, value in part.items()} or state


def _not_loaded(name: str, folder: Path, error: Exception) -> str:
    if folder.is_dir():
        return f"hf:{name} cannot be loaded: {first_line(error)}"
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        return f"hf:{name} names a folder that is not there; give one that save_pretrained wrote"
    return (
        f"hf:{name} is neither a folder nor in the local cache; fetch it once with "
        f"`hf download {name}`, or give a folder that save_pretrained wrote"
    )


@contextmanager
def _without_bars(logging: Any) -> Iterator[None]:
    """Keep Hugging Face from drawing a bar for every file it reads."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
