"""Packages that only reports need."""

from importlib import import_module
from typing import Any

from hma.errors import UserError

PACKAGES = {"sklearn": "scikit-learn"}


def needed(module: str) -> Any:
    """Import ``module``, or say how to install it.

    Example:
        >>> needed("no_such_package.stats")
        Traceback (most recent call last):
        hma.errors.UserError: the report needs no_such_package: pip install no_such_package
    """
    top = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != top:
            raise
        package = PACKAGES.get(top, top)
        raise UserError(f"the report needs {package}: pip install {package}") from error
