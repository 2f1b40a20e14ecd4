"""What a table is: its cells, its patterns, and what it refuses to be."""

from dataclasses import replace

import pytest

from hma.errors import UserError
from hma.options.config import ConfigError
from hma.paper.table import Cell, Row


def names(cells):
    return [f"{cell.task}/{cell.method} {cell.seed}" for cell in cells]


def test_cells_come_seed_by_seed(toy):
    assert names(toy.cells("smoke")) == [
        *("easy/ERM 0", "easy/HMA 0", "other/ERM 0", "other/HMA 0"),
        *("easy/ERM 1", "easy/HMA 1", "other/ERM 1", "other/HMA 1"),
    ]


@pytest.mark.parametrize(
    ("only", "found"),
    [
        ("easy/HMA", ["easy/HMA 0"]),
        ("HMA", ["easy/HMA 0", "other/HMA 0", "absent/HMA 0"]),
        ("e*/*M*", ["easy/ERM 0", "easy/HMA 0"]),
        ("other", ["other/ERM 0", "other/HMA 0", "other/BROKEN 0"]),
        ("other/HMA, easy/ERM,easy/ERM", ["easy/ERM 0", "other/HMA 0"]),
    ],
)
def test_patterns_choose_cells(toy, only, found):
    assert names(toy.cells("smoke", only, seeds=1)) == found


@pytest.mark.parametrize(
    ("budget", "only", "seeds", "message"),
    [
        ("smal", None, None, r"budget must be one of .*got 'smal'; did you mean 'small'\?"),
        ("small", "esy/ERM", None, r"task must be one of .*got 'esy'; did you mean 'easy'\?"),
        ("small", "easy/ERN", None, r"method must be one of .*got 'ERN'; did you mean 'ERM'\?"),
        ("small", None, 4, r"seeds must be 1 to 3 for TOY, got 4"),
        ("small", None, 0, r"seeds must be 1 to 3 for TOY, got 0"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(toy, budget, only, seeds, message):
    with pytest.raises(UserError, match=message):
        toy.cells(budget, only, seeds)


def test_a_budget_may_run_other_rows_on_each_task(toy):
    ragged = replace(toy.budgets["smoke"], methods=("ERM", "other/HM*"), seeds=1)
    table = replace(toy, budgets={**toy.budgets, "smoke": ragged})
    assert names(table.cells("smoke")) == ["easy/ERM 0", "other/ERM 0", "other/HMA 0"]
    ragged = replace(ragged, methods=("ERM", "absent/HMA"))  # a task that the budget leaves out
    table = replace(toy, budgets={**toy.budgets, "smoke": ragged})
    with pytest.raises(UserError, match=r"task must be one of 'easy', 'other', got 'absent'"):
        table.cells("smoke")


def test_a_budget_may_have_columns_of_its_own(toy):
    easy, other = toy.problems["easy"], toy.problems["other"]
    swapped = replace(toy.budgets["smoke"], problems={"easy": other})
    table = replace(toy, budgets={**toy.budgets, "smoke": swapped})
    assert table.problem("easy", "smoke") is other
    assert table.problem("easy", "small") is easy
    with pytest.raises(ConfigError, match=r"budget smoke: problems must be one of .*got 'esy'"):
        replace(toy, budgets={**toy.budgets, "smoke": replace(swapped, problems={"esy": other})})


def test_only_the_tiny_budget_may_be_added_or_left_out(toy):
    smoke = toy.budgets["smoke"]
    table = replace(toy, budgets={**toy.budgets, "tiny": smoke})
    assert names(table.cells("tiny")) == names(table.cells("smoke"))
    with pytest.raises(ConfigError, match=r"with or without tiny, got .*small.*less"):
        replace(toy, budgets={**toy.budgets, "less": smoke})


def test_the_recipe_is_the_budgets_then_the_tasks_then_the_rows(toy):
    found = toy.recipe(Cell("TOY", "small", "other", "HMA", 0))
    assert (found.epochs, found.weight_decay, found.batch_size) == (5, 1e-4, 16)
    assert toy.recipe(Cell("TOY", "smoke", "other", "ERM", 0)).epochs == 2


def test_a_budget_may_train_a_row_in_its_own_way_unless_the_row_says_otherwise(toy):
    rows = {name: {"lr": 0.5, "weight_decay": 0.25} for name in ("ERM", "HMA")}
    own = replace(toy.budgets["smoke"], per_method=rows)
    table = replace(toy, budgets={**toy.budgets, "smoke": own})
    plain, memory = (table.recipe(Cell("TOY", "smoke", "easy", name, 0)) for name in rows)
    assert (plain.lr, plain.weight_decay) == (0.5, 0.25)
    assert (memory.lr, memory.weight_decay) == (0.5, 1e-4)  # the row's own decay
    with pytest.raises(ConfigError, match=r"budget smoke: per_method must be .*got 'ERN'"):
        replace(toy, budgets={**toy.budgets, "smoke": replace(own, per_method={"ERN": {}})})


def test_all_mistakes_of_a_table_are_told_at_once(toy):
    with pytest.raises(ConfigError) as caught:
        replace(
            toy,
            key="a/b",
            baseline="ERN",
            published={"HMA": {"esy": (1.0, 1.0)}},
            curves={"one": ("easy", "hard")},
            budgets={"smoke": toy.budgets["smoke"]},
        )
    message = str(caught.value)
    for part in ("'a/b'", "'ERN'", "'esy'", "'hard'", "budgets must be smoke, small and paper"):
        assert part in message


def test_a_changed_row_knows_settings_from_recipe(toy):
    row = toy.rows["HMA"].changed({"queue_size": 8, "lr": 0.5})
    assert row.settings["queue_size"] == 8
    assert dict(row.recipe) == {"weight_decay": 1e-4, "lr": 0.5}


def test_a_retired_row_has_cells_to_report_and_none_to_run(toy):
    gone = Row(retired="54d3a106", settings={"vote": "added"}, what="left")
    table = replace(toy, rows={**toy.rows, "GONE": gone})
    assert names(table.cells("smoke", "easy", seeds=1))[-1] == "easy/GONE 0"
    assert names(table.cells("smoke", "easy", seeds=1, retired=False)) == [
        *("easy/ERM 0", "easy/HMA 0", "easy/BROKEN 0")
    ]
    assert table.cells("smoke", "GONE", retired=False) == ()
    for row in (replace(gone, build=toy.rows["ERM"].build), Row()):
        with pytest.raises(ConfigError, match="row GONE: give it one of build, work and retired"):
            replace(toy, rows={**toy.rows, "GONE": row})
