"""Splits that are given, or drawn by group or time."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hma.data import open_source, prepare
from hma.data.splitting import by_group, by_time, stratified
from hma.errors import UserError

SHARES = {"validation": 0.15, "test": 0.2}


def visits(rows=240, patients=40):
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "patient": generator.permutation(np.arange(rows) % patients),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.permutation(rows), "D"),
            "x": generator.normal(size=rows).round(3),
            "y": np.where(np.arange(rows) % 3 == 0, "ill", "well"),
        }
    )


def opened(folder, frame, name="a.csv"):
    frame.to_csv(folder / name, index=False)
    return open_source(folder / name, target="y")


# ----------------------------------------------------------------------------------- groups


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 15)), min_size=8, max_size=120),
    st.integers(0, 9),
    st.sampled_from([(0.15, 0.2), (0.3, 0.3), (0.25, 0.0)]),
)
def test_no_group_is_in_two_splits_and_every_class_in_train(rows, seed, share):
    labels, groups = (torch.tensor(part) for part in zip(*rows, strict=True))
    groups = groups.unique(return_inverse=True)[1]
    try:
        parts = by_group(labels, groups, seed, validation=share[0], test=share[1])
    except UserError as error:
        assert "groups are too few" in str(error)  # noqa: PT017
        return
    assert sorted(row for part in parts.values() for row in part) == list(range(len(labels)))
    assert list(parts) == ["train", "validation", "test"][: 3 if share[1] else 2]
    within = [set(groups[part].tolist()) for part in parts.values()]
    assert sum(map(len, within)) == len(set(groups.tolist()))
    assert all(within)
    assert set(labels[parts["train"]].tolist()) == set(labels.tolist())


def test_groups_of_one_row_are_divided_as_well_as_single_rows():
    labels = torch.tensor([0] * 120 + [1] * 60 + [2] * 20)
    parts = by_group(labels, torch.arange(200), 0, **SHARES)
    oracle = stratified(labels, 0, **SHARES)
    for name, rows in oracle.items():
        wanted, found = (torch.bincount(labels[part], minlength=3) for part in (rows, parts[name]))
        assert (wanted - found).abs().max() <= 1


def test_groups_of_many_sizes_keep_classes_near_their_shares():
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(0, 60, (1000,), generator=generator).unique(return_inverse=True)[1]
    labels = torch.randint(0, 3, (1000,), generator=generator)
    parts = by_group(labels, groups, 0, **SHARES)
    for name, share in SHARES.items():
        counts = torch.bincount(labels[parts[name]], minlength=3) / torch.bincount(labels)
        assert (counts - share).abs().max() < 0.05


def test_a_group_column_is_not_learned_from_and_recorded(tmp_path):
    frame = visits()
    prepared = prepare(opened(tmp_path, frame), seed=0, group="patient")
    facts = json.loads(json.dumps(prepared.task.facts))
    said = {n: frame.patient.iloc[rows].nunique() for n, rows in prepared.places.items()}
    assert facts["groups"] == {"column": "patient", **said}
    assert "every value of 'patient' wholly in one split" in facts["split"]
    assert facts["preparation"]["dropped"] == ["patient"]
    assert "patient" not in facts["preparation"]["numbers"]


# ------------------------------------------------------------------------------------- time


@given(st.lists(st.integers(0, 40), min_size=3, max_size=80), st.sampled_from([0.0, 0.2]))
def test_no_training_row_is_later_than_one_to_validate_or_test_on(times, test):
    moments = np.array(times, dtype=float)
    try:
        parts = by_time(moments, 0, validation=0.2, test=test)
    except UserError as error:
        assert len(set(times)) < (3 if test else 2), str(error)  # noqa: PT017
        return
    assert sorted(row for part in parts.values() for row in part) == list(range(len(times)))
    spans = [moments[rows] for rows in parts.values()]
    for earlier, later in pairwise(spans):
        assert earlier.max() < later.min()


def test_distinct_times_are_cut_at_the_shares():
    parts = by_time(np.arange(100.0)[::-1], 0, **SHARES)
    assert parts["test"] == list(range(20))
    assert parts["validation"] == list(range(20, 35))
    assert sorted(parts["train"]) == list(range(35, 100))
    assert parts["train"] != sorted(parts["train"])


@pytest.mark.parametrize("written", ["%Y-%m-%d", "%d.%m.%Y", None])
def test_the_latest_rows_are_tested_on(tmp_path, written):
    frame = visits()
    days = frame.day
    number = (days - days.min()).dt.days + 0.5
    source = opened(tmp_path, frame.assign(day=days.dt.strftime(written) if written else number))
    prepared = prepare(source, seed=0, time="day")
    order = np.argsort(days.to_numpy())
    assert sorted(prepared.places["train"]) == sorted(order[:156].tolist())
    assert sorted(prepared.places["test"]) == sorted(order[192:].tolist())
    ends = prepared.task.facts["time"]
    assert ends["train"][0] == str(source.frame.day.iloc[order[0]])
    assert ends["test"] == [str(source.frame.day.iloc[order[place]]) for place in (192, 239)]


# ------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("change", "how", "message"),
    [
        ({"patient": "one"}, {"group": "patient"}, "'patient' of a.csv has the same value in all"),
        ({"patient": None}, {"group": "patient"}, "has no value in 240 of 240 rows"),
        ({}, {"group": "pateint"}, "group: a.csv has no column 'pateint'; did you mean 'patient'"),
        ({}, {"group": "y"}, "group names the target 'y'"),
        ({"patient": ["p", "q"] * 120}, {"group": "patient"}, "2 groups are too few: none is left"),
        ({}, {"group": "patient", "time": "day"}, "by group or by time, not by both"),
        ({"day": ["2020-01-01"] * 239 + ["soon"]}, {"time": "day"}, "'soon' in row 239 .* no time"),
        ({"day": ["1"] * 200 + [None] * 40}, {"time": "day"}, "'day' has nothing in row 200"),
        ({"day": "2020-01-01"}, {"time": "day"}, "1 different times are too few for 3 splits"),
        ({"y": ["a"] * 120 + ["b"] * 120, "day": range(240)}, {"time": "day", "test": 0.6},
         "class 'b' would have no training row"),
        ({}, {"time": "hour"}, "time: a.csv has no column 'hour'"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_divided_so_are_refused(tmp_path, change, how, message):
    source = opened(tmp_path, visits().assign(**change))
    with pytest.raises(UserError, match=message) as error:
        prepare(source, seed=0, **how)
    assert "\n" not in str(error.value)


def test_groups_and_times_are_for_tables(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.arange(20) % 2)
    with pytest.raises(UserError, match=r"group is for tables, got 'who' with a.npz"):
        prepare(open_source(tmp_path / "a.npz"), seed=0, group="who")


# -------------------------------------------------------------------------------------- files


def test_splits_are_given_as_files(tmp_path):
    frame = visits()
    parts = {"train": frame[:150], "validation": frame[150:190], "test": frame[190:]}
    sources = {name: opened(tmp_path, part, f"{name}.csv") for name, part in parts.items()}
    train = sources.pop("train")
    prepared = prepare(train, seed=0, **sources)
    task = prepared.task
    assert task.facts["rows"] == {"train": 150, "validation": 40, "test": 50}
    assert task.facts["split"] == "as given"
    assert task.facts["given"] == {
        name: {"source": f"{name}.csv", "fingerprint": source.fingerprint()}
        for name, source in sources.items()
    }
    mean, std = parts["train"].x.mean(), parts["train"].x.std(ddof=0)
    place = 1 + 12  # after the patient and the day
    for name, split in (("train", task.train), ("test", task.tests["test"])):
        rows = split.batch(torch.arange(len(split)))
        expected = (parts[name].x - mean) / std
        np.testing.assert_allclose(rows.x[:, place], expected, rtol=1e-4, atol=1e-5)
        assert [task.classes[y] for y in rows.y] == parts[name].y.tolist()


@pytest.mark.parametrize(("given", "drawn"), [("test", "validation"), ("validation", "test")])
def test_a_split_that_is_not_given_is_drawn_from_the_training_rows(tmp_path, given, drawn):
    frame = visits()
    train, other = opened(tmp_path, frame[:200]), opened(tmp_path, frame[200:], "b.csv")
    prepared = prepare(train, seed=0, group="patient", **{given: other, drawn: 0.25})
    rows = prepared.places
    said = f"25% {drawn}; {given} as given"
    assert prepared.task.facts["split"].endswith(said)
    assert len(rows[given]) == 40
    assert len(rows["train"]) + len(rows[drawn]) == 200
    assert 40 <= len(rows[drawn]) <= 60
    train_groups, drawn_groups = (set(frame.patient.iloc[rows[n]]) for n in ("train", drawn))
    assert not train_groups & drawn_groups


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part.assign(y="dead"), "b.csv, given for test: label 'dead' was not among"),
        (lambda part: part.drop(columns="x"), "b.csv has other columns .* it lacks 'x'"),
        (lambda part: part[:0], "b.csv, given for test, has no labelled row"),
    ],
)
def test_a_split_of_another_make_is_refused(tmp_path, change, message):
    frame = visits()
    other = opened(tmp_path, change(frame[200:]), "b.csv")
    with pytest.raises(UserError, match=message) as error:
        prepare(opened(tmp_path, frame[:200]), seed=0, test=other)
    assert "\n" not in str(error.value)


def test_a_split_of_another_kind_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"digits holds rows of kind 'image', but .* 'table'"):
        prepare(opened(tmp_path, visits()), seed=0, test=open_source("digits"))


def test_groups_have_no_say_where_all_splits_are_given(tmp_path):
    train, other = opened(tmp_path, visits()), opened(tmp_path, visits(), "b.csv")
    with pytest.raises(UserError, match="all splits are given"):
        prepare(train, seed=0, validation=other, test=other, group="patient")


# ------------------------------------------------------------------------------------ folders


@pytest.fixture
def pictures(tmp_path):
    """Brightness says the split, so that rows can be told apart."""
    for place, name in enumerate(["train", "valid", "test"]):
        for flower in ("rose", "tulip"):
            folder = tmp_path / "flowers" / name / flower
            folder.mkdir(parents=True)
            for number in range(3 + place):
                Image.new("L", (8, 8), 10 + 100 * place).save(folder / f"{number}.png")
    return tmp_path / "flowers"


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_folders_of_splits_are_the_splits(pictures, validation):
    (pictures / "valid").rename(pictures / validation)
    prepared = prepare(open_source(pictures), seed=0)
    task = prepared.task
    assert task.name == "flowers"
    assert task.classes == ("rose", "tulip")
    assert task.facts["rows"] == {"train": 6, "validation": 8, "test": 10}
    assert task.facts["given"]["validation"]["source"] == validation
    scale = prepared.preparation
    for split, brightness in [(task.train, 10), (task.validation, 110), (task.tests["test"], 210)]:
        x = split.batch(torch.arange(len(split))).x
        expected = (brightness / 255 - scale.mean[0]) / scale.std[0]
        torch.testing.assert_close(x, torch.full_like(x, expected), rtol=1e-4, atol=1e-4)


def test_a_folder_without_validation_draws_it_from_train(pictures):
    shutil.rmtree(pictures / "valid")
    rows = prepare(open_source(pictures), seed=0, validation=0.34).task.facts["rows"]
    assert rows == {"train": 4, "validation": 2, "test": 10}


def test_classes_called_train_and_test_stay_classes(tmp_path):
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        for number in range(10):
            Image.new("L", (8, 8), number).save(tmp_path / name / f"{number}.png")
    assert prepare(open_source(tmp_path), seed=0).task.classes == ("test", "train")


def test_folders_that_are_no_splits_are_named(pictures):
    (pictures / "extra").mkdir()
    with pytest.raises(UserError, match=r"flowers/extra is one too many: beside train"):
        open_source(pictures)
    (pictures / "extra").rename(pictures / "val")
    with pytest.raises(UserError, match=r"flowers/val(id)? is one too many"):
        open_source(pictures)


def test_a_test_folder_without_classes_goes_to_predict(pictures):
    shutil.rmtree(pictures / "test")
    (pictures / "test").mkdir()
    Image.new("L", (8, 8)).save(pictures / "test" / "0.png")
    with pytest.raises(UserError, match=r"test holds images without classes .*hma predict"):
        open_source(pictures)


def test_a_class_without_training_folder_is_refused(pictures):
    (pictures / "test" / "tulip").rename(pictures / "test" / "lily")
    with pytest.raises(UserError, match=r"test, given for test: label 'lily' was not among"):
        prepare(open_source(pictures), seed=0)
