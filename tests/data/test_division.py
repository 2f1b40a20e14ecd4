"""Rows divided into splits: by class, by group, by time, and graphs by size or degree."""

import json
import shutil
from collections import Counter
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hma.data import PreparationOptions, builtin, open_source, preparation_from_json, prepare
from hma.data.division import by_class, by_group, by_time, quotas
from hma.data.graph.source import GraphSource
from hma.data.graph.store import starts_of
from hma.data.prepared import prepare_splits
from hma.errors import UserError

class_sizes = st.lists(st.integers(2, 60), min_size=2, max_size=6)
shares = st.sampled_from([(0.15, 0.2), (0.1, 0.1), (0.4, 0.4), (0.25, 0.0), (0.05, 0.9)])
SHARES = {"validation": 0.15, "test": 0.2}
PUBLISHED = {  # train and validation together, test: graphs in the papers on size shift
    "PROTEINS": (511, 56, 112),
    "NCI1": (1942, 215, 412),
    "NCI109": (1872, 207, 421),
    "DD": (533, 59, 118),
}


def labels_of(sizes):
    return torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])


@given(class_sizes, shares, st.integers(0, 2**31))
def test_every_row_is_in_one_split_and_every_class_in_train(sizes, share, seed):
    labels = labels_of(sizes)
    validation, test = share
    try:
        parts = by_class(labels, seed, validation=validation, test=test)
    except UserError as error:
        assert "too few" in str(error)  # noqa: PT017
        wanted = [int(len(labels) * each + 0.5) for each in share if each]
        assert min(wanted) == 0 or sum(wanted) > len(labels) - len(sizes)
        return
    rows = [row for part in parts.values() for row in part]
    assert sorted(rows) == list(range(len(labels)))
    assert set(labels[parts["train"]].tolist()) == set(range(len(sizes)))
    assert list(parts) == ["train", "validation", "test"][: 3 if test else 2]


@given(st.lists(st.integers(20, 200), min_size=2, max_size=6), shares)
def test_every_class_gives_its_share_to_within_one_row(sizes, share):
    labels = labels_of(sizes)
    parts = by_class(labels, 0, validation=share[0], test=share[1])
    for name, wanted in zip(("validation", "test"), share, strict=True):
        counts = Counter(labels[parts.get(name, [])].tolist())
        for label, size in enumerate(sizes):
            assert abs(counts[label] - wanted * size) < 1 + 1e-9
        assert abs(sum(counts.values()) - wanted * len(labels)) <= 0.5 + 1e-9


@given(class_sizes, st.floats(0.0, 0.9))
def test_quotas_never_exceed_the_room(sizes, share):
    counts = torch.tensor(sizes)
    found = quotas(counts, share, room=counts - 1)
    assert bool((found <= counts - 1).all())
    assert bool((found >= 0).all())


def test_the_seed_decides_and_nothing_else():
    labels = labels_of([30, 50])
    first = by_class(labels, 7, validation=0.2, test=0.2)
    torch.manual_seed(99)
    assert by_class(labels, 7, validation=0.2, test=0.2) == first
    assert by_class(labels, 8, validation=0.2, test=0.2) != first


def test_training_rows_are_mixed_and_all_others_as_in_the_file():
    labels = labels_of([50, 50])
    parts = by_class(labels, 0, validation=0.2, test=0.2)
    train = parts.pop("train")
    assert int((labels[train].diff() != 0).sum()) > len(train) // 4
    for rows in parts.values():
        assert rows == sorted(rows)


@pytest.mark.parametrize(("validation", "test"), [(0.0, 0.2), (0.5, 0.5), (-0.1, 0.2), (0.2, -0.1)])
def test_impossible_shares_are_refused(validation, test):
    with pytest.raises(UserError, match=r"validation must be above 0.*got"):
        by_class(labels_of([9, 9]), 0, validation=validation, test=test)


def test_too_few_rows_are_refused():
    with pytest.raises(UserError, match=r"4 rows are too few: none is left for validation"):
        by_class(labels_of([2, 2]), 0, validation=0.01, test=0.2)


@pytest.fixture
def source(tmp_path):
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=generator.normal(size=(60, 3)), y=np.arange(60) % 3)
    return open_source(tmp_path / "a.npz")


def test_sample_ids_lead_back_to_rows_of_the_source(source):
    prepared = prepare(source, seed=4)
    raw = prepared.preparation.split(source)
    splits = {"train": prepared.task.train, "validation": prepared.task.validation}
    for name, split in (splits | dict(prepared.task.tests)).items():
        batch = split.batch(torch.arange(len(split)))
        rows = [prepared.places[name][sample] for sample in batch.ids.tolist()]
        torch.testing.assert_close(batch.x, raw.x[rows], rtol=0, atol=0)
        assert batch.y.tolist() == [row % 3 for row in rows]


def test_facts_say_how_the_splits_came_about(source):
    task = prepare(source, seed=4).task
    facts = json.loads(json.dumps(task.facts))
    assert facts["split"] == (
        "stratified by class, by seed: 65% train, 15% validation, 20% test; every class in train"
    )
    assert facts["seed"] == 4
    assert facts["rows"] == {"train": 39, "validation": 9, "test": 12}
    assert facts["fingerprint"] == source.fingerprint()
    assert facts["preparation"]["numbers"] == ["x0", "x1", "x2"]


def test_without_a_test_share_there_is_no_test(source):
    prepared = prepare(source, seed=0, test=0.0)
    assert dict(prepared.task.tests) == {}
    assert sorted(prepared.places) == ["train", "validation"]


def test_splits_can_be_given(source):
    places = {"train": range(30), "validation": range(30, 40), "late": range(40, 60)}
    prepared = prepare_splits(
        source, places, classes=("0", "1", "2"), seed=0, facts={"split": "by time"}
    )
    assert list(prepared.task.tests) == ["late"]
    assert prepared.places["late"] == list(range(40, 60))
    assert prepared.task.facts["split"] == "by time"


def test_options_for_another_kind_are_refused(source):
    with pytest.raises(UserError, match=r"image_size is for data of kind 'image'"):
        prepare(source, seed=0, options=PreparationOptions(image_size=8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "format 99, this version of hma reads 1"),
        ({"kind": "sound"}, "unknown kind, 'sound'"),
        ({"columns": [{"kind": "number", "mean": 1}]}, "damaged"),
        ({"columns": [{"kind": "colour", "name": "a"}]}, "unknown kind, 'colour'"),
        ({"classes": None}, "damaged"),
    ],
)
def test_a_preparation_of_another_version_is_refused(source, change, message):
    values = prepare(source, seed=0).preparation.to_json()
    with pytest.raises(UserError, match=message):
        preparation_from_json(values | change)


def test_a_preparation_with_a_part_missing_is_refused(source):
    values = prepare(source, seed=0).preparation.to_json()
    for name in set(values) - {
        "format",
        "labels",
        "label_columns",
        "dropped",
    }:  # not always written
        with pytest.raises(UserError, match=r"damaged|unknown kind"):
            preparation_from_json({key: value for key, value in values.items() if key != name})


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
    oracle = by_class(labels, 0, **SHARES)
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
        (lambda part: part[:0], r"b.csv has names of columns \(.*\) and no rows"),
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


class Paths(GraphSource):
    """Undirected paths: as many nodes as said, and every edge in both directions."""

    def __init__(self, sizes, labels):
        self.name = "paths"
        self.labels = list(labels)
        self.nodes_before = starts_of(torch.tensor(sizes))
        ends = [torch.arange(size - 1) for size in sizes]
        edges = [torch.stack([torch.cat([e, e + 1]), torch.cat([e + 1, e])]) for e in ends]
        self.edges = torch.cat(edges, dim=1)
        self.edges_before = starts_of(torch.tensor([one.shape[1] for one in edges]))

    def fingerprint(self):
        return "paths"


def paths(count=200, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    return Paths(rng.integers(1, 30, count).tolist(), [f"c{i % classes}" for i in range(count)])


def by_loop(source, shift):
    """Return the graphs of train and validation together, of test, and of those between."""
    sizes = [int(n) for n in source.nodes_before.diff()]
    edges = [int(n) for n in source.edges_before.diff()]
    values = sizes if shift == "size" else [e / n for e, n in zip(edges, sizes, strict=True)]
    cut = {p: np.percentile(values, p) for p in (20, 50, 80, 90)}
    parts = {"learned": set(), "between": set(), "test": set()}
    for place, value in enumerate(values):
        if shift == "size":
            name = "learned" if value <= cut[50] else "test" if value >= cut[90] else None
        elif edges[place] <= 2:
            name = None
        elif shift == "degree":
            name = "learned" if value <= cut[50] else "test" if value > cut[80] else "between"
        else:
            name = "learned" if value > cut[50] else "test" if value <= cut[20] else "between"
        if name:
            parts[name].add(place)
    return parts


@pytest.mark.parametrize("shift", ["size", "degree", "degree-reversed"])
def test_every_graph_lands_where_a_loop_puts_it(shift):
    source = paths(201)  # an odd number, so that some graph lies right at the median
    prepared = prepare(source, seed=3, shift=shift)
    oracle, places = by_loop(source, shift), {n: set(p) for n, p in prepared.places.items()}
    assert list(prepared.task.tests) == ["test"]
    assert places["test"] == oracle["test"]
    if shift == "size":
        assert places["train"] | places["validation"] == oracle["learned"]
        assert len(places["validation"]) == len(oracle["learned"]) // 10
    else:
        assert places["train"] == oracle["learned"]
        assert places["validation"] <= oracle["between"]
        assert len(places["validation"]) == min(20, len(oracle["between"]))
    assert not places["train"] & places["validation"]


def test_validation_has_the_classes_of_what_it_is_drawn_from_and_hangs_on_the_seed():
    source = paths(400)
    drawn = [prepare(source, seed=seed, shift="size").places for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert drawn[0]["validation"] != drawn[2]["validation"]
    assert drawn[0]["test"] == drawn[2]["test"]
    learned = [*drawn[0]["train"], *drawn[0]["validation"]]
    share = np.mean([source.labels[place] == "c0" for place in learned])
    found = sum(source.labels[place] == "c0" for place in drawn[0]["validation"])
    assert abs(found - share * len(drawn[0]["validation"])) <= 1


def test_facts_say_where_the_cuts_lie_and_what_each_part_holds():
    source = paths()
    prepared = prepare(source, seed=0, shift="size")
    shift = prepared.task.facts["shift"]
    sizes = source.nodes_before.diff().numpy()
    assert shift["cuts"] == np.percentile(sizes, [50, 90]).tolist()
    for name, places in prepared.places.items():
        held = [source.labels[place] for place in places]
        assert shift["graphs"][name] == {"c0": held.count("c0"), "c1": held.count("c1")}
    assert shift["in no split"] == len(source) - sum(map(len, prepared.places.values()))


def test_degree_features_are_those_of_the_training_graphs():
    sizes = [2, 3, 4, 5, 6, 7, 8, 9] * 4
    prepared = prepare(Paths(sizes, "ab" * 16), seed=0, shift="degree")
    assert prepared.preparation.degrees == 3  # ends and inner nodes: degree 1 and 2


@pytest.mark.parametrize(
    ("sizes", "labels", "shift", "said"),
    [
        ([3, 4, 5, 6, 7, 8, 9, 10], "aaaabbbb", "size",
         "no training graph of 'b' of paths, graphs by class are: train 'a' 4, 'b' 0; test 'a' 0, "
         "'b' 1"),
        ([5] * 8, "abababab", "degree", "no graph for validation"),
        ([2] * 8, "abababab", "degree", "no graph for train"),
        ([5] * 8, "abababab", "weight", "shift must be one of 'size', 'degree', 'degree-reversed'"),
    ],
)  # fmt: skip
def test_a_division_that_cannot_be_learned_from_is_refused_with_counts(sizes, labels, shift, said):
    with pytest.raises(UserError, match=said) as raised:
        prepare(Paths(sizes, labels), seed=0, shift=shift)
    assert "\n" not in str(raised.value)


def test_a_shift_is_for_graphs_and_decides_all_splits(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(40, 3)), y=[0, 1] * 20)
    table = open_source(tmp_path / "a.npz")
    with pytest.raises(UserError, match="shift is for graphs, got 'size' with a"):
        prepare(table, seed=0, shift="size")
    with pytest.raises(UserError, match="shift decides validation and test together"):
        prepare(paths(), seed=0, shift="size", test=paths())
    with pytest.raises(UserError, match="by time or by shift, not by both"):
        prepare(paths(), seed=0, shift="size", time="day")


@pytest.mark.data
@pytest.mark.parametrize("name", PUBLISHED)
def test_size_shift_has_the_published_counts(data_root, name):
    prepared = builtin(f"tu:{name}", seed=1, data_root=data_root, shift="size")
    found = tuple(len(prepared.places[part]) for part in ("train", "validation", "test"))
    assert found == PUBLISHED[name]
