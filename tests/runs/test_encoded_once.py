"""A frozen backbone runs once: for training, page and scores together."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hma.backbones import Frozen, backbone_for
from hma.config import HMAConfig
from hma.runs import MEMORY, PLAIN, Run, RunOptions, train
from hma.runs.answers import evaluate
from hma.runs.explanation import explain_row
from hma.runs.folder import FEATURES, rows_for
from hma.runs.page import report_of
from hma.training import Recipe, SilentProgress
from hma.training import evaluate as score

ROWS = 120


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
    assert report.notes == ()
    assert report.queue.staleness.max() == 0.0


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
    for which in (PLAIN, MEMORY):
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
    assert found.near_of == len(run.places["train"])
    assert found.near[0].distance == pytest.approx(0.0, abs=1e-5)  # the row itself
    assert found.near[1].distance > 1e-3
