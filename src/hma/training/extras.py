"""Libraries that training needs and ``import hma`` does not, imported when first used."""

from typing import Any

from hma.extras import needed_beside_torchvision


def fabric_module() -> Any:
    """Return ``lightning.fabric``."""
    return needed_beside_torchvision("lightning.fabric", "training")


def torchmetrics_classification() -> Any:
    """Return ``torchmetrics.functional.classification``."""
    return needed_beside_torchvision(
        "torchmetrics.functional.classification", "scoring predictions"
    )
