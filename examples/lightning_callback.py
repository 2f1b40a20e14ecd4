"""A LightningModule with a memory: one callback is all that training needs to know of it."""

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import hma
from hma.adapters.lightning import RememberCallback
from hma.backbones import mlp
from hma.data.sets.digits import digits

from lightning.pytorch import LightningModule, Trainer, seed_everything  # isort: skip


class Digits(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = hma.VotingMemory(mlp(in_features=64), num_classes=10)

    def training_step(self, batch, index):
        x, y = batch
        return cross_entropy(self.model(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("loss", cross_entropy(self.model(x), y))

    def test_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self.model(x).argmax(dim=1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.model.parameters(), lr=1e-3)


def loader(split, **options):
    return DataLoader(TensorDataset(split.x, split.labels), **options)


seed_everything(0, verbose=False)
task = digits(seed=0)
module = Digits()
trainer = Trainer(
    max_epochs=8,
    callbacks=[RememberCallback()],
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(
    module,
    loader(task.train, batch_size=64, shuffle=True),
    loader(task.validation, batch_size=360),  # decides what the memory counts
)
(scores,) = trainer.test(module, loader(task.tests["test"], batch_size=360), verbose=False)
print(f"test accuracy {scores['accuracy']:.3f}")
