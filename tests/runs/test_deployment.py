"""Which learner answers, and the simple rows beside it."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hma.backbones.frozen import Frozen
from hma.backbones.mlp import mlp
from hma.config import HMAConfig
from hma.runs import MEMORY, PLAIN, RunOptions, train
from hma.runs.answers import predict
from hma.runs.deployment import deployment
from hma.runs.folder import rows_for
from hma.runs.simple_rows import simple_rows
from hma.training import Record, SilentProgress, UserRecipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployed")
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(120, 3)), draw.integers(0, 2, 120)
    x[:, 0] += 3 * y
    lines = ["a,b,c,label", *(f"{a},{b},{c},{k}" for (a, b, c), k in zip(x, y, strict=True))]
    (folder / "rows.csv").write_text("\n".join(lines))
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("label",),
        config=HMAConfig(queue_size=8, slots_per_class=2, label_dim=8),
        recipe=UserRecipe(epochs=2).fixed(),
    )
    said = []
    found = train(options, folder / "run", progress=SilentProgress(), say=said.append)
    return found, said


def test_the_smaller_validation_loss_is_deployed_and_said(run):
    found, said = run
    losses = {which: found.record(which).measures["validation_loss"] for which in (PLAIN, MEMORY)}
    assert found.deployed.which == min(losses, key=losses.get)
    assert found.deployed.why in said
    memory, plain = found.record(MEMORY), found.record(PLAIN)
    assert deployment(plain, memory).which != deployment(memory, plain).which
    assert deployment(plain, plain).which == PLAIN
    assert deployment(memory, None).which == MEMORY


def test_predictions_are_those_of_the_deployed_learner(run, tmp_path):
    found, _ = run
    rows = rows_for(found, found.options.source, labelled=False)
    for which in (None, PLAIN, MEMORY):
        list(predict(found, rows, tmp_path / f"{which}.csv", which=which))
    text = {which: (tmp_path / f"{which}.csv").read_text() for which in (None, PLAIN, MEMORY)}
    assert text[None] == text[found.deployed.which]
    assert text[PLAIN] != text[MEMORY]


def test_the_memory_is_selected_in_the_context_that_answers(run):
    found, _ = run
    assert found.record(MEMORY).setup["method"]["contexts"][0] == "alone"
    assert found.learner(MEMORY).contexts[0] == "alone"


def test_simple_rows_are_those_of_scikit_learn(run):
    found, said = run
    task = found.prepared().task
    splits = {"train": task.train, "validation": task.validation, "test": task.tests["test"]}
    x, y = {}, {}
    for name, split in splits.items():
        batch = split.batch(torch.arange(len(split)))
        x[name], y[name] = batch.x.numpy(), batch.y.numpy()
    models = [
        make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=200)).fit(
            x["train"], y["train"]
        )
        for c in (0.003, 0.03, 0.3, 3.0)
    ]
    best = min(models, key=lambda m: log_loss(y["validation"], m.predict_proba(x["validation"])))
    row = found.simple_rows["test"]["logistic regression"]
    assert math.isclose(row["accuracy"], best.score(x["test"], y["test"]), abs_tol=1e-6)
    expected = log_loss(y["test"], best.predict_proba(x["test"]))
    assert math.isclose(row["nll"], expected, rel_tol=1e-2)
    assert list(found.simple_rows["test"]) == [
        "logistic regression",
        "nearest neighbours",
        "gradient boosting",
    ]
    assert simple_rows(task)["test"] == found.simple_rows["test"]
    assert any(line.startswith("best simple row: ") for line in said)


def test_frozen_features_are_standardised_by_the_training_rows_and_kept():
    backbone = Frozen(mlp(3, hidden=(5,)), standardised=True)
    x = torch.randn(40, 3)
    raw = backbone.encoder(x).detach()
    torch.testing.assert_close(backbone(x), raw)
    assert backbone.wants_statistics
    backbone.take_statistics(raw)
    assert not backbone.wants_statistics
    torch.testing.assert_close(backbone(x).mean(dim=0), torch.zeros(5), atol=1e-5, rtol=0)
    assert math.isclose(float(backbone(x).var(dim=0, correction=0).mean()), 1, rel_tol=1e-4)
    again = Frozen(mlp(3, hidden=(5,)), standardised=True)
    again.load_state_dict(backbone.state_dict())
    torch.testing.assert_close(again(x), backbone(x))
    assert "mean" not in Frozen(mlp(3, hidden=(5,))).state_dict()


def test_records_without_losses_leave_the_memory(run):
    values = run[0].record(PLAIN).to_json()
    del values["measures"]
    values["epochs"] = [{**epoch, "validation": {}} for epoch in values["epochs"]]
    old = Record.from_json(values)
    assert deployment(old, old).which == MEMORY
