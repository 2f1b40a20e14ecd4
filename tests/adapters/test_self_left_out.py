"""Through no way of training does a row read its own stored copy."""

import importlib.util
from functools import partial

import numpy as np
import pytest
import torch
from plain_training import CLASSES, INPUTS, rows
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset

from hma import HMA, HMAConfig, key_learning
from hma.adapters import writing
from hma.adapters.sample_ids import WithIds
from hma.backbones import mlp
from hma.errors import UserError
from hma.voting import VotingRead

if importlib.util.find_spec("skorch") is not None:
    importlib.import_module("hma.adapters.skorch")  # before skorch: it quietens its import

CONFIG = {"vote": "added", "key_dim": 8, "candidates": 6}
BATCH, EPOCHS, ROWS = 8, 2, 24
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
    """Turns the label of each row's own stored copy round, and looks who answers otherwise."""

    def __init__(self):
        self.own = self.others = self.training_calls = 0

    def look(self, store, ids, again, logits):
        for row, place in enumerate(store.find(ids).tolist()):
            if place < 0:
                continue
            was = int(store.labels[place])
            store.labels[place] = (was + 1) % CLASSES
            said = again()
            store.labels[place] = was
            torch.testing.assert_close(said[row], logits[row], msg=f"row {row} read itself")
            self.own += 1
            self.others += int(((said - logits).abs() > 1e-4).any(dim=1).sum())


@pytest.fixture
def spy(monkeypatch):
    found, inside = Spy(), VotingRead.learn

    def learn(vote, features, stored, learned, *, ids, **options):
        before = torch.get_rng_state()
        votes = inside(vote, features, stored, learned, ids=ids, **options)
        after = torch.get_rng_state()

        @torch.no_grad()
        def again():
            torch.set_rng_state(before)  # the same dropout, the same candidates
            return inside(vote, features, stored, learned, ids=ids, **options).logits

        found.training_calls += 1
        found.look(stored.queue, ids, again, votes.logits.detach())
        torch.set_rng_state(after)
        return votes

    monkeypatch.setattr(VotingRead, "learn", learn)
    return found


def model_of(config):
    torch.manual_seed(0)
    return HMA(mlp(INPUTS, hidden=(16,)), CLASSES, HMAConfig(**config))


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
            x, y, ids = batch
            return nn.functional.cross_entropy(self.model(x, ids=ids), y)

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
    return net.fit(*data).module_


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
    from hma.estimator import HMAClassifier, table_estimator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_estimator, "config_of", lambda *_: HMAConfig(**config))
        model = HMAClassifier(
            hidden=(16,), max_epochs=EPOCHS, batch_size=BATCH, linear=False, standardize=False,
            early_stopping=False, random_state=0,
        ).fit(data[0].numpy(), data[1].numpy())  # fmt: skip
    return model.model_.float()


def with_the_training_loop(data, config=CONFIG):
    from hma.data import InMemory, Task
    from hma.methods import with_hma
    from hma.training import Recipe, SilentProgress, fit

    split = InMemory(*data)
    task = Task(
        name="rows", kind="table", classes=("a", "b", "c"), shape=(INPUTS,), train=split,
        validation=split, tests={"test": split},
    )  # fmt: skip
    learner = with_hma(lambda task: mlp(INPUTS, hidden=(16,)), HMAConfig(**config))(task, 0)
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
    assert spy.training_calls == EPOCHS * ROWS // BATCH
    assert spy.own == ROWS  # in the second epoch every row has a copy
    assert spy.others > ROWS  # and others read it
    expect_held(model, data)


@needs("lightning")
def test_a_spy_sees_a_row_that_reads_itself(spy, monkeypatch):
    monkeypatch.setattr(torch, "isin", lambda held, _: torch.zeros_like(held, dtype=torch.bool))
    with pytest.raises(AssertionError, match="read itself"):
        with_lightning(rows(ROWS))


# -------------------------------------------------- a memory that is learned last

LAST = {"vote": "mixed", "key_dim": 8}


@pytest.fixture
def learned(monkeypatch):
    """What memories were learned from; a few steps do here."""
    monkeypatch.setattr(key_learning, "LEAST_STEPS", 4)
    monkeypatch.setattr(key_learning, "LEAST_PASSES", 1)
    found, inside = [], key_learning.learn_memory

    def noted(model, given, held_out, **options):
        before = len(model.memory_state().ids)
        found.append((before, given, held_out))
        return inside(model, given, held_out, **options)

    monkeypatch.setattr(writing, "learn_memory", noted)
    return found


@pytest.mark.parametrize("train", WAYS[:3])
def test_a_memory_that_is_learned_last_is_learned_when_training_ends(train, learned):
    data = rows(ROWS)
    model = train(data, LAST)
    ((before, given, held_out),) = learned
    assert before == 0  # no step wrote anything
    assert sorted(given.ids.tolist()) == list(range(ROWS))
    assert torch.equal(held_out.y, HELD_OUT[1])
    expect_held(model, data)
    assert float(model.vote.share) != 0.5  # held-out rows have weighed it


@needs("lightning")
def test_rows_that_a_sampler_left_out_are_not_remembered(learned):
    data, chosen = rows(ROWS), torch.arange(0, ROWS, 2)
    model = with_lightning(data, LAST, SubsetRandomSampler(chosen.tolist()))
    expect_held(model, data, chosen)


@needs("skorch")
def test_skorch_needs_no_ids_for_a_memory_that_is_learned_last(learned):
    import skorch

    data = rows(ROWS)
    net = skorch_net(LAST, dataset=skorch.dataset.Dataset, train_split=None)
    expect_held(net.fit(*data).module_, data)
    net.partial_fit(data[0][:7], data[1][:7])
    expect_held(net.module_, tuple(part[:7] for part in data))
    assert [before for before, _, _ in learned] == [0, 0]


def test_a_stream_of_rows_leaves_the_memory_to_be_learned_by_hand():
    writer = writing.StepWriter(model_of(LAST), writing.as_it_is)
    with pytest.warns(UserWarning, match=r"cannot be asked for again.*model\.learn_memory\(batch"):
        writer.finish([])


# ------------------------------------------------------------------------- skorch


@needs("skorch")
def test_skorch_without_ids_is_told_how_to_pass_them():
    import skorch

    with pytest.raises(UserError, match=r"dataset=hma\.adapters\.skorch\.RowsWithIds"):
        skorch_net(dataset=skorch.dataset.Dataset).fit(*rows(ROWS))


@needs("skorch")
def test_skorch_holds_no_validation_rows_and_validates_with_fresh_ones(monkeypatch):
    from skorch.callbacks import Callback
    from skorch.dataset import ValidSplit

    data, fresh = rows(ROWS), []

    class Looking(Callback):
        def on_batch_begin(self, net, training=None, **kwargs):
            if not training:
                state = net.module_.memory_state()
                with torch.no_grad():
                    encoded = net.module_.backbone(data[0][state.ids])
                fresh.append(torch.allclose(state.features, encoded, atol=1e-6))

    net = skorch_net(CONFIG, train_split=ValidSplit(4, stratified=False))
    net.set_params(callbacks=[*net.callbacks, Looking()])
    net.fit(data[0].numpy(), data[1].numpy())
    assert len(fresh) >= EPOCHS
    assert all(fresh)
    assert len(net.module_.memory_state().ids) == ROWS * 3 // 4


@needs("skorch")
def test_skorch_goes_on_with_other_rows_under_the_same_ids_and_knows_their_labels(spy):
    (x, y), net = rows(ROWS), skorch_net()
    net.fit(x, y)
    net.partial_fit(-x, (y + 1) % CLASSES)
    assert spy.own == ROWS * (1 + EPOCHS)
    expect_held(net.module_, (-x, (y + 1) % CLASSES))


@needs("skorch")
def test_skorch_rows_that_are_dicts_may_bring_ids_of_their_own():
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
    assert sorted(net.module_.memory_state().ids.tolist()) == list(range(100, 100 + ROWS))
    assert net.predict_proba({"table": x.numpy(), "ids": np.zeros(ROWS, int)}).shape == (ROWS, 3)


@needs("skorch")
def test_skorch_takes_the_default_design_and_the_papers_by_name():
    net = skorch_net()
    default = net.initialize().module_.config
    assert default == HMAConfig(**CONFIG)
    from hma.adapters.skorch import MemoryModule

    paper = MemoryModule(partial(mlp, INPUTS), CLASSES, similarity="dot", queue_size=7)
    assert paper.config == HMAConfig.paper(queue_size=7)


# ------------------------------------------------------------------- transformers


@needs("transformers", "accelerate")
def test_the_trainer_evaluates_within_an_epoch_with_rows_as_they_are_now(monkeypatch):
    refreshed = []
    inside = writing.StepWriter.refresh

    def noted(writer, batches):
        refreshed.append(writer.stale)
        inside(writer, batches)

    monkeypatch.setattr(writing.StepWriter, "refresh", noted)
    data = rows(ROWS)
    expect_held(with_transformers(data, eval_strategy="steps", eval_steps=2), data)
    assert refreshed == [True, True, True, True, False]  # steps 2, epoch, 4, 6, epoch
