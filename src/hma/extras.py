"""What is imported only when it is used: names of this package, and packages that are optional."""

import ast
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from inspect import getsource
from pathlib import Path
from types import FrameType
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


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names are imported when used.

    They are the names that the package imports under ``if TYPE_CHECKING``, where type checkers and
    the documentation find them too.

    Args:
        package: Its ``__name__``.
    """
    module = sys.modules[package]
    guarded = [node for node in ast.parse(getsource(module)).body if isinstance(node, ast.If)]
    homes = {
        alias.name: statement.module
        for node in guarded
        for statement in node.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        home = homes[name]
        if home == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(module), *homes})

    return find, names


@contextmanager
def importing() -> Iterator[None]:
    """Within the block, let Ctrl-C end the process with one line, as nothing has been done yet.

    A program that handles Ctrl-C in its own way is left alone.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os.write(2, b"hma: interrupted before anything was done\n")
    os._exit(130)


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
        remedy = f"pip install {package}" if extra is None else install_command(extra)
        raise UserError(f"{purpose} needs {package}: {remedy}") from error


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this copy of hma, in the way it was installed.

    A checkout is named by its folder, a wheel by its file while that is there, else the package.

    Args:
        extra: One of those of ``pyproject.toml``; several are separated by commas.
    """
    checkout = Path(__file__).parents[2]
    project = checkout / "pyproject.toml"
    if project.is_file() and 'name = "hma-torch"' in project.read_text(encoding="utf-8"):
        return f"pip install -e '{checkout}[{extra}]'"
    wheel = _wheel_file()
    source = f" @ {wheel}" if wheel else ""
    return f"pip install 'hma-torch[{extra}]{source}'"


def _wheel_file() -> str | None:
    """Return the address of the file that pip installed this copy from, if it is still there."""
    import json  # these take a while, and seldom anybody asks
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        text = distribution("hma-torch").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    address = json.loads(text)["url"] if text else ""
    is_there = address.endswith(".whl") and Path(url2pathname(urlsplit(address).path)).is_file()
    return address if is_there else None


def needed_beside_torchvision(module: str, purpose: str, *, extra: str | None = None) -> Any:
    """Import a package that imports torchvision, which beside a CPU torch needs a repair."""
    if find_spec("torchvision") is not None:
        ensure_torchvision()
    return needed(module, purpose, extra=extra)


def fabric_module() -> Any:
    """Return ``lightning.fabric``."""
    return needed_beside_torchvision("lightning.fabric", "training")


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
            + install_command("vision"),
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
