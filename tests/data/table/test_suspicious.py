"""A line for each column that may not be what it is taken for, and none for the others."""

import numpy as np
import pandas as pd
import pytest

from hma.data import open_source, prepare
from hma.options.preparation import PreparationOptions

ROWS = 200


def frame():
    generator = np.random.default_rng(0)
    y = np.array(["a", "b"] * (ROWS // 2))
    return pd.DataFrame({"x": generator.normal(size=ROWS).round(3), "y": y})


def told(folder, table, **how):
    table.to_csv(folder / "a.csv", index=False)
    prepared = prepare(open_source(folder / "a.csv", target="y", task=how.pop("task", None)),
                       seed=0, **how)  # fmt: skip
    return prepared.task.facts.get("suspicious columns", [])


def test_nothing_is_said_of_plain_columns(tmp_path):
    table = frame().assign(
        kind=["u", "v", "w", "u"] * (ROWS // 4), day=pd.date_range("2020-01-31", periods=ROWS)
    )
    assert told(tmp_path, table) == []


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ([f"id {place}" for place in range(ROWS)], "column 'c': a new value in every row, an id"),
        (list(range(1000, 1000 + ROWS)), "column 'c': a new whole number in every row, an id?"),
        ([f"n{place // 2}" for place in range(ROWS)], "different values in 130 rows, names?"),
        (
            [f"I would see it {place} times again" for place in range(ROWS)],
            "column 'c': sentences, .* train with --text c --backbone hf:FOLDER",
        ),
        (["same"] * ROWS, "column 'c': one value in all training rows"),
        (["12"] * 50 + ["1x2"] + ["13"] * 149, r"because of '1x2' in row 50 \(counted from 0\)"),
        (["?", "13", "14", "15", "16"] * 40, "as words because of '[?]' in row 0, 5, 10"),
        (["2020-01-31"] * 50 + ["soon"] + ["2020-02-01"] * 149, "'soon' in row 50 .* are dates"),
        (["01/02/2020", "03/04/2020"] * 100, "'0[13]/0[24]/2020' are read with the month first"),
        (["no", "yes"] * 100, "alone it tells the class of 100% of the validation rows"),
        ([0.25, 0.75] * 100, "alone it tells the class of 100% of the validation rows"),
    ],
)
def test_a_suspicious_column_is_told(tmp_path, column, said):
    lines = told(tmp_path, frame().assign(c=column))
    assert len(lines) == 1
    assert pd.Series(lines).str.contains(said).all(), lines


@pytest.mark.parametrize("name", ["id", "user_id", "userId", "account.key"])
def test_whole_numbers_far_apart_are_ids_where_their_name_says_so(tmp_path, name):
    apart = [7**9 * place + place % 2 for place in range(ROWS)]
    assert told(tmp_path, frame().assign(paid=apart)) == []
    (line,) = told(tmp_path, frame().assign(**{name: apart}))
    assert line.startswith(f"column '{name}': a new whole number in every row, an id?")


def test_numbers_taken_as_classes_are_told_where_they_are_many(tmp_path):
    ages = frame().assign(y=[20 + place % 25 for place in range(ROWS)])
    (line,) = told(tmp_path, ages)
    assert line.startswith("column 'y' of a.csv: 25 numbers taken as classes, a quantity?")
    assert "--task regression" in line
    assert told(tmp_path, ages, task="regression") == []
    assert told(tmp_path, frame().assign(y=[place % 10 for place in range(ROWS)])) == []


def test_a_column_that_repeats_another_is_told(tmp_path):
    table = frame()
    lines = told(tmp_path, table.assign(again=table.x))
    assert lines == ["column 'again': the same as 'x'; leave it out with --drop again"]


def test_a_number_that_is_the_target_in_other_units_is_told(tmp_path):
    table = frame()
    table["y"] = 1.8 * table.x + 32
    (line,) = told(tmp_path, table, task="regression")
    assert line.startswith("column 'x': all but equal to the target; is it known before")


def test_a_column_that_helps_a_lot_is_no_leak(tmp_path):
    table = frame()
    table["x"] = np.where(np.arange(ROWS) % 10 < 2, 0.0, np.where(table.y == "a", -1.0, 1.0))
    assert told(tmp_path, table) == []


def test_dropped_columns_are_not_told_nor_learned_from(tmp_path):
    table = frame().assign(**{"my id": range(ROWS)})
    (line,) = told(tmp_path, table)
    assert line.endswith("leave it out with --drop 'my id'")
    assert told(tmp_path, table, options=PreparationOptions(drop=("my id",))) == []


def test_many_such_columns_are_counted(tmp_path):
    more = {f"c{place}": [f"{place} {row}" for row in range(ROWS)] for place in range(30)}
    lines = told(tmp_path, pd.concat([frame(), pd.DataFrame(more)], axis=1))
    assert len(lines) == 20
    assert lines[-1] == "and 11 more such columns"
