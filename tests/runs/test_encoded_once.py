"""A frozen backbone runs once: for training, page and scores together."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hma.attention.config import HMAConfig
from hma.backbones import Frozen, backbone_for
from hma.data import PreparationOptions
from hma.errors import UserError
from hma.runs import MEMORY, PLAIN, Run, RunOptions, train, train_seeds
from hma.runs.answers import evaluate, predict
from hma.runs.explanation import explain_row
from hma.runs.folder import FEATURES
from hma.runs.page import report_of
from hma.runs.source import rows_for
from hma.training import Recipe, SilentProgress
from hma.training import evaluate as score
from hma.vote.config import VoteConfig

ROWS = 120


def held(path):
    """Names of the tensors in a file."""
    return {name.removeprefix("backbone.") for name in load_file(path)}


@pytest.fixture(scope="module")
def encoded():
    """Rows that frozen backbones have encoded so far."""
    found, encode = [], Frozen.encode

    def counting(self, x):
        found.append(len(x))
        return encode(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Frozen, "encode", counting)
        yield found


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    draw = np.random.default_rng(0)
    y = draw.integers(3, size=ROWS)
    np.savez(folder / "rows.npz", x=draw.normal(size=(ROWS, 4)) + y[:, None], y=y)
    task = SimpleNamespace(name="rows", kind="table", shape=(4,))
    torch.manual_seed(5)
    save_file(backbone_for("mlp")(task).state_dict(), folder / "weights.safetensors")
    return RunOptions(
        source=str(folder / "rows.npz"),
        backbone="mlp",
        weights=str(folder / "weights.safetensors"),
        frozen_backbone=True,
        config=HMAConfig(queue_size=32, slots_per_class=2, label_dim=8),
        recipe=Recipe(epochs=2, eval_batch_size=16),
    )


@pytest.fixture(scope="module")
def run(options, encoded, tmp_path_factory):
    encoded.clear()
    made = train(options, tmp_path_factory.mktemp("run"), progress=SilentProgress())
    assert sum(encoded) == ROWS  # both trainings, validation and tests
    return made


def test_the_page_encodes_nothing(run, encoded):
    encoded.clear()
    report = report_of(run)
    assert sum(encoded) == 0
    (note,) = report.notes
    assert note.startswith("Every candidate that answers was fitted again on all 96 ")
    assert report.parts["memory"].queue.staleness.max() == 0.0


def test_a_page_without_the_features_of_training_makes_them_once(run, encoded, tmp_path):
    kept = report_of(run)
    copy = Run.open(shutil.copytree(run.folder, tmp_path / "copy"))
    shutil.rmtree(copy.folder / FEATURES)
    encoded.clear()
    again = report_of(copy)
    assert sum(encoded) == ROWS
    for one, two in zip(kept.tests[0].results, again.tests[0].results, strict=True):
        assert one.scores["nll"].value == pytest.approx(two.scores["nll"].value, rel=1e-5)


def test_scores_of_new_rows_encode_them_once_and_are_those_of_the_rows(run, encoded):
    source = rows_for(run, run.options.source, labelled=True)
    encoded.clear()
    found = evaluate(run, source)
    assert sum(encoded) == ROWS
    assert list(found) == list(run.answering)
    for which in run.answering:
        split = run.preparation.split(source)
        expected = score(run.learner(which), split, batch_size=16, target=run.preparation.target)
        for context, scores in expected.items():
            assert found[which][context] == pytest.approx(scores, rel=1e-4)


def test_an_explanation_encodes_the_row_it_explains(run, encoded):
    source = rows_for(run, run.options.source, labelled=False)
    encoded.clear()
    trained = run.places["train"][5]
    found = explain_row(run, source, trained, top=2, context="alone")
    assert sum(encoded) == 1
    assert found.near_of == len(run.places["train"]) + len(run.places["validation"])
    assert found.near[0].distance == pytest.approx(0.0, abs=1e-5)  # the row itself
    assert found.near[1].distance > 1e-3


def test_the_frozen_backbone_is_stored_once(run, options):
    still = {f"encoder.{name}" for name in load_file(options.weights)}
    files = sorted(run.folder.rglob("*.safetensors"))
    holding = [path for path in files if held(path) & still]
    assert [path.parent for path in holding] == [run.folder / "memory" / "model"]
    assert held(holding[0]) == still  # all the rest is linked
    weights = run.folder / "memory" / "weights.safetensors"
    saved = (run.folder / "memory" / "model").glob("*-stored.safetensors")
    assert [os.path.samefile(weights, path) for path in saved] == [True]


def test_predictions_encode_every_row_once_whoever_answers(run, encoded, tmp_path):
    source = rows_for(run, run.options.source, labelled=False)
    for which in run.answering:
        encoded.clear()
        list(predict(run, source, tmp_path / f"{which}.csv", which=which))
        assert sum(encoded) == ROWS, which


def test_both_learners_have_the_backbone_of_the_run(run, options):
    expected = load_file(options.weights)
    for which in (PLAIN, MEMORY):
        state = run.learner(which).module.backbone.encoder.state_dict()
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, rtol=0, atol=0)


def test_a_finished_run_with_another_frozen_backbone_is_refused(options, run, tmp_path):
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    other = {name: value + 1 for name, value in load_file(options.weights).items()}
    kept = Path(options.weights).read_bytes()
    save_file(other, options.weights)
    try:
        with pytest.raises(UserError, match=r"frozen backbone with other weights|other run"):
            train(options, copy, progress=SilentProgress())
    finally:
        Path(options.weights).write_bytes(kept)


# ------------------------------------------------------------------------------- several seeds


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    draw = np.random.default_rng(0)
    y = draw.integers(3, size=ROWS)
    x = (draw.random((ROWS, 8, 8, 1)) * 60 + 60 * y[:, None, None, None]).astype(np.uint8)
    np.savez(folder / "images.npz", x=x, y=y)
    torch.manual_seed(5)
    task = SimpleNamespace(name="images", kind="image", shape=(1, 8, 8))
    save_file(backbone_for("mlp")(task).state_dict(), folder / "weights.safetensors")
    return RunOptions(
        source=str(folder / "images.npz"),
        backbone="mlp",
        weights=str(folder / "weights.safetensors"),
        frozen_backbone=True,
        config=VoteConfig(memory_size=8, slots_per_class=1),
        recipe=Recipe(epochs=1),
        preparation=PreparationOptions(mean=(0.5,), std=(0.25,), augment=False),
    )


def test_rows_that_a_seed_has_encoded_are_looked_at_by_the_next_only_to_be_sure(
    images, encoded, tmp_path
):
    encoded.clear()
    train_seeds(images, tmp_path / "both", 1, pages=False, accelerator="cpu")
    assert sum(encoded) == ROWS
    encoded.clear()
    found = train_seeds(images, tmp_path / "both", 2, pages=False, accelerator="cpu").run(1)
    assert sum(encoded) == 3 * 16, "some rows of each split"
    alone = train(replace(images, seed=1), tmp_path / "alone", accelerator="cpu")
    (kept,), (fresh,) = ([*(run.folder / FEATURES).glob("*.safetensors")] for run in (found, alone))
    assert kept.name == fresh.name
    for name, made in load_file(fresh).items():
        torch.testing.assert_close(load_file(kept)[name], made)


def test_rows_that_each_seed_prepares_otherwise_are_encoded_again(options, encoded, tmp_path):
    encoded.clear()
    train_seeds(options, tmp_path / "both", 2, pages=False, accelerator="cpu")
    assert sum(encoded) == 2 * ROWS, "numbers are standardised over the training rows"


def test_features_of_other_weights_are_not_taken_over(images, encoded, tmp_path):
    run = train(images, tmp_path / "first", accelerator="cpu")
    other = tmp_path / "other.safetensors"
    save_file({n: v + 0.1 for n, v in load_file(images.weights).items()}, other)
    encoded.clear()
    changed = replace(images, seed=1, weights=str(other))
    train(changed, tmp_path / "second", before=run, accelerator="cpu")
    assert sum(encoded) == ROWS + 16, "the first rows looked at show it"
