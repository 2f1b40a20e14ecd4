"""Searching settings: on validation only, every combination once, and going on where it stopped."""

import math
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hma.errors import UserError
from hma.io.files import hold_lock
from hma.paper.cells import measure
from hma.paper.results import Results
from hma.paper.search_settings import search, validation_score
from hma.paper.table import Cell, Problem

CELL = Cell("TOY", "smoke", "easy", "HMA", 0)


def test_all_combinations_are_tried_and_ranked_by_validation(toy, results):
    ranked = search(toy, CELL, results)
    tried = sorted((trial.settings["queue_size"], trial.settings["lr"]) for trial in ranked)
    assert tried == [(8, 0.001), (8, 0.01), (16, 0.001), (16, 0.01)]
    assert [trial.score for trial in ranked] == sorted((t.score for t in ranked), reverse=True)
    best = ranked[0]
    row = toy.rows["HMA"].changed(best.settings)
    record = measure(replace(toy, rows={**toy.rows, "HMA": row}), CELL, None)
    last = record.epochs[record.selected_epoch]["validation"]["batch"]["accuracy"]
    assert best.score == pytest.approx(100 * last)


def test_the_test_splits_are_never_touched(toy, results):
    class Forbidden:
        labels = None

        def __len__(self):
            raise AssertionError("a test split was looked at")

        batch = __len__

    problem = toy.problems["easy"]
    blind = Problem(
        task=lambda seed: replace(problem.task(seed), tests={"near": Forbidden()}),
        backbone=problem.backbone,
    )
    table = replace(toy, problems={**toy.problems, "easy": blind})
    assert len(search(table, CELL, results, trials=1)) == 1


def test_a_search_looks_at_the_columns_of_its_budget(toy, results):
    asked = []
    problem = toy.problems["easy"]
    own = Problem(
        task=lambda seed: asked.append(seed) or problem.task(seed), backbone=problem.backbone
    )
    budget = replace(toy.budgets[CELL.budget], problems={"easy": own})
    search(replace(toy, budgets={**toy.budgets, CELL.budget: budget}), CELL, results, trials=1)
    assert asked


def test_a_search_goes_on_where_it_stopped(toy, results):
    seen = []

    def stop_after_two(trial, done, total):
        seen.append(trial)
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(toy, CELL, results, say=stop_after_two)
    ranked = search(toy, CELL, results, say=lambda trial, done, total: seen.append(trial))
    assert len(seen) == len(ranked) == 4
    assert sorted(t.score for t in seen) == sorted(t.score for t in ranked)


def test_fewer_trials_than_combinations_are_kept_to(toy, results):
    assert len(search(toy, CELL, results, trials=2)) == 2


def test_two_seeds_are_averaged(toy, results):
    cell = CELL._replace(method="ERM")
    ranked = search(toy, cell, results, seeds=2)
    for trial in ranked:
        row = toy.rows["ERM"].changed(trial.settings)
        table = replace(toy, rows={**toy.rows, "ERM": row})
        scores = [
            validation_score(measure(table, cell._replace(seed=s), None), "accuracy")
            for s in (0, 1)
        ]
        assert trial.score == pytest.approx(50 * sum(scores))


def test_a_row_without_anything_to_search_names_those_that_have(toy, results):
    with pytest.raises(
        UserError, match="BROKEN has nothing to search in TOY; rows that do: ERM, HMA"
    ):
        search(toy, CELL._replace(method="BROKEN"), results)


def test_one_search_at_a_time(toy, results):
    with (
        hold_lock(results.folder / "search/TOY/smoke/easy/HMA.lock"),
        pytest.raises(UserError, match="another search of easy/HMA is running"),
    ):
        search(toy, CELL, results)


KILLED = """
import os, sys
from pathlib import Path
from hma.paper.experiment_files import load_table
from hma.paper.results import Results
from hma.paper.search_settings import search
from hma.paper.table import Cell

toy, folder, moment = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
fsync = os.fsync

def killed_while_writing(handle):
    global moment
    moment -= os.readlink(f"/proc/self/fd/{handle}").startswith(f"{folder}/search/")
    if moment == 0:
        os.kill(os.getpid(), 9)
    fsync(handle)

os.chdir(folder.parent)
os.fsync = killed_while_writing
results = Results(folder.relative_to(folder.parent))
search(load_table(toy), Cell("TOY", "smoke", "easy", "ERM", 0), results)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the moment in Linux's /proc")
def test_a_search_killed_while_it_writes_goes_on(toy, toy_file, results):
    command = [sys.executable, "-c", KILLED, str(toy_file), str(results.folder), "2"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    cell, said = CELL._replace(method="ERM"), []
    ranked = search(toy, cell, results, say=lambda *told: said.append(told))
    assert [(done, total) for _, done, total in said] == [(1, 2), (2, 2)]
    assert sorted(trial.settings["lr"] for trial in ranked) == [1e-3, 1e-1]
    left = [path.name for path in (results.folder / "search").rglob("*") if path.is_file()]
    assert sorted(left) == ["ERM.json", "ERM.lock"]


def test_a_diverged_trial_is_tried_once_and_comes_last(toy, results, monkeypatch):
    def score(record, metric):
        return math.nan if record.setup["recipe"]["lr"] == 1e-2 else 0.5

    monkeypatch.setattr("hma.paper.search_settings.validation_score", score)
    said = []
    ranked = search(toy, CELL, results, say=lambda *told: said.append(told))
    assert len(said) == len(ranked) == 4
    assert [trial.settings["lr"] for trial in ranked] == [1e-3, 1e-3, 1e-2, 1e-2]
    again = search(toy, CELL, results, say=lambda *told: pytest.fail("tried again"))
    assert [trial.settings for trial in again] == [trial.settings for trial in ranked]


def test_proposals_are_the_same_whether_a_search_was_interrupted_or_not(toy, results, tmp_path):
    whole = search(toy, CELL, results, trials=3)
    parts = Results(tmp_path / "parts")
    for trials in (1, 2, 3):
        ranked = search(toy, CELL, parts, trials=trials)
    assert ranked == whole


def test_a_metric_whose_small_values_are_good_ranks_them_first(toy, results):
    ranked = search(replace(toy, metric="nll"), CELL._replace(method="ERM"), results)
    assert [trial.score for trial in ranked] == sorted(trial.score for trial in ranked)


def test_trials_of_another_protocol_are_not_mixed(toy, results):
    cell = CELL._replace(method="ERM")
    search(toy, cell, results, trials=1)
    with pytest.raises(UserError, match=r"ERM.json was searched with other .*: seeds was 1, is 2"):
        search(toy, cell, results, trials=1, seeds=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"seeds": 4}, "seeds must be 1 to 3 for TOY, got 4"),
    ],
)
def test_counts_that_cannot_be_are_refused(toy, results, options, message):
    with pytest.raises(UserError, match=message):
        search(toy, CELL, results, **options)
