"""Libraries that training needs and ``import hma`` does not, imported when first used."""

from importlib.util import find_spec
from typing import Any

from hma.extras import needed
from hma.torchvision_ops import ensure_torchvision


def fabric_module() -> Any:
    """Return ``lightning.fabric``."""
    return _after_torchvision("lightning.fabric", "training")


def torchmetrics_classification() -> Any:
    """Return ``torchmetrics.functional.classification``."""
    return _after_torchvision("torchmetrics.functional.classification", "scoring predictions")


def _after_torchvision(module: str, purpose: str) -> Any:
    """Import a module that imports torchvision, which beside a CPU torch needs a repair."""
    if find_spec("torchvision") is not None:
        ensure_torchvision()
    return needed(module, purpose)
