"""Backbones by name, as people type them: ``mlp``, ``timm:resnet50``, ``hf:./my-bert``."""

import math
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Protocol

from torch import nn

from hma.backbones.cnn import cnn
from hma.backbones.frozen import Frozen
from hma.backbones.gnn import GCN, GIN
from hma.backbones.mlp import mlp
from hma.backbones.pretrained import hf_backbone, timm_backbone
from hma.backbones.prompts import PromptKind
from hma.backbones.resnet import resnet18
from hma.backbones.vit import Tuning, vit
from hma.backbones.weights import expect_weights_file, load_weights, read_weights
from hma.errors import UserError

Kind = Literal["table", "image", "graph", "text"]

TAKES: dict[str, tuple[Kind, ...]] = {
    "mlp": ("table", "image"),
    "cnn": ("image",),
    "resnet18": ("image",),
    "gin": ("graph",),
    "gcn": ("graph",),
    "timm:NAME": ("image",),
    "vit:NAME": ("image",),
    "hf:NAME_OR_DIR": ("text",),
}
"""Which kinds of rows each backbone reads."""

SMALL_IMAGE, MEDIUM_IMAGE = 16, 64


class Described(Protocol):
    """What a backbone needs to know of a task."""

    @property
    def name(self) -> str:
        """How the task is called in messages."""
        ...

    @property
    def kind(self) -> Kind:
        """What a row is."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        ...


def backbone_for(
    spec: str,
    *,
    weights: str | Path | None = None,
    frozen: bool = False,
    tuning: Tuning = "full",
    prompts: PromptKind | None = None,
) -> Callable[[Described], nn.Module]:
    """Return a function that builds the backbone ``spec`` for a task.

    Args:
        spec: ``mlp``, ``cnn``, ``resnet18``, ``gin``, ``gcn``, ``timm:NAME`` (a name of
            ``timm.list_models()``), ``vit:NAME`` (a Vision Transformer of timm that can be tuned
            in part) or ``hf:NAME_OR_DIR`` (a folder with a text encoder, or a name in the local
            Hugging Face cache). Nothing is ever downloaded.
        weights: A local file to start from: safetensors, or a state dict that torch saved.
        frozen: Keep the encoder as it is; only the memory and the head learn.
        tuning, prompts: Which part of ``vit:NAME`` trains, see :func:`hma.backbones.vit.vit`.

    Example:
        >>> from types import SimpleNamespace
        >>> task = SimpleNamespace(name="digits", kind="image", shape=(1, 8, 8))
        >>> backbone_for("cnn")(task).feature_dim
        128
        >>> backbone_for("gni")
        Traceback (most recent call last):
        hma.errors.UserError: backbone must be one of mlp, cnn, resnet18, gin, gcn, timm:NAME, \
vit:NAME, hf:NAME_OR_DIR, got 'gni'; did you mean 'gin'?
    """
    family, name = _parsed(spec)
    path = None if weights is None else Path(weights).expanduser()
    if path is not None:
        expect_weights_file(path)
    if family != "vit" and (tuning != "full" or prompts is not None):
        raise UserError(f"tuning and prompts are for vit:NAME, got {spec!r} with them")
    if frozen and tuning == "part":
        raise UserError(f"{spec} can be frozen or tuned in part, not both; leave one of them out")
    if frozen and path is None and family != "hf":
        warnings.warn(
            f"{spec} is frozen and has no weights, so it stays at its random start; give weights, "
            "or let it train",
            stacklevel=2,
        )

    def build(task: Described) -> nn.Module:
        _expect_fit(spec, family, task)
        if family == "vit":
            part: Tuning = "none" if frozen else tuning
            return vit(name, task.shape, tuning=part, prompts=prompts, weights=path)
        encoder = _built(family, name, task.shape, path)
        if path is not None and family not in ("timm", "hf"):  # those two fit weights their way
            load_weights(encoder, read_weights(path), path, spec)
        return Frozen(encoder) if frozen else encoder

    return build


def default_backbone(kind: Kind, shape: tuple[int, ...]) -> str:
    """Return the backbone to use where none is asked for, quick on a CPU.

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
        return "mlp"
    side = max(shape[1:])
    if side <= SMALL_IMAGE:
        return "mlp"
    return "cnn" if side <= MEDIUM_IMAGE else "timm:resnet18"


def _parsed(spec: str) -> tuple[str, str]:
    """Return the family of a backbone and the name after the colon, or suggest what was meant."""
    family, colon, name = spec.partition(":")
    known = {written.partition(":")[0]: ":" in written for written in TAKES}
    if known.get(family) == bool(colon) and (name or not colon):
        return family, name
    close = get_close_matches(family.lower(), known, n=1)
    named = {written.partition(":")[0]: written for written in TAKES}
    hint = f"; did you mean {named[close[0]]!r}?" if close else ""
    raise UserError(f"backbone must be one of {', '.join(TAKES)}, got {spec!r}{hint}")


def _expect_fit(spec: str, family: str, task: Described) -> None:
    takes = {written.partition(":")[0]: kinds for written, kinds in TAKES.items()}[family]
    if task.kind not in takes:
        fitting = " or ".join(written for written, kinds in TAKES.items() if task.kind in kinds)
        raise UserError(
            f"backbone {spec!r} reads rows of kind {' or '.join(takes)}, but {task.name} has rows "
            f"of kind {task.kind}; use {fitting}"
        )


def _built(family: str, name: str, shape: tuple[int, ...], weights: Path | None) -> nn.Module:
    match family:
        case "mlp":
            return mlp(math.prod(shape))
        case "cnn":
            return cnn(shape[0])
        case "resnet18":
            return resnet18(shape[0])
        case "gin":
            return GIN(shape[0])
        case "gcn":
            return GCN(shape[0])
        case "timm":
            return timm_backbone(name, shape, weights)
        case _:
            return hf_backbone(name, shape[0], weights)
