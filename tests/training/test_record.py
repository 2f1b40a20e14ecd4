"""What a record says of its run, against the run itself."""

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_cases import EVERYTHING, memory_learner, plain_learner, quietly, small_task

import hma
from hma.data import InMemory
from hma.paper.packed_records import PackedRecords
from hma.training import Record, evaluate
from hma.training.identity import data_fingerprint, git_commit
from hma.training.record import MACHINE_FIELDS

ROOT = Path(__file__).parents[2]
RECIPE = replace(EVERYTHING, epochs=4, patience=None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    task, folder = small_task(), tmp_path_factory.mktemp("run")
    learner = memory_learner(task)
    resolved = {"name": "first try", "source": "clouds.csv"}
    record = quietly(learner, task, RECIPE, seed=3, folder=folder, resolved=resolved)
    return learner, task, record, folder


def test_scores_are_those_of_the_kept_weights_in_every_context(run):
    learner, task, record, _ = run
    for name, split in task.tests.items():
        found = evaluate(learner, split, batch_size=RECIPE.eval_batch_size)
        assert record.tests[name] == found
        assert set(found) == {"batch", "batch-sorted", "alone"}
    selected = record.epochs[record.selected_epoch]["validation"]
    again = evaluate(learner, task.validation, batch_size=RECIPE.eval_batch_size)
    assert set(selected) == {"batch", "alone"}
    for context in selected:
        assert again[context] | selected[context] == again[context]


def test_the_learner_is_left_ready_to_predict_in_its_first_context(run):
    learner, _, _, _ = run
    assert learner.module is learner.model
    assert not learner.module.training
    assert learner.model.context == "batch"


def test_a_record_names_what_it_is_of(run):
    _, task, record, _ = run
    assert record.name == "first try"
    assert record.resolved == {"name": "first try", "source": "clouds.csv"}
    assert record.seed == 3
    assert record.setup["recipe"] == RECIPE.to_json()
    assert record.setup["task"]["rows"] == {"train": 90, "validation": 60, "near": 50, "far": 50}
    assert record.setup["method"]["config"]["queue_size"] == 40
    assert record.versions["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert record.versions["hma"] == hma.__version__
    assert record.data_fingerprint == data_fingerprint(task)
    assert "best validation accuracy in context 'batch'" in record.selection_rule


def test_time_and_memory_are_apart_from_all_that_repeats(run):
    _, task, record, _ = run
    values = record.to_json()
    assert set(values) - set(record.repeatable()) == set(MACHINE_FIELDS)
    assert len(record.epoch_seconds) == len(record.epochs) == 4
    assert 0 < sum(record.epoch_seconds) < record.seconds
    assert record.peak_memory_bytes > 10**7
    again = quietly(memory_learner(task), task, RECIPE, seed=3, resolved=record.resolved)
    assert again.repeatable() | {"weights_sha256": record.weights_sha256} == record.repeatable()


def test_the_file_is_plain_json(run):
    _, _, record, folder = run
    text = (folder / "record.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == record.to_json()
    assert Record.read(folder / "record.json") == record


def test_the_loss_of_an_epoch_is_the_mean_over_its_rows():
    task, seen = small_task(), []
    learner = plain_learner(task)
    inner = learner.loss

    def counted(batch):
        loss = inner(batch)
        seen.append((loss.item(), len(batch.y)))
        return loss

    learner.loss = counted
    recipe = replace(RECIPE, epochs=1, batch_size=40, balance="none")
    record = quietly(learner, task, recipe)
    assert [count for _, count in seen] == [40, 40, 10]
    expected = sum(loss * count for loss, count in seen) / 90
    assert record.epochs[0]["train_loss"] == pytest.approx(expected, rel=1e-6)


def test_a_number_that_is_not_finite_is_null_in_the_file_and_nan_again_when_read(tmp_path):
    one_class = InMemory(torch.randn(10, 6), torch.zeros(10, dtype=torch.long))
    task = small_task(tests={"near": one_class})
    recipe = replace(RECIPE, epochs=1)
    record = quietly(plain_learner(task), task, recipe, folder=tmp_path)
    assert math.isnan(record.tests["near"]["alone"]["auroc"])
    stored = json.loads((tmp_path / "record.json").read_text(), parse_constant=pytest.fail)
    assert stored["tests"]["near"]["alone"]["auroc"] is None
    assert math.isnan(Record.read(tmp_path / "record.json").tests["near"]["alone"]["auroc"])


def test_the_fingerprint_changes_with_labels_content_and_description():
    task = small_task()
    same = data_fingerprint(small_task())
    assert data_fingerprint(task) == same
    train = task.train
    labels = train.labels.clone()
    labels[40] = (labels[40] + 1) % 3
    content = train.x.clone()
    content[0, 0] += 1
    for changed in (
        small_task(train=InMemory(train.x, labels)),
        small_task(train=InMemory(content, train.labels)),
        small_task(facts={"flips": 0.1}),
        small_task(classes=("a", "b", "d")),
        small_task(tests={"near": task.tests["near"]}),
    ):
        assert data_fingerprint(changed) != same


def test_the_commit_is_that_of_the_source(monkeypatch):
    git = ["git", "-C", hma.__path__[0]]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    tracked = subprocess.run([*git, "ls-files", "__init__.py"], capture_output=True, text=True)
    if head.returncode or not tracked.stdout:
        assert git_commit() is None
    else:
        assert git_commit().removesuffix("-dirty") == head.stdout.strip()


def test_options_that_json_cannot_hold_are_refused_by_name():
    with pytest.raises(TypeError, match="resolved must hold JSON values only: Object of type set"):
        quietly(plain_learner(small_task()), small_task(), RECIPE, resolved={"x": {1, 2}})


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, None])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ValueError, match=r"seed must be a whole number from 0 to 2\*\*32 - 1, got"):
        quietly(plain_learner(small_task()), small_task(), RECIPE, seed=seed)


def test_a_frozen_module_has_nothing_to_train():
    learner = plain_learner(small_task())
    learner.module.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train: no parameter of Classifier"):
        quietly(learner, small_task(), RECIPE)


# ------------------------------------------------------------------------ records that can grow


def changed(run, tmp_path, change):
    values = run[2].to_json()
    change(values)
    path = tmp_path / "record.json"
    path.write_text(json.dumps(values))
    return Record.read(path)


def test_a_field_that_a_record_lacks_takes_its_default(run, tmp_path):
    def without(values):
        del values["versions"], values["git_commit"], values["epoch_seconds"]

    found = changed(run, tmp_path, without)
    assert (found.versions, found.git_commit, found.epoch_seconds) == ({}, None, [])
    assert found.tests == run[2].tests


def test_a_field_that_is_not_known_is_kept(run, tmp_path):
    found = changed(run, tmp_path, lambda values: values.update(energy={"joule": 3}))
    assert found.others == {"energy": {"joule": 3}}
    found.write(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["energy"] == {"joule": 3}
    assert replace(found, others={}) == run[2]


def test_what_a_row_measures_is_kept_and_nothing_is_written_where_it_measures_nothing(
    run, tmp_path
):
    assert "measures" not in run[2].to_json()
    measured = replace(run[2], measures={"seconds at 10,000 rows": 0.5})
    measured.write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == measured


def test_every_committed_record_is_read_and_written_back_as_it_is(tmp_path):
    tables = sorted(path.stem for path in (ROOT / "results").glob("*.jsonl"))
    assert tables, "there are no records"
    for table in tables:
        packed = PackedRecords(ROOT / "results", table)
        for cell in sorted(packed.cells())[::9]:
            values = packed.values(cell)
            Record.from_json(values).write(tmp_path / "again.json")
            assert json.loads((tmp_path / "again.json").read_text()) == values, cell
