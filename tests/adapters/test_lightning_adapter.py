"""The Lightning callback against the loop written out by hand."""

import importlib.util
from dataclasses import replace

import pytest
import torch
from plain_training import (
    RATE,
    expect_same,
    follows,
    fresh_model,
    in_batches,
    rows,
    trained_by_hand,
)
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from hma import HMA
from hma.errors import UserError

if importlib.util.find_spec("lightning") is None:
    pytest.skip("needs lightning", allow_module_level=True)

from hma.adapters.lightning import RememberCallback

lightning = importlib.import_module("lightning.pytorch")  # after the adapter repaired torchvision

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning's own
    pytest.mark.filterwarnings("ignore:Found .* in eval mode"),  # the momentum encoder
    pytest.mark.filterwarnings("ignore:.training_step. returned .None"),
    pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path"),
    pytest.mark.filterwarnings("ignore:You defined a .validation_step. but have no"),
]


class Steps:
    """An HMA somewhere inside, trained as Lightning's guide says."""

    def __init__(self, skipped=(), unpack=lambda batch: batch):
        super().__init__()
        self.inside = nn.ModuleDict({"model": fresh_model()})
        self.skipped, self.unpack = skipped, unpack

    @property
    def model(self):
        return self.inside["model"]

    def training_step(self, batch, index):
        if index in self.skipped:
            return None
        x, y = self.unpack(batch)[:2]
        return nn.functional.cross_entropy(self.model(x), y)

    def validation_step(self, batch, index):
        x, y = self.unpack(batch)[:2]
        self.log("loss", nn.functional.cross_entropy(self.model(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=RATE)


class Module(Steps, lightning.LightningModule):
    pass


class Manual(Module):
    """Steps the optimizer itself, after every second batch."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, index):
        x, y = batch
        self.manual_backward(nn.functional.cross_entropy(self.model(x), y) / 2)
        if index % 2 == 1:
            self.optimizers().step()
            self.optimizers().zero_grad()


def trainer(*callbacks, package=lightning, **options):
    quiet = {
        "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "max_epochs": 1,
        "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    return package.Trainer(callbacks=list(callbacks), **(quiet | options))


def loader(data, size=8):
    return DataLoader(TensorDataset(*data), batch_size=size)


def test_every_batch_is_written_after_the_step_that_learned_from_it():
    data, module = rows(30), Module()
    trainer(RememberCallback(), max_epochs=2).fit(module, loader(data))
    steps = [[batch] for batch in in_batches(data, 8)] * 2
    expect_same(module.model, trained_by_hand(steps))
    assert not follows(module.model, trained_by_hand(steps, write="before"))


def test_slots_that_wait_start_before_the_first_step():
    module = Module()
    config = replace(fresh_model().config, slot_init="class_means")
    module.inside["model"] = HMA(fresh_model().backbone, 3, config)
    found = []
    module.on_train_batch_start = lambda *_: found.append(module.model.synthetic.waits)
    trainer(RememberCallback()).fit(module, loader(rows(30)))
    assert found == [False] * 4


@pytest.mark.parametrize("accumulated", [2, 3])
def test_accumulated_batches_wait_for_their_step_and_move_the_momentum_encoder_once(accumulated):
    data, module = rows(52), Module()  # 7 batches: the last step of an epoch has one
    trainer(RememberCallback(), accumulate_grad_batches=accumulated, max_epochs=2).fit(
        module, loader(data)
    )
    batches = in_batches(data, 8)
    steps = [batches[at : at + accumulated] for at in range(0, 7, accumulated)] * 2
    assert [len(step) for step in steps][-1] == 1
    expect_same(module.model, trained_by_hand(steps, divisor=accumulated))


def test_manual_optimization_writes_when_the_module_steps():
    data, module = rows(32), Manual()
    trainer(RememberCallback()).fit(module, loader(data))
    batches = in_batches(data, 8)
    expect_same(module.model, trained_by_hand([batches[:2], batches[2:]]))


def test_a_batch_that_training_step_left_out_is_not_written():
    data, module = rows(32), Module(skipped=(1,))
    trainer(RememberCallback()).fit(module, loader(data))
    batches = in_batches(data, 8)
    expect_same(module.model, trained_by_hand([[batches[0]], [batches[2]], [batches[3]]]))


def test_validation_rows_are_not_written():
    data, module = rows(24), Module()
    trainer(RememberCallback(), val_check_interval=1).fit(module, loader(data), loader(rows(40)))
    expect_same(module.model, trained_by_hand([[batch] for batch in in_batches(data, 8)]))


class Named(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data[1])

    def __getitem__(self, place):
        return {"pixels": self.data[0][place], "class": self.data[1][place], "place": place}


def test_unpack_takes_any_batch_apart_and_passes_ids_on():
    def unpack(batch):
        return batch["pixels"], batch["class"], batch["place"]

    data, module = rows(24), Module(unpack=unpack)
    trainer(RememberCallback(unpack=unpack)).fit(module, DataLoader(Named(data), batch_size=8))
    expect_same(module.model, trained_by_hand([[batch] for batch in in_batches(data, 8)]))
    assert module.model.memory_state().ids.tolist() == list(range(4, 24))


def test_a_given_model_is_written_where_there_are_two():
    data, module = rows(24), Module()
    module.second = fresh_model()
    with pytest.raises(UserError, match=r"holds 2 of them \(inside\.model, second\)"):
        trainer(RememberCallback()).fit(module, loader(data))
    module = Module()
    module.second = fresh_model()
    trainer(RememberCallback(module.model)).fit(module, loader(data))
    expect_same(module.model, trained_by_hand([[batch] for batch in in_batches(data, 8)]))
    assert len(module.second.memory_state().labels) == 0


def test_a_checkpoint_of_a_step_holds_its_rows_and_a_resumed_run_goes_on_from_there(tmp_path):
    data, module = rows(32), Module()
    checkpoint = lightning.callbacks.ModelCheckpoint(
        tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1, save_last=False
    )
    trainer(checkpoint, RememberCallback(), enable_checkpointing=True, max_epochs=2).fit(
        module, loader(data)
    )
    batches = in_batches(data, 8)
    saved = torch.load(tmp_path / "step=4.ckpt", weights_only=True)["state_dict"]
    expected = trained_by_hand([[batch] for batch in batches]).state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(saved[f"inside.model.{name}"], value, rtol=1e-4, atol=1e-6)
    resumed = Module()
    trainer(RememberCallback(), max_epochs=2).fit(
        resumed, loader(data), ckpt_path=tmp_path / "step=4.ckpt", weights_only=True
    )
    expect_same(resumed.model, module.model)
    expect_same(resumed.model, trained_by_hand([[batch] for batch in batches] * 2))


@pytest.mark.skipif(
    importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch_lightning"
)
def test_the_trainer_of_the_pytorch_lightning_package_takes_the_callback():
    import pytorch_lightning

    class Other(Steps, pytorch_lightning.LightningModule):
        pass

    data, module = rows(24), Other()
    trainer(RememberCallback(), package=pytorch_lightning).fit(module, loader(data))
    expect_same(module.model, trained_by_hand([[batch] for batch in in_batches(data, 8)]))
