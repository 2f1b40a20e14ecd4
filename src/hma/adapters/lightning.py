"""A Lightning callback that writes the memory after each optimizer step."""

from contextlib import suppress
from typing import Any

from hma.adapters.writing import StepWriter, Unpack, find_hma, pair
from hma.model import HMA
from hma.torchvision_ops import ensure_torchvision

with suppress(ImportError):  # no torchvision, nothing to repair
    ensure_torchvision()
from lightning.pytorch import Callback, LightningModule, Trainer


class RememberCallback(Callback):
    """Call ``remember`` for every batch trained on, after the optimizer step that learned from it.

    ``training_step`` returns before the step, so the memory is written in ``on_train_batch_end``,
    the first hook after it, and only when the trainer counted a step: with gradient accumulation
    the batches wait for it. A batch whose ``training_step`` returned None is left out. Checkpoints
    are saved after this callback ran and hold what it wrote. Lightning warns of modules in eval
    mode when training starts: that is the momentum encoder, and it is meant to be.

    Args:
        model: The model to write into; by default the one HMA inside the LightningModule.
        unpack: Takes a batch apart into ``(x, y)`` or ``(x, y, ids)``; a pair is taken as it is.

    Example, not run as a doctest because it trains::

        trainer = Trainer(callbacks=[RememberCallback(unpack=lambda graphs: (graphs, graphs.y))])
    """

    def __init__(self, model: HMA | None = None, *, unpack: Unpack = pair) -> None:
        self.model = model
        self.unpack = unpack
        self._steps = 0
        self._writer: StepWriter | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the model."""
        self._writer = StepWriter(find_hma(pl_module, self.model), self.unpack)
        self._steps = trainer.global_step

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Hold the batch, and write what is held if the optimizer has stepped."""
        assert self._writer is not None
        skipped = pl_module.automatic_optimization and not outputs
        if not skipped:
            self._writer.hold(batch)
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            self._writer.write()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let go of the model and of batches whose step never came."""
        self._writer = None
