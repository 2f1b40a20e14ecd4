"""A run as one record: its numbers against those of the files that hma predict writes."""

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from hma.runs import RunOptions, train, whole_record
from hma.runs.answers import predict
from hma.runs.source import rows_for
from hma.training import Record, SilentProgress, UserRecipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 150)
    np.savez(folder / "rows.npz", x=draw.normal(size=(150, 3)) + y[:, None], y=y)
    recipe = UserRecipe(epochs=3).fixed()
    options = RunOptions(source=str(folder / "rows.npz"), recipe=recipe)
    return train(options, folder / "run", progress=SilentProgress())


@pytest.fixture(scope="module")
def record(run):
    return whole_record(run)


def predicted(run, which, path):
    """Return labels and probabilities of the test rows, read back from a file of predictions."""
    source = rows_for(run, run.options.source, labelled=False)
    list(predict(run, source, path, which=which))
    with open(path) as file:
        rows = list(csv.DictReader(file))
    labels, places = np.load(run.options.source)["y"], run.places["test"]
    printed = [[float(rows[p][f"probability of {k}"]) for k in (0, 1)] for p in places]
    chances = np.array(printed)
    return labels[places], chances / chances.sum(axis=1, keepdims=True)


def test_scores_are_those_of_the_predictions(run, record, tmp_path):
    found = {"": record.measures, **record.measures["candidates"]}
    assert len(found) > 2
    for which, numbers in found.items():
        labels, chances = predicted(run, which or None, tmp_path / f"{which}.csv")
        right = accuracy_score(labels, chances.argmax(1))
        assert numbers["scores"]["accuracy"] == pytest.approx(right)
        assert numbers["scores"]["nll"] == pytest.approx(log_loss(labels, chances), rel=1e-4)
        assert numbers["test_rows"] == len(labels)
    assert record.tests["test"]["alone"]["nll"] == pytest.approx(found[""]["scores"]["nll"])


def test_standard_errors_are_those_of_single_rows_and_of_their_differences(run, record, tmp_path):
    losses = {}
    for which in ("", *record.measures["candidates"]):
        labels, chances = predicted(run, which or None, tmp_path / f"{which}.csv")
        losses[which] = -np.log(chances[np.arange(len(labels)), labels])
    for which, one in record.measures["candidates"].items():
        apart = losses[""] - losses[which]
        for values, error in ((losses[which], "errors"), (apart, "difference_errors")):
            expected = values.std(ddof=1) / np.sqrt(len(values))
            assert one[error]["nll"] == pytest.approx(expected, rel=1e-3, abs=1e-7)


def test_shares_sum_to_one_and_simple_candidates_are_no_networks(record):
    candidates = record.measures["candidates"]
    assert sum(one["share"] for one in candidates.values()) == pytest.approx(1)
    networks = {name for name, one in candidates.items() if not one["simple"]}
    assert networks == {"plain", "memory"}
    assert record.seconds == pytest.approx(sum(one["seconds"] for one in candidates.values()))


def test_the_record_is_written_and_read_as_any_other(record, tmp_path):
    record.write(tmp_path / "record.json")
    again = Record.read(tmp_path / "record.json")
    assert again.to_json() == json.loads(json.dumps(record.to_json()))
    assert "scikit-learn" in again.versions
    assert again.setup["recipe"] == UserRecipe(epochs=3).fixed().to_json()


def test_runs_share_the_features_of_a_frozen_backbone(tmp_path):
    draw = np.random.default_rng(0)
    y = np.repeat([0, 1], 20)
    np.savez(tmp_path / "rows.npz", x=draw.normal(size=(40, 3)) + y[:, None], y=y)
    for place in ("first", "second"):
        options = RunOptions(
            source=str(tmp_path / "rows.npz"),
            backbone="mlp",
            frozen_backbone=True,
            recipe=UserRecipe(steps=1).fixed(),
        )
        with pytest.warns(UserWarning, match="frozen"):
            run = train(options, tmp_path / place, features=tmp_path / "shared")
        whole_record(run)
    assert len(list((tmp_path / "shared").glob("*.safetensors"))) == 1
    assert not (tmp_path / "first" / "features").exists()
