"""Through no way of training does a row read its own stored copy."""

import importlib.util
from functools import partial

import numpy as np
import pytest
import torch
from plain_training import CLASSES, INPUTS, rows
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset

from hma import HMA, HMAConfig, VoteConfig, VotingMemory
from hma.adapters import writing
from hma.adapters.writing import WithIds
from hma.backbones import mlp
from hma.vote import learning, voting_memory

if importlib.util.find_spec("skorch") is not None:
    importlib.import_module("hma.adapters.skorch")  # before skorch: it quietens its import

CONFIG = {"key_dim": 8, "candidates": 6}
BATCH, EPOCHS, ROWS, KEY_STEPS = 8, 2, 24, 6
HELD_OUT = tuple(part[ROWS:] for part in rows(ROWS + 9))

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You defined a .validation_step. but have no"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
]


def needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(packages)}")


class Spy:
    """Turns the label of each row's own copy round, and looks who answers otherwise."""

    def __init__(self):
        self.own = self.others = self.steps = 0

    def look(self, keys, places, again, logits):
        for row, (place, own) in enumerate(zip(places, keys.places[places], strict=True)):
            if own < 0:
                continue
            copies = (keys.ballots.made[place], keys.stored_ballots.made[own])
            before = [ballot.clone() for ballot in copies]
            for ballot in copies:  # of the row in its batch, and of the stored one
                ballot.copy_(ballot.roll(1))
            said = again()
            for ballot, was in zip(copies, before, strict=True):
                ballot.copy_(was)
            torch.testing.assert_close(said[row], logits[row], msg=f"row {row} read itself")
            self.own += 1
            self.others += int(((said - logits).abs() > 1e-4).any(dim=1).sum())


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(learning, "LEAST_STEPS", KEY_STEPS)
    monkeypatch.setattr(learning, "LEAST_PASSES", 1)
    monkeypatch.setattr(learning, "ROWS_A_STEP", BATCH)


@pytest.fixture
def spy(monkeypatch, few_steps):
    found, said = Spy(), []
    inside, voted = learning._Learning._loss, learning.count_votes

    def noted(*given):
        said.append(voted(*given))
        return said[-1]

    def loss(keys, places):
        before = keys.chance.get_state()
        value = inside(keys, places)
        after = keys.chance.get_state()

        @torch.no_grad()
        def again():
            keys.chance.set_state(before)  # the same dropout, the same candidates
            inside(keys, places)
            return said[-1]

        found.steps += 1
        found.look(keys, places, again, said[-1].detach())
        keys.chance.set_state(after)
        return value

    monkeypatch.setattr(learning, "count_votes", noted)
    monkeypatch.setattr(learning._Learning, "_loss", loss)
    return found


def model_of(config):
    torch.manual_seed(0)
    return VotingMemory(mlp(INPUTS, hidden=(16,)), CLASSES, VoteConfig(**config))


def expect_held(model, data, places=None):
    """The memory holds these rows, each once, with its label, as the weights of now encode it."""
    state = model.memory_state()
    places = torch.arange(len(data[1])) if places is None else places
    assert sorted(state.ids.tolist()) == places.tolist()
    assert torch.equal(data[1][state.ids], state.labels)
    encoded = model.eval().backbone(data[0][state.ids]).detach()
    torch.testing.assert_close(state.features, encoded.to(state.features))


def with_lightning(data, config=CONFIG, sampler=None):
    from hma.adapters.lightning import RememberCallback

    lightning = importlib.import_module("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model_of(config)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.model(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=EPOCHS,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[RememberCallback()],
    )  # fmt: skip
    numbered = WithIds(TensorDataset(*data))
    loader = DataLoader(numbered, batch_size=BATCH, shuffle=sampler is None, sampler=sampler)
    trainer.fit(module, loader, DataLoader(TensorDataset(*HELD_OUT), batch_size=BATCH))
    return module.model


def skorch_net(config=CONFIG, **options):
    from hma.adapters.skorch import MemoryModule, RememberCallback, RowsWithIds

    skorch = importlib.import_module("skorch")
    return skorch.NeuralNetClassifier(
        MemoryModule, module__num_classes=CLASSES,
        **{f"module__{name}": value for name, value in config.items()},
        criterion=nn.CrossEntropyLoss, optimizer=torch.optim.SGD, lr=0.1, batch_size=BATCH,
        max_epochs=EPOCHS, verbose=0, iterator_train__shuffle=True, callbacks=[RememberCallback()],
        **{
            "module__backbone": partial(mlp, INPUTS, hidden=(16,)), "train_split": None,
            "dataset": RowsWithIds,
        } | options,
    )  # fmt: skip


def with_skorch(data, config=CONFIG):
    from skorch.dataset import Dataset as Plain
    from skorch.helper import predefined_split

    net = skorch_net(config, train_split=predefined_split(Plain(*HELD_OUT)))
    return net.fit(*data).module_.model


class Named(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data[1])

    def __getitem__(self, place):
        return {"pixel_values": self.data[0][place], "label": self.data[1][place]}


def with_transformers(data, config=CONFIG, **options):
    import tempfile

    from hma.adapters.transformers import ForTrainer, RememberCallback

    transformers = importlib.import_module("transformers")
    model = ForTrainer(model_of(config), inputs=lambda batch: batch["pixel_values"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=BATCH, num_train_epochs=EPOCHS,
            report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
            logging_strategy="no", dataloader_pin_memory=False,
            **{"eval_strategy": "epoch"} | options,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model, arguments, train_dataset=WithIds(Named(data)), eval_dataset=Named(HELD_OUT),
            callbacks=[RememberCallback()],
        )  # fmt: skip
        trainer.train()
    return model.model


def with_the_estimator(data, config=CONFIG):
    from hma.estimator import MemoryClassifier
    from hma.estimator import estimators as table_estimator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_estimator, "config_of", lambda *_: VoteConfig(**config))
        model = MemoryClassifier(
            hidden=(16,), max_epochs=EPOCHS, batch_size=BATCH, linear=False, standardize=False,
            early_stopping=False, random_state=0,
        ).fit(data[0].numpy(), data[1].numpy())  # fmt: skip
    return model.model_.float()


def with_the_training_loop(data, config=CONFIG):
    from hma.data import InMemory, Task
    from hma.methods import with_memory
    from hma.training import Recipe, SilentProgress, fit

    split = InMemory(*data)
    task = Task(
        name="rows", kind="table", classes=("a", "b", "c"), shape=(INPUTS,), train=split,
        validation=split, tests={"test": split},
    )  # fmt: skip
    learner = with_memory(lambda task: mlp(INPUTS, hidden=(16,)), VoteConfig(**config))(task, 0)
    recipe = Recipe(epochs=EPOCHS, batch_size=BATCH, selection="last")
    fit(learner, task, recipe, seed=0, progress=SilentProgress())
    return learner.module


WAYS = [
    pytest.param(with_lightning, marks=needs("lightning")),
    pytest.param(with_skorch, marks=needs("skorch")),
    pytest.param(with_transformers, marks=needs("transformers", "accelerate")),
    pytest.param(with_the_estimator, marks=needs("sklearn")),
    pytest.param(with_the_training_loop, marks=needs("lightning")),
]


@pytest.mark.parametrize("train", WAYS)
def test_a_row_never_reads_its_own_copy_and_all_rows_are_held_as_they_are_now(train, spy):
    data = rows(ROWS)
    model = train(data)
    assert spy.steps == KEY_STEPS
    assert spy.own == KEY_STEPS * BATCH  # every row has a copy
    assert spy.others > ROWS  # and others read it
    expect_held(model, data)


@needs("lightning")
def test_a_spy_sees_a_row_that_reads_itself(spy):
    with pytest.raises(AssertionError, match="read itself"):
        with_lightning(rows(ROWS), CONFIG | {"leave_self_out": False, "candidates": None})


# ------------------------------------------------------- what a memory is learned from


@pytest.fixture
def learned(monkeypatch, few_steps):
    """What memories were learned from."""
    found, inside = [], learning.learn_memory

    def noted(model, given, held_out, **options):
        before = len(model.memory_state().ids)
        found.append((before, given, held_out))
        return inside(model, given, held_out, **options)

    monkeypatch.setattr(voting_memory, "learn_memory", noted)
    return found


@pytest.mark.parametrize("train", WAYS[:3])
def test_the_memory_is_learned_when_training_ends(train, learned):
    data = rows(ROWS)
    model = train(data)
    ((before, given, held_out),) = learned
    assert before == 0  # no step wrote anything
    assert sorted(given.ids.tolist()) == list(range(ROWS))
    assert torch.equal(held_out.y, HELD_OUT[1])
    expect_held(model, data)
    assert float(model.vote.share) != 0.5  # held-out rows have weighed it


@needs("lightning")
def test_rows_that_a_sampler_left_out_are_not_remembered(learned):
    data, chosen = rows(ROWS), torch.arange(0, ROWS, 2)
    model = with_lightning(data, sampler=SubsetRandomSampler(chosen.tolist()))
    expect_held(model, data, chosen)


@needs("skorch")
def test_skorch_needs_no_ids(learned):
    import skorch

    data = rows(ROWS)
    net = skorch_net(dataset=skorch.dataset.Dataset, train_split=None)
    expect_held(net.fit(*data).module_.model, data)
    net.partial_fit(data[0][:7], data[1][:7])
    expect_held(net.module_.model, tuple(part[:7] for part in data))
    assert [before for before, _, _ in learned] == [0, 0]


def test_a_stream_of_rows_leaves_the_memory_to_be_learned_by_hand():
    writer = writing.StepWriter(model_of(CONFIG), writing.expect_parts)
    with pytest.warns(UserWarning, match=r"cannot be asked for again.*model\.learn_memory\(batch"):
        writer.finish([])


# ------------------------------------------------------------------------- skorch


@needs("skorch")
def test_skorch_holds_no_validation_rows(few_steps):
    from skorch.dataset import ValidSplit

    data = rows(ROWS)
    split = ValidSplit(4, stratified=False)
    net = skorch_net(train_split=split).fit(data[0].numpy(), data[1].numpy())
    trained, _ = split(data[0].numpy(), data[1].numpy())
    places = torch.as_tensor(trained.indices).sort().values
    assert len(places) == ROWS * 3 // 4
    expect_held(net.module_.model, data, places)


@needs("skorch")
def test_skorch_goes_on_with_other_rows_under_the_same_ids_and_knows_their_labels(spy):
    (x, y), net = rows(ROWS), skorch_net()
    net.fit(x, y)
    net.partial_fit(-x, (y + 1) % CLASSES)
    assert spy.own == 2 * KEY_STEPS * BATCH
    expect_held(net.module_.model, (-x, (y + 1) % CLASSES))


@needs("skorch")
def test_skorch_rows_that_are_dicts_may_bring_ids_of_their_own(few_steps):
    class Only(nn.Module):
        feature_dim = 16

        def __init__(self):
            super().__init__()
            self.inner = mlp(INPUTS, hidden=(16,))

        def forward(self, parts):
            return self.inner(parts["table"])

    x, y = rows(ROWS)
    net = skorch_net(module__backbone=Only)
    net.fit({"table": x.numpy(), "ids": np.arange(100, 100 + ROWS)}, y.numpy())
    assert sorted(net.module_.model.memory_state().ids.tolist()) == list(range(100, 100 + ROWS))
    assert net.predict_proba({"table": x.numpy(), "ids": np.zeros(ROWS, int)}).shape == (ROWS, 3)


@needs("skorch")
def test_skorch_takes_the_default_design_and_the_papers_by_name():
    from hma.adapters.skorch import MemoryModule

    default = skorch_net().initialize().module_.model
    assert isinstance(default, VotingMemory)
    assert default.config == VoteConfig(**CONFIG)
    paper = MemoryModule(partial(mlp, INPUTS), CLASSES, memory="hma", queue_size=7).model
    assert isinstance(paper, HMA)
    assert paper.config == HMAConfig(queue_size=7)
