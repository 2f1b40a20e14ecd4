"""Save and load a model: safetensors and JSON, never pickle; whole or not at all."""

import hashlib
import json
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hma.config import HMAConfig
from hma.files import written_whole
from hma.model import HMA

MANIFEST = "hma.json"
FORMAT = 1
FIELDS = {
    "format": int,
    "num_classes": int,
    "feature_dim": int,
    "frozen": bool,
    "config": dict,
    "weights": str,
    "sha256": str,
}


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; says which file, what is wrong and what to do."""


def save(model: HMA, directory: str | Path, *, overwrite: bool = False) -> None:
    """Write ``model`` into ``directory``: weights, both memories, anchors and configuration.

    The weights get a name of their own and the manifest that names them is replaced last, so
    a crash at any moment leaves the checkpoint that was there before, or the new one.

    Args:
        model: The model to save; the backbone's architecture is not saved, only its weights.
        directory: Where to; made if needed.
        overwrite: Replace a checkpoint that is already there.
    """
    if not isinstance(model, HMA):
        raise TypeError(
            f"model must be an HMA, got {type(model).__name__}; save the model inside the wrapper: "
            "`.module` of a parallel one, `._orig_mod` of a compiled one"
        )
    folder = Path(directory)
    manifest = folder / MANIFEST
    if manifest.exists() and not overwrite:
        raise FileExistsError(
            f"{manifest} exists already; pass overwrite=True to replace it or choose another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / f"model-{token_hex(8)}.safetensors"
    with written_whole(weights) as temporary:
        save_file(_plain_tensors(model), temporary)
    description = {
        "format": FORMAT,
        "num_classes": model.num_classes,
        "feature_dim": model.feature_dim,
        "frozen": model.memory_frozen,
        "config": asdict(replace(model.config, context=model.context)),
        "weights": weights.name,
        "sha256": _sha256(weights),
    }
    with written_whole(manifest) as temporary:
        temporary.write_text(json.dumps(description, indent=2) + "\n")
    for old in folder.glob("model-*.safetensors"):
        if old != weights:
            old.unlink()
    for left in chain(folder.glob(f".{MANIFEST}-*"), folder.glob(".model-*.safetensors-*")):
        rmtree(left)  # by a save that was killed


def load(directory: str | Path, backbone: nn.Module) -> HMA:
    """Return the model saved in ``directory``, in eval mode.

    Args:
        directory: What :func:`save` wrote.
        backbone: A module of the architecture that was saved; its weights are replaced, but
            only after the whole checkpoint has been checked.
    """
    folder = Path(directory)
    description = _read_manifest(folder)
    weights = folder / description["weights"]
    _check_hash(weights, description["sha256"])
    try:
        config = HMAConfig.from_dict(description["config"])
        state = load_file(weights)
        model = HMA(
            backbone, description["num_classes"], config, feature_dim=description["feature_dim"]
        )
    except (ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be loaded: {error}") from error
    state = _match_momentum_encoder(state, model)
    problems = differing(state, model)
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise CheckpointError(f"{folder} does not fit this backbone:\n{lines}")
    for name, own in model.state_dict(keep_vars=True).items():
        own.data = own.data.to(state[name].dtype)  # as saved, so that loading rounds nothing
    model.load_state_dict(state)
    model.eval()
    if description["frozen"]:
        model.freeze_memory()
    return model


def differing(state: dict[str, Tensor], model: HMA) -> list[str]:
    """Say where a state and a model differ in names and sizes, a line for each tensor."""
    own = model.state_dict()
    free = "anchors"  # any number of anchors fits
    return [
        *(f"{name} is missing from the checkpoint" for name in own if name not in state),
        *(f"{name} is not part of this model" for name in state if name not in own),
        *(
            f"{name} has shape {tuple(state[name].shape)} in the checkpoint, "
            f"{tuple(own[name].shape)} in this model"
            for name in own
            if name in state and name != free and state[name].shape != own[name].shape
        ),
    ]


def _match_momentum_encoder(state: dict[str, Tensor], model: HMA) -> dict[str, Tensor]:
    """Drop or make the momentum encoder's entries where backbone and checkpoint disagree on one.

    A backbone that is frozen now needs none; one that trains now but was saved frozen starts
    its momentum encoder as the copy of itself that it has been all along.
    """
    prefix = "momentum_encoder."
    saved = any(name.startswith(prefix) for name in state)
    if model.momentum_encoder is None:
        return {name: value for name, value in state.items() if not name.startswith(prefix)}
    if saved:
        return state
    copies = {
        f"{prefix}encoder.{name.removeprefix('backbone.')}": value
        for name, value in state.items()
        if name.startswith("backbone.")
    }
    return state | copies


def _plain_tensors(model: HMA) -> dict[str, Tensor]:
    """Return the state with no two entries sharing storage, as safetensors wants it."""
    seen: set[int] = set()
    plain = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise CheckpointError(
                f"{name} holds a {type(value).__name__}, and only tensors can be saved without "
                "pickle; keep it in a buffer"
            )
        storage = value.untyped_storage().data_ptr()
        plain[name] = value.contiguous().clone() if storage in seen else value.contiguous()
        seen.add(storage)
    return plain


def _read_manifest(folder: Path) -> dict[str, Any]:
    manifest = folder / MANIFEST
    try:
        description = json.loads(manifest.read_text())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"{folder} is no checkpoint of hma: it has no {MANIFEST}; name a folder that hma.save "
            "wrote, or use hma.load_released for one of the authors'"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{manifest} is damaged: {error}; restore it from a copy") from error
    missing = FIELDS.keys() - set(description) if isinstance(description, dict) else FIELDS.keys()
    if missing:
        raise CheckpointError(f"{manifest} is no manifest of hma: it lacks {sorted(missing)}")
    if description["format"] != FORMAT:
        raise CheckpointError(
            f"{manifest} has format {description['format']!r}, this hma reads format {FORMAT}; "
            "install the version that wrote it"
        )
    for name, kind in FIELDS.items():
        if not isinstance(description[name], kind):
            raise CheckpointError(
                f"{manifest} is damaged: {name} must be of type {kind.__name__}, "
                f"got {description[name]!r}; restore it from a copy"
            )
    name = description["weights"]
    if name in ("", "..") or Path(name).name != name:
        raise CheckpointError(f"{manifest} names weights outside its folder: {name!r}")
    result: dict[str, Any] = description
    return result


def _check_hash(weights: Path, expected: str) -> None:
    if not weights.exists():
        raise CheckpointError(f"{weights} is missing; restore it from a copy")
    if _sha256(weights) != expected:
        raise CheckpointError(
            f"{weights} is damaged: its content does not match the hash in {MANIFEST}; "
            "restore it from a copy"
        )


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
