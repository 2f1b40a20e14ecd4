"""Columns of dates against Python's own calendar."""

import json
import math
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
import torch

from hma.data import PreparationOptions, open_source, preparation_from_json, prepare
from hma.data.preparation import Selection
from hma.data.table.columns import FORMATS, ISO, DateColumn, formats_of
from hma.data.table.preparation import TablePreparation
from hma.errors import UserError
from hma.targets import Classes

DAYS = [datetime(2020, 2, 29), datetime(2021, 7, 4), datetime(2021, 12, 31), datetime(2019, 1, 1)]


def table(folder, cells, name="a.csv"):
    file = folder / name
    frame = pd.DataFrame({"when": cells, "y": ["a", "b"] * (len(cells) // 2)})
    if name.endswith("parquet"):
        frame.to_parquet(file)
    else:
        frame.to_csv(file, index=False)
    return open_source(file, target="y")


def fitted(source, **options):
    rows = range(len(source))
    return TablePreparation.fit(
        Selection(source, rows), ("a", "b"), Classes(2), PreparationOptions(**options)
    )


def by_hand(days):
    """Elapsed days, year, month, sine and cosine of the day of the year, weekday: in float64."""
    elapsed = np.array([(day - datetime(1970, 1, 1)).total_seconds() / 86400 for day in days])
    years = np.array([float(day.year) for day in days])
    months = np.arange(1.0, 13.0)
    rows = []
    for place, day in enumerate(days):
        clock = (day.hour * 3600 + day.minute * 60) / 86400
        turn = 2 * math.pi * (day.timetuple().tm_yday - 1 + clock) / 365.2425
        weekday = [float(day.weekday() == one) for one in range(7)]
        rows.append(
            [
                (elapsed[place] - elapsed.mean()) / elapsed.std(),
                (years[place] - years.mean()) / years.std(),
                (day.month - months.mean()) / months.std(),
                math.sin(turn),
                math.cos(turn),
                *weekday,
            ]
        )
    return np.array(rows)


@pytest.mark.parametrize("written", ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d %b %Y", "%Y/%m/%d"])
def test_dates_become_the_numbers_of_the_calendar(tmp_path, written):
    source = table(tmp_path, [day.strftime(written) for day in DAYS])
    found = fitted(source).split(source).x
    np.testing.assert_allclose(found.numpy(), by_hand(DAYS), rtol=1e-5, atol=1e-6)


def test_a_time_of_day_adds_its_sine_and_cosine(tmp_path):
    days = [day.replace(hour=6 * place, minute=30) for place, day in enumerate(DAYS)]
    source = table(tmp_path, [day.isoformat() for day in days])
    found = fitted(source).split(source).x.numpy()
    turns = [2 * math.pi * (6 * place + 0.5) / 24 for place in range(4)]
    np.testing.assert_allclose(found[:, :12], by_hand(days), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[:, 12], np.sin(turns), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[:, 13], np.cos(turns), rtol=1e-5, atol=1e-6)


def test_csv_and_parquet_give_the_same_numbers_and_read_each_other(tmp_path):
    csv = table(tmp_path, [day.strftime("%d.%m.%Y") for day in DAYS])
    parquet = table(tmp_path, pd.Series(DAYS), "a.parquet")
    first, second = fitted(csv), fitted(parquet)
    expected = first.split(csv).x
    for preparation, source in [(second, parquet), (first, parquet)]:
        torch.testing.assert_close(preparation.split(source).x, expected, rtol=0, atol=0)


def test_a_missing_date_is_zeros_and_says_so(tmp_path):
    source = table(tmp_path, ["2020-01-01", None, "2020-01-03", "2020-01-05"])
    found = fitted(source).split(source).x
    assert found[1].tolist() == [0.0] * 12 + [1.0]
    assert found[[0, 2, 3], -1].tolist() == [0.0] * 3


def test_dates_survive_json_and_are_read_as_at_training(tmp_path):
    source = table(tmp_path, ["25.02.2020", "04.03.2020", "05.06.2021", "07.08.2021"])
    preparation = fitted(source)
    again = preparation_from_json(json.loads(json.dumps(preparation.to_json())))
    assert again == preparation
    new = table(tmp_path, ["01.02.2020", "02.02.2020"], "new.csv")  # could be January too
    month = again.split(new).x[:, 2]
    torch.testing.assert_close(month, torch.full((2,), (2 - 6.5) / math.sqrt(143 / 12)))
    assert preparation.facts()["dates"] == {"when": "%d.%m.%Y"}


@pytest.mark.parametrize(
    "change", [{"format": "%H"}, {"std": 0.0}, {"year_std": -1.0}, {"year_mean": None}]
)
def test_a_damaged_date_column_is_refused(tmp_path, change):
    values = fitted(table(tmp_path, ["2020-01-01", "2020-01-03"])).to_json()
    values["columns"][0] |= change
    with pytest.raises(UserError, match="damaged"):
        preparation_from_json(values)


def test_a_cell_that_is_no_date_names_column_row_and_cell(tmp_path):
    preparation = fitted(table(tmp_path, ["2020-01-01", "2020-01-03"]))
    bad = table(tmp_path, ["2020-01-01", "soon"], "bad.csv")
    with pytest.raises(UserError, match=r"'when' has 'soon' in row 1 .* dates such as 2024-01-31"):
        preparation.split(bad)


@pytest.mark.parametrize(
    "cells",
    [["Oslo", "Rome"], ["10.1.12", "10.1.13"], ["12:30", "13:30"], ["2012-1", "2012-2"],
     ["1200-05", "1300-06"], ["1990-1995", "1995-2000"], ["a-1-2020", "b-2-2020"],
     ["2020-01-01", "Rome"], ["2020-13-45", "2020-14-45"]],
)  # fmt: skip
def test_words_stay_words(tmp_path, cells):
    assert not isinstance(fitted(table(tmp_path, cells)).columns[0], DateColumn)


def test_dates_can_be_taken_as_categories(tmp_path):
    source = table(tmp_path, ["2020-01-01", "2020-01-03"])
    assert fitted(source, categorical=("when",)).split(source).x.tolist() == [[1, 0], [0, 1]]


def test_every_format_is_found_again():
    day = pd.Series([datetime(2023, 12, 31, 23, 59, 58), datetime(2024, 1, 1, 1, 2, 3)])
    for way in FORMATS:
        cells = day.dt.strftime("%Y-%m-%dT%H:%M:%S" if way == ISO else way)
        assert way in formats_of(cells.astype("str"))


def test_dates_where_numbers_were_learned_are_refused(tmp_path):
    source = table(tmp_path, pd.Series(DAYS[:2]), "a.parquet")
    number = {"kind": "number", "name": "when", "mean": 0.0, "std": 86400.0, "indicator": False}
    values = fitted(source).to_json() | {"columns": [number]}
    with pytest.raises(UserError, match=r"'when' has .* but it is a column of finite numbers"):
        preparation_from_json(values).split(source)


def test_a_season_is_learned_from_dates_alone(tmp_path):
    """A linear model on the numbers tells summer from winter; one-hot days could not."""
    from sklearn.linear_model import LogisticRegression

    days = pd.date_range("2020-01-01", "2023-12-31", freq="5D")
    summer = np.where(days.month.isin([4, 5, 6, 7, 8, 9]), "b", "a")
    frame = pd.DataFrame({"when": days.strftime("%Y-%m-%d"), "y": summer})
    frame.to_csv(tmp_path / "season.csv", index=False)
    task = prepare(open_source(tmp_path / "season.csv", target="y"), seed=0).task
    train, test = (
        split.batch(torch.arange(len(split))) for split in (task.train, task.tests["test"])
    )
    model = LogisticRegression().fit(train.x, train.y)
    assert model.score(test.x, test.y) > 0.95
