"""Where a result comes from: versions, commit, data, memory."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import Tensor

import hma
from hma.data import Split, Task, tensors_of

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


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory held at once: by tensors on a GPU, else by the whole process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
