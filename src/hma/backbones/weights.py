"""Weights for a backbone from a local file: read without running code, fitted name by name."""

import pickle
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from hma.errors import UserError, reason
from hma.io.files import expect_regular

TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".tar")
SUFFIXES = (".safetensors", *TORCH_SUFFIXES)
WRAPPERS = ("state_dict", "model")
"""Entries under which training scripts keep the weights among other things."""
PREFIXES = ("module.", "_orig_mod.")
"""What parallel and compiled models put before every name."""
CLASSIFIERS = ("head", "fc", "classifier")
"""Usual names of a classifier; HMA brings its own, so a backbone has none."""
SHOWN = 3

State = dict[str, Tensor]


def expect_weights_file(path: Path) -> None:
    """Raise unless ``path`` is a file of a kind that :func:`read_weights` reads."""
    try:
        expect_regular(path)
    except UserError as error:
        raise UserError(f"weights must be a file: {error}") from error
    if path.suffix not in SUFFIXES:
        raise UserError(
            f"weights must end in {', '.join(SUFFIXES)}, got {path}; save the state dict with "
            "safetensors.torch.save_file"
        )


def read_weights(path: Path) -> State:
    """Return the tensors of a file by name; pickled files may hold tensors only.

    Entries such as ``state_dict`` are opened, and the prefixes of parallel and compiled models
    are dropped. Of a file that hma wrote, the backbone's weights are returned.

    Args:
        path: A ``.safetensors`` file, or what ``torch.save`` wrote.
    """
    expect_weights_file(path)
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} holds more than tensors, or is damaged, and is not unpickled; save only the "
            "state dict, best with safetensors.torch.save_file"
        ) from error
    except Exception as error:  # a damaged file can raise anything
        raise UserError(f"{path} cannot be read: {reason(error)}") from error
    return _extract_state(content, path)


def _extract_state(content: Any, path: Path) -> State:
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not content:
        raise UserError(f"{path} holds no named tensors; save the state dict of the model")
    others = [
        str(name)
        for name, value in content.items()
        if not isinstance(value, Tensor) or not isinstance(name, str)
    ]
    if others:
        raise UserError(
            f"{path} holds entries that are no tensors: {join_names(others)}; save the state dict "
            "alone"
        )
    state: State = dict(content)
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return part_of_state(state, "backbone.")


def part_of_state(state: State, prefix: str) -> State:
    """Return the tensors whose names begin with ``prefix``, without it; all where none does."""
    part = {name: value for name, value in state.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): value for name, value in part.items()} or state


def without_classifier(state: State, names: Iterable[str]) -> State:
    """Return ``state`` without the weights of the modules called ``names``."""
    prefixes = tuple(f"{name}." for name in names)
    return {name: value for name, value in state.items() if not name.startswith(prefixes)}


def load_weights(module: nn.Module, state: State, path: Path, spec: str) -> None:
    """Give ``module`` the weights of ``state``, all of them, or say in one line what differs.

    A classifier in the file is left out where the backbone has none; the pooler of a text
    encoder, which no feature passes through, may be missing.

    Args:
        module: The backbone.
        state: What :func:`read_weights` returned.
        path: Where it is from, for the message.
        spec: What the backbone is called, for the message.
    """
    own = module.state_dict()
    names = [name for name in CLASSIFIERS if not any(n.startswith(f"{name}.") for n in own)]
    state = without_classifier(state, names)
    unused = {name for name in own if name.startswith("pooler.") and name not in state}
    problem = difference(state, {name: own[name] for name in own if name not in unused})
    if problem:
        raise UserError(f"{path} does not fit {spec}: {problem}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # complex numbers would lose a part in silence
            module.load_state_dict(state, strict=not unused)
    except (RuntimeError, Warning) as error:
        raise UserError(f"{path} does not fit {spec}: {reason(error)}") from error


def difference(state: State, own: State) -> str:
    """Say how the weights of a file differ from those of a model; empty where they do not.

    Example:
        >>> difference({"a": torch.zeros(2), "b": torch.zeros(1)}, {"a": torch.zeros(3)})
        '1 not part of it (b); 1 of another shape (a is (2,) in the file and (3,) here)'
    """
    missing = [name for name in own if name not in state]
    unexpected = [name for name in state if name not in own]
    shapes = [
        f"{name} is {tuple(state[name].shape)} in the file and {tuple(own[name].shape)} here"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    kinds = (
        (missing, "missing from the file"),
        (unexpected, "not part of it"),
        (shapes, "of another shape"),
    )
    return "; ".join(f"{len(names)} {what} ({join_names(names)})" for names, what in kinds if names)


def join_names(names: list[str]) -> str:
    """Return the first few names."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
