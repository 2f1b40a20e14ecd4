"""What an explanation of a run's prediction names, against the model asked directly."""

from collections import Counter

import numpy as np
import pandas
import pytest
import torch

import hma
from hma.config import HMAConfig
from hma.runs import MEMORY, RunOptions, train
from hma.runs.explanation import explain_row
from hma.runs.folder import rows_for
from hma.training import Recipe, SilentProgress


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose queue holds most training rows more than once."""
    folder = tmp_path_factory.mktemp("explained")
    draw = np.random.default_rng(0)
    y = np.arange(30) % 2
    np.savez(folder / "rows.npz", x=draw.normal(size=(30, 4)) + y[:, None], y=y)
    options = RunOptions(
        source=str(folder / "rows.npz"),
        config=HMAConfig(queue_size=50, slots_per_class=2, label_dim=8),
        recipe=Recipe(epochs=4, batch_size=8),
    )
    return train(options, folder / "run", compare=False, progress=SilentProgress())


def test_a_training_row_held_more_than_once_is_named_once_with_all_its_shares(run):
    rows = rows_for(run, run.options.source, labelled=False)
    found = explain_row(run, rows, 3, top=1000, context="alone")
    named = {seen.description: seen.share for seen in found.seen if seen.kind == "training row"}
    assert len(named) == sum(seen.kind == "training row" for seen in found.seen)
    model = run.learner(MEMORY).model
    model.context = "alone"
    asked = hma.explain(model, run.preparation.split(rows).batch(torch.tensor([3])).x)
    expected = Counter()
    for sample, share in zip(asked.queue_ids.tolist(), asked.queue[0].tolist(), strict=True):
        expected[rows.describe(run.places["train"][sample])] += share
    assert len(expected) < 50
    assert named == pytest.approx(dict(expected), abs=1e-7)
    assert list(named.values()) == sorted(named.values(), reverse=True)


def test_a_row_asked_about_alone_has_no_neighbours(run):
    rows = rows_for(run, run.options.source, labelled=False)
    kinds = {
        context: Counter(s.kind for s in explain_row(run, rows, 3, top=99, context=context).seen)
        for context in ("alone", "batch")
    }
    assert kinds["alone"]["neighbour"] == 0
    assert kinds["batch"]["neighbour"] == 26  # the rows that follow


def test_a_long_table_is_read_in_chunks_and_never_held_whole(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    y = np.arange(60) % 2
    frame = pandas.DataFrame(draw.normal(size=(60, 3)) + y[:, None], columns=list("abc"))
    frame.assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    options = RunOptions(
        source=str(tmp_path / "rows.csv"),
        target=("y",),
        config=HMAConfig(queue_size=16, slots_per_class=2, label_dim=8),
        recipe=Recipe(epochs=1),
    )
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    monkeypatch.setattr("hma.data.table.files.CHUNK", 7)
    rows = rows_for(run, run.options.source, labelled=False)
    found = explain_row(run, rows, 41, top=99, context="batch")
    assert "frame" not in vars(rows)
    whole = rows_for(run, run.options.source, labelled=False)
    assert len(whole.frame) == 60
    assert found.description == whole.describe(41)
    neighbours = {seen.description for seen in found.seen if seen.kind == "neighbour"}
    assert neighbours == {whole.describe(place) for place in range(42, 60)}
    some = [50, 3, 3, 27]
    assert rows.rows_at(some).to_dict("list") == whole.frame.iloc[some].to_dict("list")
