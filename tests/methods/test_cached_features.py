"""Features kept on disk against the frozen backbone itself, and what must make them anew."""

import importlib.util
import signal
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

import hma
from hma.backbones import GIN, Frozen, TransformerFeatures, mlp
from hma.data import InMemory, PreparationOptions, Task, builtin, open_source, prepare
from hma.data.sets.digits import digits
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.methods.cached_features import augments, cache_features, with_known_features
from hma.training import Recipe, fit


class Counting(nn.Module):
    """An encoder that counts the rows it is given."""

    feature_dim = 8

    def __init__(self, in_features=64):
        super().__init__()
        self.inner = mlp(in_features, hidden=(8,))
        self.rows = 0

    def forward(self, x):
        self.rows += len(x)
        return self.inner(x)


def frozen(seed=0):
    torch.manual_seed(seed)
    return Frozen(Counting())


def splits(task):
    return {"train": task.train, "validation": task.validation, **task.tests}


def expect_the_same(task, known, backbone):
    for name, split in splits(task).items():
        own = splits(known)[name]
        places = torch.arange(len(split)).flip(0)
        rows, kept = split.batch(places), own.batch(places)
        assert len(own) == len(split)
        torch.testing.assert_close(kept.features, backbone(rows.x))
        for part in ("y", "ids", "weight", "environment"):
            mine, theirs = getattr(kept, part), getattr(rows, part)
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine, theirs)


def test_features_are_those_of_the_backbone_and_made_once(tmp_path):
    task, backbone = digits(seed=0), frozen()
    known = cache_features(task, backbone, tmp_path / "new" / "folder", batch_size=100)
    total = sum(len(split) for split in splits(task).values())
    assert backbone.encoder.rows == total
    cache_features(task, backbone, tmp_path / "new" / "folder")
    assert backbone.encoder.rows == total
    expect_the_same(task, known, backbone)
    assert (known.name, known.classes, known.shape) == (task.name, task.classes, task.shape)
    assert known.facts["features"]["width"] == 8


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 12), st.booleans())
def test_any_number_of_rows_and_batches(rows, others, batch_size, extras):
    def split(count):
        x, labels = torch.rand(count, 64), torch.arange(count) % 2
        more = (labels, torch.rand(count)) if extras else ()
        return InMemory(x, labels, *more)

    task = Task("noise", "table", ("a", "b"), (64,), split(rows), split(others), {"t": split(3)})
    backbone = frozen()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            known = cache_features(task, backbone, Path(folder), batch_size=batch_size)
            for name, own in splits(known).items():
                assert len(own) == len(splits(task)[name])
            full = {name: part for name, part in splits(task).items() if len(part)}
            for name, part in full.items():
                places = torch.arange(len(part))
                kept = splits(known)[name].batch(places)
                torch.testing.assert_close(kept.features, backbone(part.batch(places).x))
                assert (kept.weight is not None) == extras
    assert backbone.encoder.rows > 0


def changed_weight(task, backbone):
    with torch.no_grad():
        next(iter(backbone.parameters())).view(-1)[3] += 1e-3
    return task


def changed_row(task, backbone):
    x = task.train.x.clone()
    x[500] += 0.1
    return replace(task, train=InMemory(x, task.train.labels))


def changed_order(task, backbone):
    order = torch.arange(len(task.train)).flip(0)
    return replace(task, train=InMemory(task.train.x[order], task.train.labels[order]))


def changed_facts(task, backbone):
    return replace(task, facts={**task.facts, "preparation": "darker"})


@pytest.mark.parametrize("change", [changed_weight, changed_row, changed_order, changed_facts])
def test_another_weight_row_order_or_preparation_is_another_name(change, tmp_path):
    task, backbone = digits(seed=0), frozen()
    cache_features(task, backbone, tmp_path)
    made = backbone.encoder.rows
    other = change(task, backbone)
    known = cache_features(other, backbone, tmp_path)
    assert backbone.encoder.rows == 2 * made
    assert len(list(tmp_path.iterdir())) == 2
    expect_the_same(other, known, backbone)


def test_a_buffer_counts_as_a_weight(tmp_path):
    task = digits(seed=0)
    backbone = Frozen(mlp(64, hidden=(8,)))
    backbone.encoder.register_buffer("shift", torch.zeros(1))
    cache_features(task, backbone, tmp_path)
    backbone.encoder.shift += 1
    cache_features(task, backbone, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def kept(tmp_path):
    task, backbone = digits(seed=0), frozen()
    cache_features(task, backbone, tmp_path)
    (path,) = tmp_path.iterdir()
    return task, backbone, path


def emptied(content):
    return b""


def cut_short(content):
    return content[:-100]


def one_bit_flipped(content):
    return content[:-50] + bytes([content[-50] ^ 1]) + content[-49:]


@pytest.mark.parametrize("damage", [emptied, cut_short, one_bit_flipped])
def test_a_damaged_file_is_made_again_with_a_warning(damage, kept):
    task, backbone, path = kept
    path.write_bytes(damage(path.read_bytes()))
    made = backbone.encoder.rows
    with pytest.warns(UserWarning, match="is damaged: .*; its features are made again"):
        known = cache_features(task, backbone, path.parent)
    assert backbone.encoder.rows == 2 * made
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the file is good again
        expect_the_same(task, cache_features(task, backbone, path.parent), backbone)
    expect_the_same(task, known, backbone)


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hma.io.tensor_files.save_file", full)
    with pytest.raises(UserError, match="No space left"):
        cache_features(digits(seed=0), frozen(), tmp_path)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
import hma.io.tensor_files
import hma.methods.cached_features as module
from hma.backbones import Frozen, mlp
from hma.data.sets.digits import digits

def killed(tensors, path, metadata):
    path.write_bytes(b"half of it")
    os.kill(os.getpid(), signal.SIGKILL)

hma.io.tensor_files.save_file = killed
torch.manual_seed(0)
module.cache_features(digits(seed=0), Frozen(mlp(64, hidden=(8,))), Path(sys.argv[1]))
"""


def test_a_kill_while_writing_leaves_no_features_that_could_be_read(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not list(tmp_path.glob("features-*.safetensors"))
    torch.manual_seed(0)
    backbone = Frozen(mlp(64, hidden=(8,)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known = cache_features(digits(seed=0), backbone, tmp_path)
    expect_the_same(digits(seed=0), known, backbone)
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"], "what was left stays"


class Encoder(nn.Embedding):
    config = SimpleNamespace(hidden_size=6)

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(last_hidden_state=super().forward(input_ids))


def test_tokens_in_a_dict_are_encoded(tmp_path):
    ids = torch.randint(1, 30, (12, 5))
    rows = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    split = InMemory(rows, torch.arange(12) % 2)
    task = Task("texts", "text", ("a", "b"), (5,), split, split, {"test": split})
    backbone = Frozen(TransformerFeatures(Encoder(30, 6)))
    expect_the_same(task, cache_features(task, backbone, tmp_path), backbone)
    other = {name: value.clone() for name, value in rows.items()}
    other["input_ids"][0, 0] = 31 - other["input_ids"][0, 0]
    changed = replace(task, train=InMemory(other, split.labels))
    cache_features(changed, Frozen(TransformerFeatures(Encoder(32, 6))), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.data
@pytest.mark.skipif(
    importlib.util.find_spec("torch_geometric") is None, reason="needs the graph extra"
)
def test_graphs_are_encoded(tmp_path, data_root):
    task = builtin("tu:MUTAG", seed=0, data_root=data_root).task
    backbone = Frozen(GIN(task.shape[0]))
    known = cache_features(task, backbone, tmp_path)
    expect_the_same(task, known, backbone)
    cache_features(task, backbone, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_training_on_features_is_training_on_rows(tmp_path):
    """Same start, same order, same losses; then the learner takes rows as before."""
    task = digits(seed=0, per_class=10)
    recipe = Recipe(epochs=3, batch_size=32, eval_batch_size=64)
    config = hma.HMAConfig(label_dim=8, queue_size=64, slots_per_class=2, dropout=0.0)
    for method in (erm(lambda _: frozen()), with_memory(lambda _: frozen(), config)):
        plain, quick = method(task, 1), method(task, 1)
        known = cache_features(task, quick.module.backbone, tmp_path)
        encoded = quick.module.backbone.encoder.rows
        slow = fit(plain, task, recipe, seed=1)
        fast = fit(quick, known, recipe, seed=1)
        assert quick.module.backbone.encoder.rows == encoded  # not one row more
        for mine, theirs in zip(fast.epochs, slow.epochs, strict=True):
            assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
        x = task.tests["test"].batch(torch.arange(20)).x
        with torch.no_grad():
            torch.testing.assert_close(
                quick.module.eval()(x), plain.module.eval()(x), rtol=1e-3, atol=1e-3
            )


def pictures(folder):
    for place, name in enumerate(["a", "b"]):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            pixels = np.random.default_rng(20 * place + number).integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.mark.parametrize("transform", ["measured", "vit", "vit-mirror"])
def test_rows_that_change_from_epoch_to_epoch_are_refused(transform, tmp_path):
    source = open_source(pictures(tmp_path / "pictures"))
    for augment in (True, False):
        options = PreparationOptions(transform=transform, image_size=8, augment=augment)
        task = prepare(source, seed=0, options=options).task
        assert augments(task.train) == augment
        backbone = Frozen(mlp(64, hidden=(8,)))
        if augment:
            with pytest.raises(UserError, match="look different in every epoch"):
                cache_features(task, backbone, tmp_path / "kept")
        else:
            known = cache_features(task, backbone, tmp_path / "kept")
            expect_the_same(task, known, backbone)


class Noisy(InMemory):
    def batch(self, places, epoch=None):
        batch = super().batch(places)
        return batch._replace(x=batch.x + (0.1 * (epoch or 0) if self.noisy else 0))


@pytest.mark.parametrize("noisy", [True, False])
def test_a_split_that_does_not_say_is_looked_at(noisy):
    split = Noisy(torch.rand(30, 4), torch.arange(30) % 2)
    split.noisy = noisy
    assert augments(split) == noisy


def test_a_backbone_that_may_train_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"Sequential may train; wrap it in hma\.backbones\.Frozen"):
        cache_features(digits(seed=0), nn.Sequential(nn.Flatten()), tmp_path)


def test_two_that_write_at_once_end_with_one_good_file(tmp_path):
    task = digits(seed=0)
    alike = [frozen(), frozen()]  # made before: threads share the seed that decides the weights
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda one: cache_features(task, one, tmp_path), alike))
    assert len(list(tmp_path.iterdir())) == 1
    for known in both:
        expect_the_same(task, known, frozen())


def test_a_learner_gets_features_only_where_they_cannot_change(tmp_path):
    task = digits(seed=0)
    moving = replace(task, train=Noisy(task.train.x, task.train.labels))
    moving.train.noisy = True
    still, trains = erm(lambda _: frozen())(task, 0), erm(lambda _: Counting())(task, 0)
    assert "features" in with_known_features(task, still, tmp_path).facts
    assert with_known_features(task, trains, tmp_path) is task
    assert with_known_features(moving, still, tmp_path) is moving
