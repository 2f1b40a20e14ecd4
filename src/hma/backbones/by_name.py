"""Backbones by name, as people type them: ``mlp``, ``timm:resnet50``, ``hf:./my-bert``."""

import warnings
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from torch import nn

from hma.backbones.frozen import Frozen
from hma.backbones.named_backbone import (
    BackboneRequest,
    Described,
    ImagesWanted,
    NamedBackbone,
    PromptKind,
    TextVector,
    Tuning,
)
from hma.backbones.weights import expect_weights_file, load_weights, read_weights
from hma.errors import UserError
from hma.options.preparation import Kind
from hma.options.run import Pool

MODULES = (
    "mlp",
    "convnets",
    "gnn",
    "timm_models",
    "vit",
    "text",
)
"""Files of this folder that name backbones, in the order they are listed to a user."""
BACKBONES: tuple[NamedBackbone, ...] = tuple(
    one for module in MODULES for one in import_module(f"hma.backbones.{module}").NAMED
)
SMALL_IMAGE, MEDIUM_IMAGE = 16, 64


def backbone_for(
    spec: str,
    *,
    weights: str | Path | None = None,
    frozen: bool = False,
    standardised: bool = False,
    tuning: Tuning = "full",
    prompts: PromptKind | None = None,
    pooling: Pool | None = None,
    normalize: bool | None = None,
) -> Callable[[Described], nn.Module]:
    """Return a function that builds the backbone ``spec`` for a task.

    Args:
        spec: ``binned-mlp``, ``mlp``, ``cnn``, ``resnet18``, ``gin``, ``gcn``, ``timm:NAME`` (a
            name of ``timm.list_models()``), ``vit:NAME`` (a Vision Transformer of timm that can
            be tuned in part) or ``hf:NAME_OR_DIR`` (a folder with a text encoder, or a name in
            the local Hugging Face cache). Nothing is ever downloaded.
        weights: A local file to start from: safetensors, or a state dict that torch saved.
        frozen: Keep the encoder as it is; only the memory and the head learn.
        standardised: Bring its features to mean 0 and variance 1, where it is frozen.
        tuning, prompts: Which part of ``vit:NAME`` trains, see :func:`hma.backbones.vit.vit`.
        pooling: How ``hf:NAME_OR_DIR`` makes one vector of a text: ``"mean"`` of its tokens, the
            first one, ``"cls"``, or ``"max"``; by default as its folder says, or the mean.
        normalize: Whether that vector is brought to length 1; by default as its folder says.

    Example:
        >>> from types import SimpleNamespace
        >>> task = SimpleNamespace(name="digits", kind="image", shape=(1, 8, 8))
        >>> backbone_for("cnn")(task).feature_dim
        128
        >>> backbone_for("gni")
        Traceback (most recent call last):
        hma.errors.UserError: backbone must be one of binned-mlp, mlp, cnn, resnet18, gin, gcn, \
timm:NAME, vit:NAME, hf:NAME_OR_DIR, got 'gni'; did you mean 'gin'?
    """
    one, name = _parse(spec)
    path = None if weights is None else Path(weights).expanduser()
    if path is not None:
        expect_weights_file(path)
    if not one.tunes and (tuning != "full" or prompts is not None):
        tuned = " or ".join(other.written for other in BACKBONES if other.tunes)
        raise UserError(f"tuning and prompts are for {tuned}, got {spec!r} with them")
    _expect_text(spec, one, pooling=pooling, normalize=normalize)
    if frozen and tuning == "part":
        raise UserError(f"{spec} can be frozen or tuned in part, not both; leave one of them out")
    if frozen and path is None and not one.pretrained:
        warnings.warn(
            f"{spec} is frozen and has no weights, so it stays at its random start; give weights, "
            "or let it train",
            stacklevel=2,
        )

    def build(task: Described) -> nn.Module:
        _expect_fit(spec, one, task)
        part: Tuning = "none" if frozen else tuning
        rows = getattr(task, "train", None)
        encoder = one.build(
            BackboneRequest(name, task.shape, path, part, prompts, pooling, normalize, rows)
        )
        if path is not None and not one.fits_weights:
            load_weights(encoder, read_weights(path), path, spec)
        if frozen and (standardised or not one.tunes):
            return Frozen(encoder, standardised=standardised)
        return encoder

    return build


def images_wanted(spec: str) -> ImagesWanted | None:
    """Return which images the weights of a backbone want; None where that is not known.

    Args:
        spec: As :func:`backbone_for` takes it.

    Example, not run as a doctest because it needs the vision extra::

        >>> images_wanted("timm:tf_efficientnet_lite0").crop
        0.875
    """
    one, name = _parse(spec)
    return one.images(name)


def text_vector_of(
    spec: str, pooling: Pool | None = None, normalize: bool | None = None
) -> TextVector | None:
    """Return how a text encoder makes one vector of a text; None for a backbone of other rows.

    Args:
        spec: As :func:`backbone_for` takes it.
        pooling, normalize: What is asked for; by default what the encoder was made for.
    """
    one, name = _parse(spec)
    return one.text_vector(name, pooling, normalize)


def default_backbone(kind: Kind, shape: tuple[int, ...]) -> str:
    """Return the backbone to use if none is named, quick on a CPU.

    Images up to 16 pixels go to the multilayer perceptron, which beats the convolutional
    network there at a sixth of the time (digits with 5 labels per class: 87.4% against 85.9%);
    up to 64 pixels to the convolutional network, larger ones to a ResNet that shrinks them
    first. Text has no default: it needs an encoder that has learned a language.

    Example:
        >>> default_backbone("graph", (7,)), default_backbone("image", (3, 32, 32))
        ('gin', 'cnn')
    """
    if kind == "text":
        raise UserError(
            "text has no default backbone; give hf:DIRECTORY, a folder with a pretrained encoder, "
            "or hf:NAME after `hf download NAME`"
        )
    if kind == "graph":
        return "gin"
    if kind == "table":
        return "binned-mlp"
    side = max(shape[1:])
    if side <= SMALL_IMAGE:
        return "mlp"
    return "cnn" if side <= MEDIUM_IMAGE else "timm:resnet18"


def _parse(spec: str) -> tuple[NamedBackbone, str]:
    """Return the backbone and the name after the colon, or suggest what was meant."""
    family, colon, name = spec.partition(":")
    known = {one.family: one for one in BACKBONES}
    one = known.get(family)
    if one is not None and (":" in one.written) == bool(colon) and (name or not colon):
        return one, name
    close = get_close_matches(family.lower(), known, n=1)
    hint = f"; did you mean {known[close[0]].written!r}?" if close else ""
    every = ", ".join(one.written for one in BACKBONES)
    raise UserError(f"backbone must be one of {every}, got {spec!r}{hint}")


def _expect_text(spec: str, one: NamedBackbone, **options: object) -> None:
    """Raise if an option of text encoders is given for a backbone of other rows."""
    for option, value in options.items():
        if value is not None and "text" not in one.takes:
            raise UserError(f"{option} is for encoders of text, got {spec!r} with {value!r}")


def _expect_fit(spec: str, one: NamedBackbone, task: Described) -> None:
    if task.kind not in one.takes:
        fitting = " or ".join(other.written for other in BACKBONES if task.kind in other.takes)
        raise UserError(
            f"backbone {spec!r} reads rows of kind {' or '.join(one.takes)}, but {task.name} has "
            f"rows of kind {task.kind}; use {fitting}"
        )
