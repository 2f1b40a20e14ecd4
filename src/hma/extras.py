"""Packages that only some parts need, imported when first used."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hma.errors import UserError

if TYPE_CHECKING:
    import torch

PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn"}
MISSING_OPERATOR = "operator torchvision::nms does not exist"
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_declared: "list[torch.library.Library]" = []
"""Declarations last as long as the object that made them."""


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


def ensure_torchvision() -> None:
    """Import torchvision, first declaring the operators a CPU build of torch leaves it without.

    Some torchvision wheels carry compiled operators that load only beside the matching GPU build
    of torch. Beside a CPU build the import fails, because torchvision registers shape rules for
    operators nobody declared, and timm and transformers fail with it. Declaring those operators,
    without any code behind them, is enough for everything written in Python (datasets, transforms,
    models); calling a compiled operator still raises torchvision's own clear error.

    Call it before importing torchvision, timm or transformers. It does nothing where torchvision
    is healthy or already imported.

    Example, not run as a doctest because a repair lasts as long as the process::

        ensure_torchvision()
        import timm
    """
    try:
        import_module("torchvision")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise ImportError(
            "torchvision is not installed; it comes with the vision extra: "
            "pip install 'hma-torch[vision]'",
            name="torchvision",
        ) from error
    except RuntimeError as error:
        if MISSING_OPERATOR not in str(error):
            raise
        _declare_operators()
        _forget_half_imported()
        import_module("torchvision")


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    _declared.append(library)


def _forget_half_imported() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]


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
