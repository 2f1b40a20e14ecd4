"""Searching settings: on validation only, every combination once, and going on where it stopped."""

from dataclasses import replace

import pytest

from hma.errors import UserError
from hma.files import held
from hma.tables import Cell, Problem, measure, search
from hma.tables.search_settings import validation_score

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
        held(results.folder / "search/TOY/smoke/easy/HMA.lock"),
        pytest.raises(UserError, match="another search of easy/HMA is running"),
    ):
        search(toy, CELL, results)
