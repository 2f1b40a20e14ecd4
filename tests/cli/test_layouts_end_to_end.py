"""Tables and folders as they come: dates, splits that are given, groups, columns left out."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hma.data import open_source
from hma.io.json_files import read_json
from hma.training import Record

QUICK = ["--epochs", "1", "--memory-size", "16", "--slots-per-class", "1", "--no-report"]


def weather(rows=120):
    generator = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=rows, freq="7D")
    return pd.DataFrame(
        {
            "id": [f"r{place}" for place in range(rows)],
            "day": days.strftime("%d.%m.%Y"),
            "wind": generator.normal(size=rows).round(2),
            "station": generator.integers(0, 12, rows),
            "y": np.where(days.month.isin(range(4, 10)), "1", "0"),
        }
    )


@pytest.fixture
def table(tmp_path):
    weather().to_csv(tmp_path / "weather.csv", index=False)
    return tmp_path / "weather.csv"


def facts_of(run):
    return Record.read(run / "memory" / "record.json").setup["task"]["facts"]


def test_a_table_as_it_comes_is_trained_on_and_predicted(table, run_hma, tmp_path):
    frame = weather()
    frame.loc[[5, 6], "y"] = None
    frame.to_csv(table, index=False)
    run = tmp_path / "run"
    ended = run_hma("train", table, "--target", "y", "--skip-missing-labels", "--group", "station",
                    "--no-compare", *QUICK, "-o", run)  # fmt: skip
    assert ended.code == 0, ended.err
    said = " ".join(ended.out.split())
    assert "left out 2 rows without a label" in said
    note = "column 'id': a new value in every row, an id or a name? leave it out with --drop id"
    assert f"note: {note}" in said
    facts = facts_of(run)
    assert facts["suspicious columns"] == [note]
    assert facts["groups"]["column"] == "station"
    kinds = {c["name"]: c["kind"] for c in read_json(run / "preparation.json", dict)["columns"]}
    assert kinds == {"id": "category", "day": "date", "wind": "number"}
    new = weather().assign(y="1.0", extra=3)
    new.loc[0, "y"] = None
    new.to_csv(tmp_path / "new.csv", index=False)
    scored = run_hma("evaluate", run, tmp_path / "new.csv", "--skip-missing-labels")
    assert "119 rows of" in scored.out
    assert "left out 1 rows without a label" in scored.out
    ended = run_hma("predict", run, tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert "ignored column 'extra', which the training table does not have" in ended.out
    assert len(pd.read_csv(tmp_path / "out.csv")) == 120


def test_splits_are_given_as_files_and_the_report_follows(table, run_hma, refuses, tmp_path):
    frame = weather().drop(columns="id")
    for name, rows in [("a", slice(0, 70)), ("b", slice(70, 95)), ("c", slice(95, 120))]:
        frame[rows].to_csv(tmp_path / f"{name}.csv", index=False)
    files = [tmp_path / f"{name}.csv" for name in "abc"]
    run = tmp_path / "run"
    options = ["--train", files[0], "--validation", files[1], "--test", files[2]]
    ended = run_hma("train", *options, "--target", "y", "--no-compare", *QUICK, "-o", run)
    assert ended.code == 0, ended.err
    assert "rows 70 train, 25 validation, 25 test" in " ".join(ended.out.split())
    assert facts_of(run)["given"]["test"]["source"] == "c.csv"
    assert run_hma("report", run, "-o", tmp_path / "page.html").code == 0
    frame[:20].to_csv(files[2], index=False)
    changed = refuses("report", run, "-o", tmp_path / "again.html")
    assert "data to validate or test on has changed since" in changed


def test_shares_are_still_shares(table, run_hma, tmp_path):
    run = tmp_path / "run"
    ended = run_hma("train", table, "--target", "y", "--validation", "0.25", "--test", "0.25",
                    "--time", "day", "--drop", "id", "--drop", "station", "--no-compare", *QUICK,
                    "-o", run)  # fmt: skip
    assert ended.code == 0, ended.err
    assert "note:" not in ended.out
    facts = facts_of(run)
    assert facts["rows"] == {"train": 60, "validation": 30, "test": 30}
    assert facts["time"]["test"] == [weather().day[90], weather().day[119]]
    assert facts["preparation"]["dropped"] == ["id", "station"]


def test_folders_of_splits_are_trained_on_and_tell_where_to_evaluate(run_hma, refuses, tmp_path):
    pictures = tmp_path / "flowers"
    for name in ("train", "val", "test"):
        for place, flower in enumerate(("rose", "tulip")):
            folder = pictures / name / flower
            folder.mkdir(parents=True)
            for number in range(4):
                Image.new("L", (8, 8), 200 * place + number).save(folder / f"{number}.png")
    run = tmp_path / "run"
    ended = run_hma("train", pictures, "--image-size", "8", "--no-compare", *QUICK, "-o", run)
    assert ended.code == 0, ended.err
    assert facts_of(run)["rows"] == {"train": 8, "validation": 8, "test": 8}
    said = refuses("evaluate", run, pictures)
    assert f"{pictures} holds splits; give one of them, such as {pictures}/val" in said
    assert run_hma("evaluate", run, pictures / "test").code == 0
    explained = run_hma("explain", run, pictures / "test", "--index", "0")
    assert explained.code == 0, explained.err
    assert "rose/" in explained.out
    assert open_source(pictures / "train").name == "flowers"


def test_a_run_on_a_training_split_is_named_after_its_folder(table, run_hma, tmp_path, monkeypatch):
    (tmp_path / "weather").mkdir()
    monkeypatch.chdir(tmp_path)
    pd.read_csv(table).to_csv("weather/train.csv", index=False)
    options = ["--target", "y", "--no-compare", *QUICK]
    ended = run_hma("train", "--train", "weather/train.csv", *options)
    assert ended.code == 0, ended.err
    assert [path.name for path in Path("runs").iterdir()] == ["weather"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--validation", "nowhere.csv"], "--validation must be a share of the rows such as"),
        (["--group", "wind", "--time", "day"], "by group or by time, not by both"),
        (["--drop", "y"], "drop names the target 'y'"),
        (["--validation", "1.5"], "validation must be above 0"),
    ],
)
def test_what_cannot_be_is_one_line(table, refuses, tmp_path, options, message):
    assert message in refuses("train", table, "--target", "y", *options, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_built_in_data_keeps_its_splits(refuses, tmp_path):
    said = refuses("train", "digits:10", "--group", "who", "-o", tmp_path / "run")
    assert "digits:10 comes in splits of its own; leave --group who out" in said
