"""A Lightning callback that writes the memory after each optimizer step."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from hma.adapters.writing import StepWriter, Unpack, expect_parts, find_memory_model, replay_rows
from hma.extras import ensure_torchvision
from hma.model import MemoryModel

with suppress(ImportError):  # no torchvision, nothing to repair
    ensure_torchvision()
from lightning.pytorch import Callback, LightningModule, Trainer


class RememberCallback(Callback):
    """Give a model its memory while Lightning trains it.

    A memory that is learned after the backbone (:class:`hma.VotingMemory`) is learned in
    ``on_train_end`` from the rows of the training loader, which must be able to come again, with
    the validation loader's to judge by: checkpoints from before hold backbone and head alone, so
    call ``model.learn_memory`` after loading one. The paper's memory is written for each batch
    trained on, after the optimizer step that learned from it:

    ``training_step`` returns before the step, so the memory is written in ``on_train_batch_end``,
    the first hook after it, and only when the trainer counted a step: with gradient accumulation
    the batches wait for it. A batch whose ``training_step`` returned None is left out. Checkpoints
    are saved after this callback ran and hold what it wrote. Lightning warns of modules in eval
    mode when training starts: that is the momentum encoder, and it is meant to be.

    Args:
        model: The model to write into; by default the one inside the LightningModule.
        unpack: Takes a batch apart into ``(x, y)`` or ``(x, y, ids)``; by default it is that.

    Example, not run as a doctest because it trains::

        unpack = lambda batch: (batch[0], batch[0].y, batch[1])  # of WithIds(graphs)
        trainer = Trainer(callbacks=[RememberCallback(unpack=unpack)])
    """

    def __init__(self, model: MemoryModel | None = None, *, unpack: Unpack = expect_parts) -> None:
        self.model = model
        self.unpack = unpack
        self._steps = 0
        self._writer: StepWriter | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the model, and start slots that wait for rows."""
        self._writer = StepWriter(find_memory_model(pl_module, self.model), self.unpack)
        self._writer.start(_replay(trainer, trainer.train_dataloader))
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
        """Learn a memory that is learned last; let go of the model."""
        assert self._writer is not None
        rows = _replay(trainer, trainer.train_dataloader, whole=True)
        self._writer.finish(rows, _replay(trainer, trainer.val_dataloaders, whole=True))
        self._writer = None


def _replay(trainer: Trainer, loader: Any, *, whole: bool = False) -> Iterator[Any]:
    """Yield the batches of a loader once more, where the model is."""
    for batch in replay_rows(loader, whole=whole):
        yield trainer.strategy.batch_to_device(batch)
