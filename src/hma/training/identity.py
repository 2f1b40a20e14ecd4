"""Which run this is, and where its result comes from: options, data, versions, commit."""

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hma
from hma.attention.config import HMAConfig
from hma.data import Split, Task, tensors_of
from hma.errors import UserError
from hma.io.json_files import finite_or_none
from hma.memory.growing import growing_names
from hma.methods import Learner
from hma.options.recipe import NO_EFFECT_ON_RESULTS, Recipe
from hma.targets import Classes
from hma.vote.config import VoteConfig

Identity = dict[str, Any]
DEFAULTS: dict[str, dict[str, Any]] = {
    "recipe": Recipe().to_json(),
    "config": asdict(HMAConfig()),
}


def identity(
    learner: Learner, task: Task, recipe: Recipe, seed: int, resolved: Mapping[str, Any] | None
) -> Identity:
    """Return everything that decides the result of a run, in JSON values."""
    return {
        "seed": seed,
        "task": {
            "name": task.name,
            "kind": task.kind,
            "classes": list(task.classes),
            "shape": list(task.shape),
            "metric": task.metric,
            **_target(task),
            "rows": _rows(task),
            "facts": _json("task.facts", task.facts),
            "data_fingerprint": data_fingerprint(task),
        },
        "method": _method(learner),
        "recipe": recipe.to_json(),
        "resolved": _json("resolved", resolved or {}),
    }


def refuse_another_run(where: str, found: Identity, wanted: Identity) -> None:
    """Raise if what is stored at ``where`` belongs to another run, naming every difference."""
    if differing := differences(found, wanted):
        lines = "; ".join(differing)
        raise UserError(
            f"{where} belongs to another run: {lines}. Use the same options to continue it, or "
            "another folder for a new run"
        )


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Say where a run is not the one that is wanted, each with both values: the one way to ask.

    In a ``recipe`` what has no effect on results may differ, and a field that recipes or configs
    did not have when it was stored counts as its default. A ``config`` is compared by the fields
    of today, see :func:`config_of_record`.

    Example:
        >>> now = {"seed": 0, "recipe": Recipe(lr=0.1).to_json()}
        >>> differences({"seed": 1, "recipe": {"lr": 0.1}}, now)
        ['seed was 1, is 0 now']
        >>> before = {"similarity": "distance", "queue_size": 512, "key_view": "inputs"}
        >>> now = {"memory_size": 512, "key_view": "inputs", "solved": "none"}
        >>> differences({"config": before}, {"config": now})
        []
    """
    return list(_differences(found, wanted, ""))


def _differences(found: Any, wanted: Any, path: str) -> Iterator[str]:
    inside, _, name = path.rpartition(".")
    recipe = "recipe" in (name, inside.rpartition(".")[2])
    if recipe and name in NO_EFFECT_ON_RESULTS:
        return
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        known = DEFAULTS.get(name, {})
        if name == "config":
            found = config_of_record(found)
            known = {} if MEMORY_SIZE in found else known
        found = {key: known[key] for key in wanted if key in known} | dict(found)
        other = found.get("memory") != wanted.get("memory")  # its configuration has other fields
        for name in dict.fromkeys([*wanted, *found]):
            if name == "config" and other:
                continue
            inner = f"{path}.{name}" if path else name
            yield from _differences(found.get(name), wanted.get(name), inner)
    elif found != wanted:
        yield f"{path} was {_short(found)}, is {_short(wanted)} now"


MEMORY_SIZE = "memory_size"
"""Field that tells a memory whose rows vote from the paper's."""


def config_of_record(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a record by the fields of today.

    Committed records are of a time when both memories had one configuration, whose field
    ``similarity`` chose between them; configurations of today come out as they are. Votes were not
    solved for before a field said so. A vote that is
    no longer part of the package keeps its name, so that it is never taken for the one that is.

    Example:
        >>> config_of_record({"similarity": "dot", "queue_size": 8, "key_dim": 128})
        {'queue_size': 8}
    """
    values = dict(values)
    if values.pop("similarity", "dot") == "dot":
        if MEMORY_SIZE in values:
            return {"solved": "none"} | values
        return {name: value for name, value in values.items() if name in DEFAULTS["config"]}
    kept = {field.name for field in fields(VoteConfig)}
    found = {MEMORY_SIZE: values.pop("queue_size")}
    found |= {"key_view": values.pop("key_view", "features"), "solved": "none"}
    found |= {name: value for name, value in values.items() if name in kept}
    retired = {"vote": values.get("vote", "mixed"), "values": values.get("values", False)}
    return found | {n: v for n, v in retired.items() if v not in ("mixed", False)}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _target(task: Task) -> dict[str, Any]:
    """Return what a label is, where the classes do not say it."""
    of_classes = task.target == Classes(max(len(task.classes), 1))
    return {} if of_classes else {"target": task.target.to_json()}


def _rows(task: Task) -> dict[str, int]:
    tests = {name: len(split) for name, split in task.tests.items()}
    return {"train": len(task.train), "validation": len(task.validation)} | tests


def _method(learner: Learner) -> dict[str, Any]:
    module = learner.module
    config = getattr(module, "config", None)
    known = is_dataclass(config) and not isinstance(config, type)
    return {
        "learner": type(learner).__name__,
        "contexts": list(learner.contexts),
        "module": type(module).__name__,
        "weights": sum(parameter.numel() for parameter in module.parameters()),
        "trained_weights": sum(p.numel() for p in module.parameters() if p.requires_grad),
        "architecture": _architecture(module),
        "config": _json("config", asdict(config)) if known else None,  # type: ignore[arg-type]
    }


def _architecture(module: nn.Module) -> str:
    """Return a hash of the module as printed and of the names and shapes of its state."""
    printed = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module))
    growing = growing_names(module)  # how many rows are there now is no part of what is asked for
    shapes = [
        f"{name} {(0, *value.shape[1:]) if name in growing else tuple(value.shape)}"
        for name, value in module.state_dict().items()
        if isinstance(value, Tensor)
    ]
    return hashlib.sha256("\n".join([printed, *shapes]).encode()).hexdigest()[:16]


def _json(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = finite_or_none(json.loads(json.dumps(dict(values))))
    except TypeError as error:
        raise TypeError(f"{name} must hold JSON values only: {error}") from error
    return plain


PACKAGES = ("torch", "numpy", "lightning", "torchmetrics", "safetensors")
SAMPLED_ROWS = 16


@cache
def versions(*more: str) -> Mapping[str, str]:
    """Return the versions of Python and of the packages that numbers depend on, and of ``more``."""
    by_package = {"python": platform.python_version(), "hma": hma.__version__}
    for package in (*PACKAGES, *more):
        try:
            by_package[package] = version(package)
        except PackageNotFoundError:
            continue
    return by_package


@cache
def git_commit() -> str | None:
    """Return the commit of hma's source, ``-dirty`` if changed since; None outside a repository."""
    package = Path(hma.__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None  # installed, perhaps inside somebody else's repository
    return _git(package, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def data_fingerprint(task: Task) -> str:
    """Return a hash of a task: its description, all labels, and the content of some rows."""
    digest = hashlib.sha256()
    about = [task.name, task.kind, task.classes, task.shape, task.metric, dict(task.facts)]
    digest.update(json.dumps(about, sort_keys=True, default=str).encode())
    splits = {"train": task.train, "validation": task.validation}
    splits |= {f"test {name}": split for name, split in task.tests.items()}
    for name, split in splits.items():
        digest.update(f"{name} {len(split)}".encode())
        for tensor in _content(split):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def _content(split: Split) -> Iterator[Tensor]:
    yield split.labels
    if len(split):
        rows = torch.linspace(0, len(split) - 1, min(len(split), SAMPLED_ROWS)).long()
        batch = split.batch(rows)
        yield from tensors_of(batch.x if batch.features is None else batch.features)
