"""What the page of a run shows against the record of the run."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from hma.attention.config import HMAConfig
from hma.errors import UserError
from hma.report.page import render
from hma.runs import MEMORY, RunOptions, title, train
from hma.runs.kept_answers import candidate_answers, read_answers
from hma.runs.page import report_of
from hma.runs.source import prepared_from
from hma.training import Recipe, SilentProgress
from hma.vote.config import VoteConfig


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on rows that the file has class by class."""
    folder = tmp_path_factory.mktemp("page")
    draw = np.random.default_rng(0)
    y = np.sort(draw.integers(3, size=300))
    np.savez(folder / "rows.npz", x=draw.normal(size=(300, 4)) + y[:, None], y=y)
    options = RunOptions(
        source=str(folder / "rows.npz"),
        backbone="mlp",
        config=HMAConfig(queue_size=32, slots_per_class=2, label_dim=8),
        recipe=Recipe(epochs=1, lr=1e-3, eval_batch_size=16),  # a longer one multiplies roundings
    )
    return train(options, folder / "run", progress=SilentProgress())


def test_the_page_finds_the_scores_of_the_record_in_every_context(run):
    report = report_of(run)
    (note,) = report.notes  # another would point out other accuracies
    assert note.startswith("Every candidate that answers was fitted again on all 240 training and")
    recorded = run.record(MEMORY).tests["test"]
    shown = {r.context: r.scores for r in report.tests[0].results if r.method == "memory"}
    assert set(shown) == set(recorded) == {"batch", "batch-sorted", "alone"}
    for context, scores in recorded.items():
        assert shown[context]["accuracy"].value == pytest.approx(scores["accuracy"])
        assert shown[context]["nll"].value == pytest.approx(scores["nll"], rel=1e-5)
    gap = abs(recorded["batch"]["nll"] - recorded["batch-sorted"]["nll"])
    assert gap > 1e-3  # so that neither could be shown for the other


def test_the_page_shows_every_candidate_and_the_mixture_that_answers(run):
    report = report_of(run)
    first = report.tests[0]
    shown = {r.method: r.scores for r in first.results if r.context == "alone"}
    simple = [
        "logistic regression",
        "nearest neighbours",
        "kernel ridge",
        "gradient boosting",
    ]
    assert list(shown) == ["plain backbone", "memory", *simple, "mixture"]
    assert first.deployed == "mixture"
    names = [title(which, run.preparation.target) for which in ("logistic", "neighbours")]
    for which, name in zip(("logistic", "neighbours"), names, strict=True):
        recorded = run.record(which).tests["test"]["alone"]
        assert shown[name]["nll"].value == pytest.approx(recorded["nll"], rel=1e-5)
    own = run.deployed
    assert shown["mixture"]["nll"].value == pytest.approx(own.tests["test"]["nll"], rel=1e-5)
    found = {one.method: (one.share, one.validation_loss) for one in report.candidates}
    assert found["memory"] == (own.shares[MEMORY], own.losses[MEMORY])
    assert found["mixture"] == (None, own.losses["mixture"])
    assert [one.method for one in report.parts["run"]][2:] == simple


def test_param_is_trained_when_asked_for_shown_and_never_deployed(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "copy")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=r"--deploy must be one of .*, got param"):
        train(run.options, folder, param=True, deploy="param")
    found = train(run.options, folder, param=True, progress=SilentProgress())
    assert all(path.read_bytes() == data for path, data in before.items())
    assert found.deployed == run.deployed
    assert "param" not in found.deployed.shares
    model = found.learner("param").model
    assert model.config == HMAConfig.ablation("param")
    report = report_of(found)
    shown = {r.method: r.scores for r in report.tests[0].results}
    recorded = found.record("param").tests["test"]["alone"]
    assert shown["PARAM"]["nll"].value == pytest.approx(recorded["nll"], rel=1e-5)
    assert "PARAM" in report.tests[0].simple  # who does not beat it has not won
    (param,) = (one for one in report.candidates if one.method == "PARAM")
    last = found.record("param").epochs[-1]["validation"]["alone"]
    assert (param.share, param.validation_loss) == (None, pytest.approx(last["nll"], rel=1e-5))
    assert "PARAM has the blocks of the paper's memory without one" in render(report)


def test_param_needs_blocks_that_a_vote_does_not_have(run, tmp_path):
    voting = replace(run.options, config=VoteConfig())
    with pytest.raises(UserError, match="--param is for --memory hma"):
        train(voting, tmp_path / "run", param=True)
    assert not (tmp_path / "run").exists()


def test_attention_in_both_orders_is_of_different_batches(run):
    _, shuffled, in_order = report_of(run).parts["attention"]
    assert (shuffled.context, in_order.context) == ("batch", "batch-sorted")
    assert np.abs(shuffled.overall - in_order.overall).max() > 1e-4  # a hundred roundings


def test_simple_rows_of_the_run_are_on_the_page(run):
    shown = report_of(run).tests[0].simple
    assert list(shown) == [
        "logistic regression",
        "nearest neighbours",
        "kernel ridge",
        "gradient boosting",
    ]
    assert shown["logistic regression"] == run.record("logistic").tests["test"]["alone"]


def test_the_page_says_which_method_answers_and_why(run):
    report = report_of(run)
    assert report.deployed == run.deployed.why
    assert f"D{run.deployed.why[1:]}." in render(report)


class Told(SilentProgress):
    """Keep what is shown: a title with how much is done and of how much."""

    def __init__(self):
        self.seen, self.title, self.total = [], "", 0

    def begin(self, title, total, done=0):
        self.title, self.total = title, total

    def update(self, done, note=""):
        self.seen.append((self.title, done, self.total))


def test_the_page_shows_how_far_its_answers_and_its_parts_are(run):
    (kept,) = run.folder.glob("answers-*.safetensors")
    kept.unlink()
    told = Told()
    report = report_of(run, told)
    answered = [(done, total) for title, done, total in told.seen if title == "answers"]
    passes = 1 + 3 + 4  # plain, the memory in its contexts, simple ones; the mixture follows
    rows = report.tests[0].rows
    assert answered[-1] == (passes * rows, passes * rows)
    parts = [(done, total) for title, done, total in told.seen if title == "page"]
    assert [done for done, _ in parts] == list(range(1, 1 + parts[0][1]))


def test_answers_that_training_kept_are_those_of_the_models_and_nobody_is_asked_again(
    run, monkeypatch
):
    kept = read_answers(run)
    (path,) = run.folder.glob("answers-*.safetensors")
    path.unlink()
    again = candidate_answers(run)
    assert list(kept.said) == list(again.said) == ["test"]
    for which, contexts in kept.said["test"].items():
        assert list(contexts) == list(run.learner(which).contexts)
        for context, logits in contexts.items():
            torch.testing.assert_close(again.said["test"][which][context], logits)
    report, told = report_of(run), Told()
    monkeypatch.setattr("hma.runs.kept_answers.answers", None)
    shown = report_of(run, told).tests[0].results
    assert [r.scores for r in shown] == [r.scores for r in report.tests[0].results]
    assert not [title for title, *_ in told.seen if title == "answers"]


def test_decoding_pictures_for_the_first_time_is_shown(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(10):
            pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{i}.png")
    told = Told()
    prepared = prepared_from(RunOptions(source=str(tmp_path / "data")), progress=told)
    rows = len(prepared.task.train)
    assert told.seen == [("decoding", rows, rows)]
