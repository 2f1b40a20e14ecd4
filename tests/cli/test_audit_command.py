"""``hma audit`` on a small run, against the audit of its model made by hand; and its page."""

import json
import shutil

import numpy as np
import pandas
import pytest
import torch

import hma
from hma.attention.config import HMAConfig
from hma.io.json_files import read_json, write_json
from hma.report.page import render
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.audits import audit_if_cheap, read_audits
from hma.runs.page import report_of
from hma.runs.source import prepared_from
from hma.training import Recipe, SilentProgress
from hma.vote.config import VoteConfig

CONFIGS = {
    "vote": VoteConfig(),
    "paper": HMAConfig(queue_size=32, slots_per_class=2, label_dim=8),
}


def table_of(path, rows, seed):
    draw = np.random.default_rng(seed)
    y = np.sort(draw.integers(3, size=rows))
    frame = pandas.DataFrame(draw.normal(size=(rows, 4)) + y[:, None], columns=[*"abcd"])
    frame["y"] = np.array(["red", "green", "blue"])[y]
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    rows = table_of(folder / "rows.csv", 240, seed=0)
    found = {}
    for name, config in CONFIGS.items():
        options = RunOptions(
            source=str(rows),
            target=("y",),
            backbone="mlp",
            config=config,
            recipe=Recipe(epochs=2, lr=1e-3, eval_batch_size=16),
        )
        found[name] = train(options, folder / name, compare=False, progress=SilentProgress())
    return found


@pytest.fixture
def run(runs, tmp_path):
    """A copy of a run, to write into."""
    shutil.copytree(runs["vote"].folder, tmp_path / "run")
    return Run.open(tmp_path / "run")


def by_hand(run):
    """Return the audit of the test rows by the library alone."""
    task = prepared_from(run.options).task
    places = torch.arange(len(task.tests["test"])).split(16)
    batches = [task.tests["test"].batch(part) for part in places]
    model = run.learner(MEMORY).model
    return hma.audit(model, [(b.x, b.y) for b in batches], context="alone", seed=run.options.seed)


@pytest.mark.parametrize("name", CONFIGS)
def test_training_leaves_the_audit_of_the_test_rows(runs, name):
    found = read_audits(runs[name])
    assert set(found) == {"test"}
    oracle = by_hand(runs[name])
    assert found["test"].changes.keys() == oracle.changes.keys()
    assert found["test"].rows == oracle.rows
    recorded = runs[name].record(MEMORY).tests["test"]["alone"]
    for metric, score in found["test"].scores.items():
        assert score == pytest.approx(recorded[metric], abs=1e-5)
        assert score == pytest.approx(oracle.scores[metric], abs=1e-5)
        for done, changes in found["test"].changes.items():
            theirs = oracle.changes[done][metric]
            assert changes[metric].change == pytest.approx(theirs.change, abs=1e-5)
            assert changes[metric].low == pytest.approx(theirs.low, abs=1e-5)


def test_the_command_prints_and_keeps_what_training_kept(run, run_hma):
    path = run.folder / "audit.json"
    trained = read_audits(run)["test"]
    path.unlink()
    ended = run_hma("audit", run.folder)
    assert ended.code == 0, ended.err
    found = read_audits(run)["test"]
    assert str(found) in ended.out
    assert f"wrote {path}" in ended.out
    assert found.changes.keys() == trained.changes.keys()
    assert found.scores == pytest.approx(trained.scores, abs=1e-5)


def test_json_is_what_the_file_holds(run, run_hma):
    ended = run_hma("audit", run.folder, "--json")
    assert ended.code == 0, ended.err
    held = json.loads((run.folder / "audit.json").read_text())["tests"]
    assert json.loads(ended.out) == held
    assert held["test"]["verdict"] == read_audits(run)["test"].verdict


def test_other_rows_are_asked_and_nothing_is_written(run, run_hma, tmp_path):
    before = (run.folder / "audit.json").read_bytes()
    other = table_of(tmp_path / "other.csv", 50, seed=1)
    ended = run_hma("audit", run.folder, "--data", other)
    assert ended.code == 0, ended.err
    assert "50 rows asked in context 'alone'" in ended.out
    assert "were trained on" not in ended.out
    ended = run_hma("audit", run.folder, "--data", run.options.source)
    assert "of these rows were trained on or taught and find their own copies" in ended.out
    assert (run.folder / "audit.json").read_bytes() == before


def test_mistakes_end_with_one_line(run, refuses, tmp_path):
    assert "is not a run" in refuses("audit", tmp_path)
    assert "nowhere.csv" in refuses("audit", run.folder, "--data", tmp_path / "nowhere.csv")
    bare = table_of(tmp_path / "bare.csv", 9, seed=2)
    pandas.read_csv(bare).drop(columns="y").to_csv(bare, index=False)
    assert "'y'" in refuses("audit", run.folder, "--data", bare)
    path = run.folder / "audit.json"
    for content in ("", "[]", "{}", "null"):
        path.write_text(content)
        said = refuses("report", run.folder)
        assert "audit.json" in said
        assert "hma audit makes it again" in said
    values = {"schema": 1, "weights_sha256": run.record(MEMORY).weights_sha256}
    write_json(path, {**values, "tests": {"test": {"rows": 3}}}, sealed=True)
    assert "is damaged: it lacks changes" in refuses("report", run.folder)


def test_the_page_shows_the_audit(run):
    found = read_audits(run)["test"]
    page = " ".join(render(report_of(run)).split())
    assert "Does the model use its memory?" in page
    assert found.verdict[1:] in page
    for done in found.changes:
        assert f">{done}</th>" in page
    (run.folder / "audit.json").unlink()
    page = " ".join(render(report_of(run)).split())
    assert "Does the model use its memory?" not in page
    assert "Whether the model uses its memory was not measured" in page


def test_an_audit_of_other_weights_is_not_shown(run):
    path = run.folder / "audit.json"
    values = read_json(path, dict)
    write_json(path, values | {"weights_sha256": "0" * 64}, sealed=True)
    assert read_audits(run) == {}


def test_what_would_take_long_is_left_to_the_command(run, monkeypatch):
    (run.folder / "audit.json").unlink()
    how = (
        run.learner(MEMORY),
        prepared_from(run.options).task,
        run.record(MEMORY),
        run.options,
        run.folder,
    )
    monkeypatch.setattr("hma.runs.audits.CHEAP", 10)
    audit_if_cheap(*how)
    assert read_audits(run) == {}
    monkeypatch.undo()
    audit_if_cheap(*how)
    assert set(read_audits(run)) == {"test"}
