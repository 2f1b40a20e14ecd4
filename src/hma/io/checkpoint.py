"""A model on disk: safetensors and JSON in a folder, never pickle."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from hma.attention.config import HMAConfig
from hma.attention.hma import HMA
from hma.errors import UserError, reason
from hma.io.card import CARD, ModelCard, card_text
from hma.io.files import (
    FileError,
    HeldError,
    MissingFileError,
    atomic_write,
    explain_write_errors,
    file_sha256,
    hold_lock,
)
from hma.io.json_files import RESTORE, Default, read_json, validate, write_json
from hma.io.tensor_files import (
    Shapes,
    compare_shapes,
    read_shapes,
    read_tensors,
    shapes_of,
    write_tensors,
)
from hma.memory.growing import load_without_copy, shapes_to_load
from hma.model import MemoryModel
from hma.targets import Target, target_from_json
from hma.vote.config import VoteConfig
from hma.vote.voting_memory import VotingMemory

FORMAT = 2
WAIT = 600.0
"""Seconds that a save waits for another one to the same folder."""


class CheckpointError(UserError):
    """A checkpoint that cannot be used; says which file, what is wrong and what to do."""


@contextmanager
def hold_for_saving(folder: Path, names: Iterable[str], overwrite: bool) -> Iterator[None]:
    """Make ``folder`` and hold it against other saves; refuse to replace what is there unasked."""
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with hold_lock(folder, wait=WAIT):
            there = [folder / name for name in names if (folder / name).exists()]
            if there and not overwrite:
                raise FileExistsError(
                    f"{there[0]} exists already; pass overwrite=True to replace it or choose "
                    "another folder"
                )
            yield
    except HeldError as error:
        raise CheckpointError(
            f"another process has been saving to {folder} for {WAIT:.0f} s; end it, or choose "
            "another folder"
        ) from error


def write_weights(
    state: Mapping[str, Tensor], folder: Path, number: str, stored: Path | None
) -> dict[str, str]:
    """Write weights, or link those that are on disk already; return each file's hash by name."""
    files = {}
    known = {} if stored is None else read_tensors(stored)
    if stored is not None and all(_same(state.get(name), own) for name, own in known.items()):
        name = f"model-{number}-stored.safetensors"
        try:
            os.link(stored, folder / name)
        except OSError:  # a file system without links
            shutil.copyfile(stored, folder / name)
        files[name] = file_sha256(folder / name)
        state = {name: value for name, value in state.items() if name not in known}
    if state:
        name = f"model-{number}.safetensors"
        files[name] = write_tensors(folder / name, state)
    return files


def _same(value: Tensor | None, other: Tensor) -> bool:
    return value is not None and value.dtype == other.dtype and torch.equal(value.cpu(), other)


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files that may be gone already."""
    for path in paths:
        path.unlink(missing_ok=True)


def read_weights(files: Mapping[Path, str | None]) -> dict[str, Tensor]:
    """Return the tensors of all files together; each is held to its hash, where one is given."""
    tensors: dict[str, Tensor] = {}
    for path, sha256 in files.items():
        tensors |= read_tensors(path, sha256=sha256)
    return tensors


def read_description(
    path: Path, shape: Mapping[str, Any], *, absent: str, sealed: bool = False
) -> dict[str, Any]:
    """Return what the JSON file of a checkpoint says, or raise :class:`CheckpointError`.

    Args:
        path: The file.
        shape: What it must hold, see :func:`hma.io.json_files.validate`.
        absent: What to say where the file is not there.
        sealed: The file was written sealed.
    """
    try:
        description: dict[str, Any] = read_json(path, {"format": int}, sealed=sealed)
        if description["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {description['format']}, this hma reads format {FORMAT}; "
                "install the version that wrote it"
            )
        return validate(description, shape)  # type: ignore[no-any-return]
    except MissingFileError as error:
        raise CheckpointError(absent) from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; {RESTORE}") from error


# ------------------------------------------------------------------------------------ a model in it


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
        with (
            hold_for_saving(folder, [MANIFEST, *([CARD] if text else [])], overwrite),
            ExitStack() as after,
        ):
            if text:  # it takes its place when the model has, or not at all
                after.enter_context(atomic_write(folder / CARD)).write_text(text, encoding="utf-8")
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
        remove_files(folder.glob(f"model-{number}*.safetensors"))
        raise
    every = set(folder.glob("model-*.safetensors"))
    remove_files(every - set(folder.glob(f"model-{number}*.safetensors")))


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
    if problems := compare_shapes(saved, wanted):
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise CheckpointError(
            f"{folder} does not fit this backbone: {'; '.join(problems[:5])}{more}"
        )
    state = _match_slow_copy(read_weights(dict.fromkeys(files)), sketch, torch.tensor(0))
    model = _build(description, backbone, target, key_encoder)
    for name, own in model.state_dict(keep_vars=True).items():
        own.data = own.data.to(state[name].dtype)  # as saved, so that loading rounds nothing
    with load_without_copy():
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
