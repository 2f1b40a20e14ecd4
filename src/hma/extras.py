"""Packages that only some parts need, imported when first used."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hma.errors import UserError
from hma.torchvision_ops import ensure_torchvision

PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn"}


def needed(module: str, purpose: str, *, extra: str | None = None) -> Any:
    """Import ``module``, or say what needs it and how to install it.

    Args:
        module: Dotted name.
        purpose: What cannot be done without it, as the start of a sentence.
        extra: The extra of hma that brings the package; None names the package.

    Example:
        >>> needed("no_such_package.io", "reading tea leaves")
        Traceback (most recent call last):
        hma.errors.UserError: reading tea leaves needs no_such_package: pip install no_such_package
    """
    top = module.partition(".")[0]
    try:
        with warnings.catch_warnings(), _hidden("outdated"):
            # torch_geometric scripts a class when it is imported
            warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != top:
            raise
        package = PACKAGES.get(top, top)
        remedy = package if extra is None else f"'hma-torch[{extra}]'"
        raise UserError(f"{purpose} needs {package}: pip install {remedy}") from error


def needed_beside_torchvision(module: str, purpose: str, *, extra: str | None = None) -> Any:
    """Import a package that imports torchvision, which beside a CPU torch needs a repair."""
    if find_spec("torchvision") is not None:
        ensure_torchvision()
    return needed(module, purpose, extra=extra)


def fabric_module() -> Any:
    """Return ``lightning.fabric``."""
    return needed_beside_torchvision("lightning.fabric", "training")


def torchmetrics_classification() -> Any:
    """Return ``torchmetrics.functional.classification``."""
    return needed_beside_torchvision(
        "torchmetrics.functional.classification", "scoring predictions"
    )


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Let a package seem absent to others; with ``outdated`` at hand ogb asks PyPI for a newer one.

    Where it is imported already nothing is done.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # what an import of it then fails by
    try:
        yield
    finally:
        del sys.modules[package]
