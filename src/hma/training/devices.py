"""Where a run computes: Lightning Fabric for devices, number formats and several processes."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from hma.errors import Interrupted, UserError, reason
from hma.extras import fabric_module
from hma.methods import Learner, Output
from hma.methods.learner import Forward
from hma.options.recipe import Recipe

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
    devices = 1 if devices is None else devices
    if devices < 1:
        raise UserError(f"devices must be at least 1, got {devices}")
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
    lightning = fabric_module()
    with warnings.catch_warnings():
        # it would go on in another number format; we do not
        warnings.filterwarnings("ignore", ".*AMP with fp16 is not supported on CPU.*")
        try:
            fabric: Fabric = lightning.Fabric(
                accelerator=accelerator,
                devices=devices,
                num_nodes=nodes,
                precision=precision,
                strategy=strategy,
            )
        except (RuntimeError, ValueError, _misconfiguration()) as error:
            raise UserError(
                f"accelerator {accelerator!r} with {devices} device(s) cannot be used here: "
                f"{reason(error)}"
            ) from error
    if fabric.strategy.precision.precision != precision:
        raise UserError(
            f"precision {precision!r} does not work on {fabric.device.type}; use 'bf16-mixed'"
        )
    with _without_chatter():
        fabric.launch()
    return fabric


class _ForwardPass(nn.Module):
    """A learner's forward pass as a module, which is what Fabric wraps.

    Args:
        run: The forward pass.
        module: Holds its weights.
    """

    def __init__(self, run: Forward, module: nn.Module) -> None:
        super().__init__()
        self.run = run
        self.module = module

    def forward(self, *inputs: Any) -> Output:
        """Return logits and features."""
        return self.run(*inputs)


def place_on_device(
    learner: Learner, optimizer: Optimizer, fabric: "Fabric", recipe: Recipe
) -> Any:
    """Lead forward passes through Fabric's devices and number format; return the optimizer."""
    if fabric.world_size == 1 and recipe.precision == "32-true":
        # its wrapper of the module would have nothing to do, and cost a percent of a small step
        fabric.to_device(learner.module)
        return fabric.setup_optimizers(optimizer)
    forward_pass = _ForwardPass(learner.run, learner.module)
    learner.run, optimizer = fabric.setup(forward_pass, optimizer)
    return optimizer


def first_process() -> bool:
    """Return whether this process is the one that speaks and writes, before Fabric knows."""
    given = os.environ
    rank = given.get("RANK") or int(given.get("NODE_RANK", 0)) + int(given.get("LOCAL_RANK", 0))
    return int(rank) == 0


@contextmanager
def ending_together(fabric: "Fabric") -> Iterator[None]:
    """Within the block, see to it that no process of a run is left behind by the others.

    Of an interruption, or of a process that died, the first process alone tells; where it fails,
    it ends those it started.
    """
    try:
        yield
        fabric.barrier()
    except Interrupted:
        if not fabric.is_global_zero:
            raise SystemExit(0) from None  # any other code would make Fabric kill the first one
        raise
    except BaseException as error:
        for process in getattr(fabric.strategy.launcher, "procs", []):
            process.kill()
        if fabric.world_size == 1 or not _tells_of_a_lost_process(error):
            raise
        if not fabric.is_global_zero:
            raise SystemExit(1) from None
        raise UserError(
            "another process of the run has ended, so it cannot go on; everything written before "
            "is intact: start the same run again to continue"
        ) from error
    finally:
        if fabric.world_size > 1:
            dist.destroy_process_group()


def _tells_of_a_lost_process(error: BaseException) -> bool:
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    return isinstance(error, RuntimeError) and "gloo" in str(error)


def _misconfiguration() -> type[Exception]:
    found: type[Exception] = fabric_module().utilities.exceptions.MisconfigurationException
    return found


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep Lightning from telling what it does; warnings and errors still show."""
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("fabric", "pytorch")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def data_parallel(**options: Any) -> Any:
    """Return Fabric's DDP strategy without its copying of buffers in every forward pass.

    They are brought together before each validation instead: the memory queue is one of them,
    and is the same everywhere already.
    """
    return fabric_module().strategies.DDPStrategy(**{buffer_option(): False} | options)


def buffer_option() -> str:
    """Return how this torch names DDP's option to copy buffers in every forward pass."""
    known = signature(DistributedDataParallel.__init__).parameters
    return "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
