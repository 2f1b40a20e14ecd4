"""Packages that only some parts need, imported when first used."""

import warnings
from importlib import import_module
from typing import Any

from hma.errors import UserError

PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn"}


def needed(module: str, purpose: str) -> Any:
    """Import ``module``, or say what needs it and how to install it.

    Args:
        module: Dotted name.
        purpose: What cannot be done without it, as the start of a sentence.

    Example:
        >>> needed("no_such_package.io", "reading tea leaves")
        Traceback (most recent call last):
        hma.errors.UserError: reading tea leaves needs no_such_package: pip install no_such_package
    """
    top = module.partition(".")[0]
    try:
        with warnings.catch_warnings():
            # torch_geometric scripts a class when it is imported
            warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != top:
            raise
        package = PACKAGES.get(top, top)
        raise UserError(f"{purpose} needs {package}: pip install {package}") from error
