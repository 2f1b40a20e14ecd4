"""Save and load a model: safetensors and JSON, never pickle; whole or not at all."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hma.config import HMAConfig
from hma.errors import UserError, reason
from hma.files import FileError, HeldError, MissingFileError, file_sha256, held, no_lost_writes
from hma.growing import shapes_to_load
from hma.json_files import RESTORE, Default, checked, read_json, write_json
from hma.model import HMA
from hma.targets import Classes, Target, target_from_json
from hma.tensor_files import (
    Shapes,
    differing,
    read_shapes,
    read_tensors,
    shapes_of,
    write_tensors,
)

MANIFEST = "hma.json"
FORMAT = 1
SHAPE = {
    "format": int,
    "target": Default(dict | None),
    "num_classes": Default(int, 0),  # of models before there were other targets
    "feature_dim": int,
    "key_width": Default(int, 0),
    "frozen": bool,
    "config": dict,
    "weights": str,
    "sha256": str,
    "more": Default(dict[str, str], {}),
}
"""Of ``more`` files with weights the hash of each, by name."""
WAIT = 600.0
"""Seconds that a save waits for another one to the same folder."""
Entry = TypeVar("Entry")


class CheckpointError(UserError):
    """A checkpoint that cannot be used; says which file, what is wrong and what to do."""


def save(
    model: HMA, directory: str | Path, *, overwrite: bool = False, stored: Path | None = None
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
    """
    if not isinstance(model, HMA):
        raise TypeError(
            f"model must be an HMA, got {type(model).__name__}; save the model inside the wrapper: "
            "`.module` of a parallel one, `._orig_mod` of a compiled one"
        )
    folder = Path(directory)
    with saving(folder, MANIFEST, overwrite):
        _write(model, folder, stored)


@contextmanager
def saving(folder: Path, manifest: str, overwrite: bool) -> Iterator[None]:
    """Make ``folder`` and hold it against other saves; refuse to replace what is there unasked."""
    with no_lost_writes(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with held(folder, wait=WAIT):
            if (folder / manifest).exists() and not overwrite:
                raise FileExistsError(
                    f"{folder / manifest} exists already; pass overwrite=True to replace it or "
                    "choose another folder"
                )
            yield
    except HeldError as error:
        raise CheckpointError(
            f"another process has been saving to {folder} for {WAIT:.0f} s; end it, or choose "
            "another folder"
        ) from error


def _write(model: HMA, folder: Path, stored: Path | None) -> None:
    number = token_hex(8)
    try:
        files = _write_weights(model.state_dict(), folder, number, stored)
        first = next(iter(files))
        description = {
            "format": FORMAT,
            "target": model.target.to_json(),
            "feature_dim": model.feature_dim - model.key_width,
            "key_width": model.key_width,
            "frozen": model.memory_frozen,
            "config": asdict(replace(model.config, context=model.context)),
            "weights": first,
            "sha256": files.pop(first),
        }
        write_json(folder / MANIFEST, description | ({"more": files} if files else {}))
    except BaseException:
        _unlink(folder.glob(f"model-{number}*.safetensors"))
        raise
    every = set(folder.glob("model-*.safetensors"))
    _unlink(every - set(folder.glob(f"model-{number}*.safetensors")))


def _write_weights(
    state: Mapping[str, Tensor], folder: Path, number: str, stored: Path | None
) -> dict[str, str]:
    """Write weights, or link those that are on disk already; return each file's hash by name."""
    files = {}
    held = {} if stored is None else read_tensors(stored)
    if stored is not None and all(_same(state.get(name), own) for name, own in held.items()):
        name = f"model-{number}-stored.safetensors"
        try:
            os.link(stored, folder / name)
        except OSError:  # a file system without links
            shutil.copyfile(stored, folder / name)
        files[name] = file_sha256(folder / name)
        state = {name: value for name, value in state.items() if name not in held}
    if state:
        name = f"model-{number}.safetensors"
        files[name] = write_tensors(folder / name, state)
    return files


def _same(value: Tensor | None, other: Tensor) -> bool:
    return value is not None and value.dtype == other.dtype and torch.equal(value.cpu(), other)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def load(
    directory: str | Path,
    backbone: nn.Module,
    *,
    target: Target | None = None,
    key_encoder: nn.Module | None = None,
) -> HMA:
    """Return the model saved in ``directory``, in eval mode.

    Args:
        directory: What :func:`save` wrote.
        backbone: A module of the architecture that was saved; its weights are replaced, but
            only after the whole checkpoint has been checked.
        target: The target that was saved, where it is one of your own.
        key_encoder: A module of the architecture that was saved, where HMA was built with one.
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
) -> HMA:
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
    state = _match_slow_copy(_read_all(dict.fromkeys(files)), sketch, torch.tensor(0))
    model = _build(description, backbone, target, key_encoder)
    for name, own in model.state_dict(keep_vars=True).items():
        own.data = own.data.to(state[name].dtype)  # as saved, so that loading rounds nothing
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
) -> HMA:
    config = HMAConfig.from_dict(HMAConfig.from_before(description["config"]))
    width = description["feature_dim"]
    model = HMA(backbone, config=config, target=target, feature_dim=width, key_encoder=key_encoder)
    if model.key_width != description["key_width"]:
        raise ValueError(
            f"it was saved with a key_encoder of width {description['key_width']}, here it has "
            f"{model.key_width}; pass hma.load(..., key_encoder=...) as HMA was built with"
        )
    return model


def _target(description: Mapping[str, Any], given: Target | None) -> Target:
    stored = description["target"] or Classes(description["num_classes"]).to_json()
    if given is None:
        return target_from_json(stored)
    if given.to_json() != stored:
        raise ValueError(f"target must be the one that was saved, {stored}, got {given.to_json()}")
    return given


def is_saved(model: HMA, directory: str | Path) -> bool:
    """Return whether ``directory`` holds a whole checkpoint with the weights of ``model``."""
    try:
        kept = _read_all(_files(Path(directory), _read_manifest(Path(directory))))
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


def _read_all(files: Mapping[Path, str | None]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path, sha256 in files.items():
        tensors |= read_tensors(path, sha256=sha256)
    return tensors


def _match_slow_copy(state: Mapping[str, Entry], model: HMA, none: Entry) -> dict[str, Entry]:
    """Drop or make the momentum encoder's entries where backbone and checkpoint disagree on one.

    A backbone that is frozen now needs none; one that trains now but was saved frozen starts
    its momentum encoder as the copy of itself that it has been all along, after ``none`` steps.
    """
    prefix = "momentum_encoder."
    if model.momentum_encoder is None:
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


def read_description(path: Path, shape: Mapping[str, Any], *, absent: str) -> dict[str, Any]:
    """Return what the JSON file of a checkpoint says, or raise :class:`CheckpointError`.

    Args:
        path: The file.
        shape: What it must hold, see :func:`hma.json_files.checked`.
        absent: What to say where the file is not there.
    """
    try:
        description: dict[str, Any] = read_json(path, {"format": int})
        if description["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {description['format']}, this hma reads format {FORMAT}; "
                "install the version that wrote it"
            )
        return checked(description, shape)  # type: ignore[no-any-return]
    except MissingFileError as error:
        raise CheckpointError(absent) from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; {RESTORE}") from error


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
