"""Save and load a model: safetensors and JSON, never pickle; whole or not at all."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from hma.attention.config import HMAConfig
from hma.attention.hma import HMA
from hma.errors import UserError, reason
from hma.io.card import CARD, ModelCard, card_text
from hma.io.checkpoint_files import (
    FORMAT,
    CheckpointError,
    read_description,
    read_weights,
    remove,
    saving,
    write_weights,
)
from hma.io.files import FileError, MissingFileError, written_whole
from hma.io.json_files import RESTORE, Default, write_json
from hma.io.tensor_files import Shapes, differing, read_shapes, shapes_of
from hma.memory.growing import rows_as_they_are, shapes_to_load
from hma.model import MemoryModel
from hma.targets import Target, target_from_json
from hma.vote.config import VoteConfig
from hma.vote.voting_memory import VotingMemory

MANIFEST = "hma.json"
SHAPE = {
    "format": int,
    "memory": Literal["vote", "hma"],
    "target": dict,
    "feature_dim": int,
    "key_width": int,
    "frozen": bool,
    "config": dict,
    "weights": str,
    "sha256": str,
    "more": Default(dict[str, str], {}),
}
"""Of ``more`` files with weights the hash of each, by name."""
Entry = TypeVar("Entry")


def save(
    model: MemoryModel,
    directory: str | Path,
    *,
    overwrite: bool = False,
    stored: Path | None = None,
    card: bool | ModelCard = False,
) -> None:
    """Write ``model`` into ``directory``: weights, both memories, anchors and configuration.

    The weights get a name of their own and the manifest that names them is replaced last, so
    a crash at any moment leaves the checkpoint that was there before, or the new one.

    Args:
        model: The model to save; the backbone's architecture is not saved, only its weights.
        directory: Where to; made if needed.
        overwrite: Replace a checkpoint that is already there.
        stored: A safetensors file that holds part of the model's state as it is; it is linked
            into ``directory`` where the file system can, so that nothing is on disk twice.
        card: Write a model card, ``README.md``, too; a :class:`ModelCard` says what the model does
            not know of itself. A card is for people: :func:`load` does not read it.
    """
    if not isinstance(model, MemoryModel):
        raise TypeError(
            f"model must be an hma.HMA or hma.VotingMemory, got {type(model).__name__}; save the "
            "model inside the wrapper: "
            "`.module` of a parallel one, `._orig_mod` of a compiled one"
        )
    folder = Path(directory)
    with model.lock.shared():
        text = card_text(model, card, folder.resolve().name)
        with saving(folder, [MANIFEST, *([CARD] if text else [])], overwrite), ExitStack() as after:
            if text:  # it takes its place when the model has, or not at all
                after.enter_context(written_whole(folder / CARD)).write_text(text, encoding="utf-8")
            _write(model, folder, stored)


def _write(model: MemoryModel, folder: Path, stored: Path | None) -> None:
    number = token_hex(8)
    try:
        files = write_weights(model.state_dict(), folder, number, stored)
        first = next(iter(files))
        description = {
            "format": FORMAT,
            "memory": model.memory,
            "target": model.target.to_json(),
            "feature_dim": model.feature_dim - model.key_width,
            "key_width": model.key_width,
            "frozen": model.memory_frozen,
            "config": asdict(_config_now(model)),
            "weights": first,
            "sha256": files.pop(first),
        }
        write_json(folder / MANIFEST, description | ({"more": files} if files else {}))
    except BaseException:
        remove(folder.glob(f"model-{number}*.safetensors"))
        raise
    every = set(folder.glob("model-*.safetensors"))
    remove(every - set(folder.glob(f"model-{number}*.safetensors")))


def _config_now(model: MemoryModel) -> HMAConfig | VoteConfig:
    """Return the configuration of a model, with the context it answers in."""
    config: HMAConfig | VoteConfig = model.config
    return replace(config, context=model.context) if isinstance(config, HMAConfig) else config


def load(
    directory: str | Path,
    backbone: nn.Module,
    *,
    target: Target | None = None,
    key_encoder: nn.Module | None = None,
) -> MemoryModel:
    """Return the model saved in ``directory``, in eval mode.

    Args:
        directory: What :func:`save` wrote.
        backbone: A module of the architecture that was saved; its weights are replaced, but
            only after the whole checkpoint has been checked.
        target: The target that was saved, where it is one of your own.
        key_encoder: A module of the architecture that was saved, where there was one.
    """
    folder = Path(directory)
    description = _read_manifest(folder)
    while True:
        try:
            return _load(folder, description, backbone, target, key_encoder)
        except MissingFileError as error:  # by a save that went on meanwhile, or for good
            before, description = description, _read_manifest(folder)
            if before == description:
                raise CheckpointError(f"{error}; {RESTORE}") from error
        except FileError as error:
            raise CheckpointError(str(error)) from error


def _load(
    folder: Path,
    description: Mapping[str, Any],
    backbone: nn.Module,
    given: Target | None,
    key_encoder: nn.Module | None,
) -> MemoryModel:
    """Build the model without memory first, so that nothing is allocated which does not fit."""
    files = _files(folder, description)
    saved: Shapes = {}
    for path, sha256 in files.items():
        saved |= read_shapes(path, sha256=sha256)
    try:
        target = _target(description, given)
        with torch.device("meta"):
            sketch = _build(description, backbone, target, key_encoder)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise CheckpointError(f"{folder} cannot be loaded: {reason(error)}") from error
    saved = _match_slow_copy(saved, sketch, ())
    wanted = shapes_to_load(sketch, shapes_of(sketch.state_dict()), saved)
    if problems := differing(saved, wanted):
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise CheckpointError(
            f"{folder} does not fit this backbone: {'; '.join(problems[:5])}{more}"
        )
    state = _match_slow_copy(read_weights(dict.fromkeys(files)), sketch, torch.tensor(0))
    model = _build(description, backbone, target, key_encoder)
    for name, own in model.state_dict(keep_vars=True).items():
        own.data = own.data.to(state[name].dtype)  # as saved, so that loading rounds nothing
    with rows_as_they_are():
        model.load_state_dict(state)
    model.eval()
    if description["frozen"]:
        model.freeze_memory()
    return model


def _build(
    description: Mapping[str, Any],
    backbone: nn.Module,
    target: Target,
    key_encoder: nn.Module | None,
) -> MemoryModel:
    width = description["feature_dim"]
    if description["memory"] == HMA.memory:
        if key_encoder is not None:
            raise ValueError("key_encoder is for hma.VotingMemory, and an hma.HMA was saved")
        paper = HMAConfig.from_dict(description["config"])
        return HMA(backbone, config=paper, target=target, feature_dim=width)
    config = VoteConfig.from_dict(description["config"])
    model = VotingMemory(
        backbone, config=config, target=target, feature_dim=width, key_encoder=key_encoder
    )
    if model.key_width != description["key_width"]:
        raise ValueError(
            f"it was saved with a key_encoder of width {description['key_width']}, here it has "
            f"{model.key_width}; pass hma.load(..., key_encoder=...) as VotingMemory was built with"
        )
    return model


def _target(description: Mapping[str, Any], given: Target | None) -> Target:
    stored = description["target"]
    if given is None:
        return target_from_json(stored)
    if given.to_json() != stored:
        raise ValueError(f"target must be the one that was saved, {stored}, got {given.to_json()}")
    return given


def is_saved(model: MemoryModel, directory: str | Path) -> bool:
    """Return whether ``directory`` holds a whole checkpoint with the weights of ``model``."""
    try:
        kept = read_weights(_files(Path(directory), _read_manifest(Path(directory))))
    except UserError:
        return False
    own = model.state_dict()
    return kept.keys() == own.keys() and all(
        torch.equal(value, own[name].cpu()) for name, value in kept.items()
    )


def _files(folder: Path, description: Mapping[str, Any]) -> dict[Path, str]:
    """Return the files of weights that a manifest names, with their hashes."""
    named = {description["weights"]: description["sha256"], **description["more"]}
    return {folder / name: sha256 for name, sha256 in named.items()}


def _match_slow_copy(
    state: Mapping[str, Entry], model: MemoryModel, none: Entry
) -> dict[str, Entry]:
    """Drop or make the momentum encoder's entries where backbone and checkpoint disagree on one.

    A backbone that is frozen now needs none; one that trains now but was saved frozen starts
    its momentum encoder as the copy of itself that it has been all along, after ``none`` steps.
    """
    prefix = "momentum_encoder."
    if not isinstance(model, HMA) or model.momentum_encoder is None:
        return {name: value for name, value in state.items() if not name.startswith(prefix)}
    if any(name.startswith(prefix) for name in state):
        return dict(state)
    copies = {
        f"{prefix}encoder.{name.removeprefix('backbone.')}": value
        for name, value in state.items()
        if name.startswith("backbone.")
    }
    counted = {f"{prefix}steps": none} if model.config.momentum_warmup else {}
    return {**state, **copies, **counted}


def _read_manifest(folder: Path) -> dict[str, Any]:
    manifest = folder / MANIFEST
    absent = (
        f"{folder} is no checkpoint of hma: it has no {MANIFEST}; name a folder that hma.save "
        "wrote, or use hma.load_released for one of the authors'"
    )
    description = read_description(manifest, SHAPE, absent=absent)
    for name in (description["weights"], *description["more"]):
        if name in ("", "..") or Path(name).name != name:
            raise CheckpointError(f"{manifest} names weights outside its folder: {name!r}")
    return description
