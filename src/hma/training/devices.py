"""Where a run computes: Lightning Fabric for devices, number formats and several processes."""

import os
import warnings
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from hma.errors import UserError
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
    strategy = data_parallel() if devices * nodes > 1 else "auto"
    return _launched(accelerator, recipe.precision, devices, nodes, strategy)


@cache
def _one_device(accelerator: str, precision: str) -> "Fabric":
    """Return a Fabric that keeps nothing of a run; making one is slow, so runs share it."""
    return _launched(accelerator, precision)


def _launched(
    accelerator: str, precision: str, devices: int = 1, nodes: int = 1, strategy: Any = "auto"
) -> "Fabric":
    with warnings.catch_warnings():
        # it would go on in another number format; we do not
        warnings.filterwarnings("ignore", ".*AMP with fp16 is not supported on CPU.*")
        fabric: Fabric = fabric_module().Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            precision=precision,
            strategy=strategy,
        )
    if fabric.strategy.precision.precision != precision:
        raise UserError(
            f"precision {precision!r} does not work on {fabric.device.type}; use 'bf16-mixed'"
        )
    fabric.launch()
    return fabric


def data_parallel(**options: Any) -> Any:
    """Return Fabric's DDP strategy without its copying of buffers in every forward pass.

    They are brought together before each validation instead: the memory queue is one of them,
    and is the same everywhere already.
    """
    known = signature(DistributedDataParallel.__init__).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return fabric_module().strategies.DDPStrategy(**{name: False} | options)
