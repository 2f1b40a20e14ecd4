"""Where a run computes: Lightning Fabric for devices, number formats and several processes."""

import os
from functools import cache
from typing import TYPE_CHECKING

from hma.training.extras import fabric_module
from hma.training.recipe import Recipe

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def fabric_for(
    recipe: Recipe, *, accelerator: str = "auto", devices: int | None = None
) -> "Fabric":
    """Return a launched Fabric for a recipe: one device, or several processes that train together.

    With several devices the program is started again for each of the others, as Fabric does;
    under ``torchrun`` the processes it started are used.

    Args:
        recipe: Its ``precision`` is used.
        accelerator: 'cpu', 'cuda', 'mps', or 'auto' for the best there is.
        devices: How many; all of torchrun's, or 1, if not given.
    """
    nodes = 1
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = devices or int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"])
    devices = devices or 1
    if devices * nodes == 1 and recipe.precision != "16-mixed":
        return _one_device(accelerator, recipe.precision)
    # buffers are brought together before each validation instead of in every forward pass:
    # the memory queue is one of them, and is the same everywhere already
    together = fabric_module().strategies.DDPStrategy(broadcast_buffers=False)
    fabric: Fabric = fabric_module().Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        precision=recipe.precision,
        strategy=together if devices * nodes > 1 else "auto",
    )
    fabric.launch()
    return fabric


@cache
def _one_device(accelerator: str, precision: str) -> "Fabric":
    """Return a Fabric that keeps nothing of a run; making one is slow, so runs share it."""
    fabric: Fabric = fabric_module().Fabric(accelerator=accelerator, devices=1, precision=precision)
    fabric.launch()
    return fabric
