"""A run that is fitted again on all rows: what learned from them, and what is said of them."""

import json
import shutil

import numpy as np
import pandas
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from hma.errors import UserError
from hma.io.json_files import read_json, write_json
from hma.metrics import METRICS
from hma.report.page import render
from hma.runs import MEMORY, MIXTURE, Run, RunOptions, train
from hma.runs.audits import audit_run
from hma.runs.living import LivingMemory
from hma.runs.options import OPTIONS
from hma.runs.page import report_of
from hma.runs.remembered import RememberedRows
from hma.runs.source import prepared_from, rows_for, rows_trained_on
from hma.training import Recipe, SilentProgress, all_logits
from hma.vote.weighing import fit_shares

CORNERS = 3 * np.eye(4)


def table(kinds, seed):
    """Rows around a corner for each kind."""
    draw = np.random.default_rng(seed)
    frame = pandas.DataFrame(CORNERS[kinds] + draw.normal(size=(len(kinds), 4)), columns=[*"abcd"])
    return frame.round(3).assign(kind=[f"k{kind}" for kind in kinds])


def options_of(folder, **changed):
    recipe = Recipe(epochs=3, batch_size=16, calibrate=True)
    known = {"source": str(folder / "rows.csv"), "target": ("kind",), "recipe": recipe}
    return RunOptions(**known | changed)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("again")
    table(np.arange(90) % 3, 0).to_csv(folder / "rows.csv", index=False)
    table(np.arange(12) % 3, 1).to_csv(folder / "new.csv", index=False)
    train(options_of(folder), folder / "run", progress=SilentProgress())
    return folder


@pytest.fixture(scope="module")
def finished(trained):
    return Run.open(trained / "run")


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    return Run.open(tmp_path / "run")


@pytest.fixture(scope="module")
def task(finished):
    return prepared_from(finished.options).task


def stored(run):
    return run.learner(MEMORY).model.real.queue.rows()


def logits(run, which, split):
    return all_logits(run.learner(which), split, batch_size=64)


def test_the_memory_votes_with_training_and_validation_rows(finished, task):
    held, before = stored(finished), stored(finished.before)
    both = torch.cat([task.train.labels, task.validation.labels])
    assert held.ids.tolist() == [*range(len(both))]
    assert held.labels.tolist() == both.tolist()
    assert before.ids.tolist() == [*range(len(task.train))]
    for which in finished.candidates:
        said = finished.record(which).measures["refit"]
        weights = finished.before.record(which).weights_sha256
        assert said == {"rows": len(both), "validation_is_of": weights}


def test_simple_methods_take_all_rows_with_the_setting_that_was_chosen(finished, task):
    assert len(finished.learner("neighbours").module.stored.labels) == 72
    record, first = finished.record("logistic"), finished.before.record("logistic")
    assert record.measures["chosen"] == first.measures["chosen"]
    assert record.measures["validation_loss"] == first.measures["validation_loss"]
    splits = (task.train, task.validation)
    x = torch.cat([split.batch(torch.arange(len(split))).x for split in splits]).double().numpy()
    y = torch.cat([split.labels for split in splits]).numpy()
    oracle = LogisticRegression(C=record.measures["chosen"]["C"], max_iter=200)
    oracle.fit((x - x.mean(0)) / x.std(0), y)
    found = finished.learner("logistic").module.linear.weight
    np.testing.assert_allclose(found.detach().numpy(), oracle.coef_, rtol=1e-3, atol=1e-3)


def test_shares_and_validation_losses_are_of_the_models_that_had_not_seen_these_rows(
    finished, task
):
    deployed, held = finished.deployed, task.validation
    said = [logits(finished.before, which, held) for which in deployed.shares]
    expected = fit_shares(said, held.labels, task.target)
    assert [*deployed.shares.values()] == pytest.approx(expected, abs=1e-4)
    for which, answers in zip(deployed.shares, said, strict=True):
        loss = METRICS["loss"].score(answers, held.labels, task.target)
        assert deployed.losses[which] == pytest.approx(loss, rel=1e-4)
    page = render(report_of(finished))
    assert "fitted again on all 72 training and validation rows" in page


def test_test_scores_are_of_the_models_that_answer(finished, task):
    test = task.tests["test"]
    answers = logits(finished, MIXTURE, test)
    nll = METRICS["loss"].score(answers, test.labels, task.target)
    assert finished.deployed.tests["test"]["nll"] == pytest.approx(nll, rel=1e-4)


def test_the_same_command_trains_nothing_again(trained, run):
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("weights.safetensors")}
    train(options_of(trained), run.folder, progress=SilentProgress())
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_run_killed_between_the_fits_comes_to_the_same(trained, finished, run):
    wanted = {which: finished.record(which).repeatable() for which in finished.candidates}
    for which in (MEMORY, "plain", "kernel"):
        shutil.rmtree(run.folder / which)
    (run.folder / "deployment.json").unlink()
    again = train(options_of(trained), run.folder, progress=SilentProgress())
    assert {which: again.record(which).repeatable() for which in again.candidates} == wanted
    assert again.deployed == finished.deployed


def test_a_change_is_scored_by_the_models_that_had_not_seen_the_validation_rows(trained, run, task):
    rows = rows_for(run, str(trained / "new.csv"), labelled=True)
    version = LivingMemory.open(run.folder).remember(rows)
    new = run.preparation.split(rows, range(12)).batch(torch.arange(12))
    learner = run.before.learner(MIXTURE)  # what it was, taught by hand
    memory = learner.learners[MEMORY].model
    scores = []
    for taught in (False, True):
        if taught:
            memory.remember(new.x, new.y, ids=torch.arange(72, 84))
        said = all_logits(learner, task.validation, batch_size=64)
        scores.append(METRICS["accuracy"].score(said, task.validation.labels, task.target))
    (found, *_) = version.scores
    assert [found.before, found.after] == pytest.approx(scores)
    assert found.how.endswith("as it was before it learned from these rows")
    now = Run.open(run.folder)
    torch.testing.assert_close(
        logits(now.before, MEMORY, task.validation),
        all_logits(learner.learners[MEMORY], task.validation, batch_size=64),
        rtol=1e-4,
        atol=1e-4,
    )
    assert stored(now).ids.tolist() == [*range(84)]


def test_a_validation_row_can_be_forgotten_and_brought_back(run):
    memory = LivingMemory.open(run.folder)
    first = len(run.places["train"])
    place = run.places["validation"][0]
    (row,) = memory.rows([first])
    assert row.what == RememberedRows(run).sources["train"].describe(place)
    memory.forget(ids=[first])
    now = Run.open(run.folder)
    assert stored(now).ids.tolist() == [id for id in range(72) if id != first]
    assert len(stored(now.before).ids) == first
    memory.restore(0)
    assert len(stored(Run.open(run.folder)).ids) == 72


def test_validation_rows_are_in_the_memory_already(trained, run, tmp_path):
    frame = pandas.read_csv(trained / "rows.csv").iloc[run.places["validation"]]
    frame.to_csv(tmp_path / "taught.csv", index=False)
    rows = rows_for(run, str(tmp_path / "taught.csv"), labelled=True)
    assert rows_trained_on(run, rows) == len(frame)
    with pytest.raises(UserError, match="the memory holds all 14 rows"):
        LivingMemory.open(run.folder).remember(rows, yes=True)


def test_without_test_rows_the_page_and_the_audit_are_of_the_models_before(trained, tmp_path):
    run = train(options_of(trained, test=0.0), tmp_path / "run", progress=SilentProgress())
    held = prepared_from(run.options).task.validation
    report = report_of(run)
    (trial,) = report.tests
    expected = METRICS["accuracy"].score(
        logits(run.before, MEMORY, held), held.labels, run.preparation.target
    )
    (shown,) = (one for one in trial.results if one.method == "memory")
    assert shown.scores["accuracy"].value == pytest.approx(expected)
    assert "so this page is of that" in render(report)
    kept = json.loads((run.folder / "audit.json").read_text())
    found = audit_run(run)
    assert json.loads((run.folder / "audit.json").read_text()) == kept
    assert found.keys() == {"validation"}


def test_validation_rows_of_a_file_of_their_own_are_found_there(trained, tmp_path):
    options = options_of(trained, validation=str(trained / "new.csv"))
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    first = len(run.places["train"])
    assert len(stored(run).ids) == first + 12
    remembered = RememberedRows(run)
    given = rows_for(run, str(trained / "new.csv"), labelled=True)
    assert remembered.describe(first + 5) == given.describe(5)
    assert remembered.describe(0) != given.describe(0)
    assert rows_trained_on(run, given) == 12


def test_what_is_no_choice_is_refused(trained):
    with pytest.raises(UserError, match="refit must be"):
        options_of(trained, refit="maybe")


def test_a_run_can_leave_it_and_one_of_before_there_was_a_choice_did(trained, tmp_path):
    run = train(options_of(trained, refit="no"), tmp_path / "run", progress=SilentProgress())
    assert run.before is run
    assert not (run.folder / "before_refit").exists()
    assert len(stored(run).ids) == len(run.places["train"])
    assert "refit" not in run.record(MEMORY).measures
    values = read_json(run.folder / OPTIONS, dict, sealed=True)
    del values["refit"]
    write_json(tmp_path / "old.json", values, sealed=True)
    assert RunOptions.read(tmp_path / "old.json").refit == "no"
