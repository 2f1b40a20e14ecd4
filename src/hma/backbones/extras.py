"""Packages that only some backbones need, imported when one of them is built."""

import warnings
from importlib import import_module
from typing import Any

from hma.errors import UserError
from hma.torchvision_ops import ensure_torchvision


def needed(module: str, extra: str) -> Any:
    """Import ``module``, or say which extra of hma installs it.

    Args:
        module: Dotted name.
        extra: The extra that brings the package.

    Example:
        >>> needed("no_such_package.nn", extra="graph")
        Traceback (most recent call last):
        hma.errors.UserError: no_such_package is not installed: pip install 'hma-torch[graph]'
    """
    package = module.partition(".")[0]
    try:
        with warnings.catch_warnings():
            # torch_geometric scripts a class when it is imported
            warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise UserError(f"{package} is not installed: pip install 'hma-torch[{extra}]'") from error


def needed_beside_torchvision(module: str, extra: str) -> Any:
    """Import a package that imports torchvision where it is installed; see :func:`needed`."""
    try:
        ensure_torchvision()
    except ImportError as error:
        if error.name != "torchvision":
            raise
    return needed(module, extra)
