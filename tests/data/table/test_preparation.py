"""CSV and Parquet against what pandas and scikit-learn make of them."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

from hma.data import PreparationOptions, open_source, preparation_from_json, prepare
from hma.data.labels import class_names
from hma.data.preparation import Selection
from hma.data.table.preparation import TablePreparation
from hma.errors import UserError
from hma.targets import Classes

PEOPLE = """age,city,score,note,y
31,Oslo,1.5,,yes
,Bergen,2.5,,no
44,,3.5,,yes
27,Oslo,0.5,,no
"""


def written(folder, text, name="people.csv"):
    file = folder / name
    file.write_text(text)
    return file


def fitted(source, places=None, **options):
    places = list(range(len(source))) if places is None else places
    return TablePreparation.fit(
        Selection(source, places),
        class_names(source.labels),
        Classes(len(set(source.labels))),
        PreparationOptions(**options),
    )


def breast_cancer():
    bunch = load_breast_cancer(as_frame=True)
    return bunch.data.assign(diagnosis=bunch.target.map({0: "malignant", 1: "benign"}))


@pytest.mark.parametrize("ending", ["csv", "parquet", "csv.gz"])
def test_breast_cancer_is_standardised_by_its_training_rows(tmp_path, ending):
    frame = breast_cancer()
    file = tmp_path / f"cancer.{ending}"
    if ending == "parquet":
        frame.to_parquet(file)
    else:
        frame.to_csv(file, index=False)
    source = open_source(file, target="diagnosis")
    prepared = prepare(source, seed=3)
    assert source.kind == "table"
    assert prepared.task.classes == ("benign", "malignant")
    assert prepared.task.shape == (30,)
    numbers = frame.drop(columns="diagnosis")
    train = numbers.iloc[prepared.places["train"]]
    for name, split in [("train", prepared.task.train), ("test", prepared.task.tests["test"])]:
        rows = numbers.iloc[prepared.places[name]]
        expected = ((rows - train.mean()) / train.std(ddof=0)).to_numpy(np.float32)
        batch = split.batch(torch.arange(len(split)))
        np.testing.assert_allclose(batch.x.numpy(), expected, rtol=1e-4, atol=1e-5)
        labels = frame.diagnosis.iloc[prepared.places[name]].tolist()
        assert [prepared.task.classes[y] for y in batch.y.tolist()] == labels


def test_csv_and_parquet_of_one_table_prepare_alike(tmp_path):
    frame = breast_cancer()
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    first, second = (
        prepare(open_source(tmp_path / name, target="diagnosis"), seed=0)
        for name in ("a.csv", "a.parquet")
    )
    assert first.places == second.places
    everything = torch.arange(len(first.task.train))
    torch.testing.assert_close(
        first.task.train.batch(everything).x, second.task.train.batch(everything).x
    )


def test_missing_cells_take_the_mean_and_say_so(tmp_path):
    source = open_source(written(tmp_path, PEOPLE), target="y")
    preparation = fitted(source)
    age = np.array([31.0, 44.0, 27.0])
    x = preparation.split(source).x
    mean, std = age.mean(), age.std()
    expected = [(31 - mean) / std, 0.0, (44 - mean) / std, (27 - mean) / std]
    np.testing.assert_allclose(x[:, 0].numpy(), expected, rtol=1e-6)
    assert x[:, 1].tolist() == [0.0, 1.0, 0.0, 0.0]  # the indicator
    assert x[:, 2:5].tolist() == [
        [0, 1, 0],
        [1, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
    ]  # Bergen, Oslo, missing
    assert x.shape == (4, 6)  # score is the last, note is empty
    assert preparation.facts()["empty columns left out"] == ["note"]


def test_no_indicator_where_training_misses_nothing(tmp_path):
    source = open_source(written(tmp_path, PEOPLE), target="y")
    preparation = fitted(source, places=[0, 3])
    assert preparation.shape == (3,)  # age, Oslo, score
    x = preparation.split(source, [1]).x
    assert x[0, 0] == 0.0  # missing age: the mean
    assert x[0, 1] == 0.0  # Bergen was never seen


def test_nothing_is_learned_from_rows_outside_training(tmp_path):
    good = open_source(written(tmp_path, PEOPLE), target="y")
    spoiled = PEOPLE.replace("44,,3.5", "9999,Rome,-7777")
    other = open_source(written(tmp_path, spoiled, "spoiled.csv"), target="y")
    places = [0, 1, 3]
    assert fitted(good, places) == fitted(other, places)


@pytest.mark.parametrize("text", ["7", "7.0", "1e5", "-inf", "x"])
def test_a_column_is_of_numbers_only_if_every_training_cell_is(tmp_path, text):
    file = written(tmp_path, f"a,y\n1,no\n{text},yes\n")
    source = open_source(file, target="y")
    if text == "-inf":
        with pytest.raises(UserError, match=r"column 'a' has '-inf' in row 1 .*finite"):
            fitted(source)
    else:
        kind = fitted(source).to_json()["columns"][0]["kind"]
        assert kind == ("category" if text == "x" else "number")


def test_a_word_in_a_column_of_numbers_names_column_row_and_cell(tmp_path):
    source = open_source(written(tmp_path, PEOPLE), target="y")
    preparation = fitted(source)
    bad = open_source(written(tmp_path, PEOPLE.replace("27,", "old,"), "bad.csv"))
    with pytest.raises(UserError, match=r"column 'age' has 'old' in row 3"):
        preparation.split(bad)
    with pytest.raises(UserError, match=r"column 'age' has 'old' in row 3"):
        list(preparation.stream(bad, 2))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("age,score,note,height", "it lacks 'city' and has 'height' besides"),
        ("age,city,score", "it lacks 'note'; give"),
    ],
)
def test_other_columns_than_at_training_are_named(tmp_path, header, message):
    preparation = fitted(open_source(written(tmp_path, PEOPLE), target="y"))
    cells = ",".join("1" for _ in header.split(","))
    other = open_source(written(tmp_path, f"{header}\n{cells}\n", "other.csv"))
    with pytest.raises(UserError, match=message):
        preparation.split(other)
    with pytest.raises(UserError, match=message):
        list(preparation.stream(other, 8))


def test_more_columns_than_at_training_are_ignored_with_a_note(tmp_path):
    source = open_source(written(tmp_path, PEOPLE), target="y")
    preparation = fitted(source, drop=("score",))
    frame = pd.read_csv(tmp_path / "people.csv").assign(height=1, width=2)
    frame.to_csv(tmp_path / "more.csv", index=False)
    more = open_source(tmp_path / "more.csv")
    assert preparation.notes(source) == []
    assert preparation.notes(more) == [
        "ignored columns 'height', 'width', which the training table does not have"
    ]
    torch.testing.assert_close(
        preparation.split(more).x, preparation.split(source).x, rtol=0, atol=0
    )
    assert (
        preparation.notes(open_source(written(tmp_path, "age,city,note\n1,2,3\n", "b.csv"))) == []
    )


def test_dropped_columns_are_left_out_and_kept_in_mind(tmp_path):
    source = open_source(written(tmp_path, PEOPLE), target="y")
    preparation = fitted(source, drop=("age", "note"))
    assert [column.name for column in preparation.columns] == ["city", "score"]
    assert preparation.facts()["dropped"] == ["age", "note"]
    assert preparation_from_json(json.loads(json.dumps(preparation.to_json()))) == preparation
    with pytest.raises(UserError, match=r"drop: people.csv has no column 'agee'; did you mean"):
        fitted(source, drop=("agee",))
    with pytest.raises(UserError, match=r"drop names the target 'y'"):
        fitted(source, drop=("y",))


@pytest.mark.parametrize("opened_with", ["y", None])
def test_the_target_may_be_there_or_not_in_a_table_to_predict(tmp_path, opened_with):
    file = written(tmp_path, PEOPLE)
    source = open_source(file, target="y")
    preparation = fitted(source)
    without = pd.read_csv(file).drop(columns="y")
    without[["score", "note", "age", "city"]].to_csv(tmp_path / "other order.csv", index=False)
    expected = preparation.split(source).x
    again = preparation.split(open_source(file, target=opened_with))
    bare = preparation.split(open_source(tmp_path / "other order.csv"))
    torch.testing.assert_close(again.x, expected, rtol=0, atol=0)
    torch.testing.assert_close(bare.x, expected, rtol=0, atol=0)
    assert bare.labels.tolist() == [-1] * 4
    assert again.labels.tolist() == ([1, 0, 1, 0] if opened_with else [-1] * 4)


def test_a_wrong_target_comes_with_a_guess(tmp_path):
    with pytest.raises(UserError, match=r"no column 'ctiy'; did you mean 'city'.*'age'"):
        open_source(written(tmp_path, PEOPLE), target="ctiy")


def test_a_table_without_target_says_what_to_give(tmp_path):
    with pytest.raises(UserError, match=r"people.csv has no labels to learn from; .*--target"):
        prepare(open_source(written(tmp_path, PEOPLE)), seed=0)


def test_missing_targets_are_counted(tmp_path):
    file = written(tmp_path, "a,y\n1,u\n2,\n3,NaN\n4,v\n")
    with pytest.raises(
        UserError, match=r"column 'y' .* no label in 2 of 4 rows, first in row 1, 2"
    ):
        prepare(open_source(file, target="y"), seed=0)
    pd.DataFrame({"a": [1, 2, 3], "y": [0.0, np.nan, 1.0]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"no label in 1 of 3 rows"):
        prepare(open_source(tmp_path / "a.parquet", target="y"), seed=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as a table: No columns"),
        ("a,y\n1,u,extra\n2,v,extra\n", "cannot be read as a table: Length of header"),
        ("a,y\n1,u\n2,v,extra\n", "cannot be read as a table: .*line 3, saw 3"),
    ],
)
def test_a_malformed_csv_is_refused_with_its_name(tmp_path, text, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever the user's filters are
        with pytest.raises(UserError, match=rf"people.csv {message}"):
            prepare(open_source(written(tmp_path, text), target="y"), seed=0)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a,y\n\xff\xfe,1\n")
    with pytest.raises(UserError, match=r"a.csv is not written in UTF-8 .*--encoding latin-1"):
        prepare(open_source(tmp_path / "a.csv", target="y"), seed=0)
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    with pytest.raises(UserError, match=r"a.parquet cannot be read as a table"):
        open_source(tmp_path / "a.parquet", target="y")


@pytest.mark.parametrize(("mark", "name"), [(";", "a.csv"), ("\t", "a.csv"), ("\t", "a.tsv")])
def test_semicolons_and_tabs_separate_too(tmp_path, mark, name):
    text = "\ufeff" + PEOPLE.replace(",", mark)  # with the mark that spreadsheets put first
    assert open_source(written(tmp_path, text, name), target="y").columns == (
        "age", "city", "score", "note")  # fmt: skip


def test_many_categories_keep_the_most_frequent(tmp_path):
    names = ["a"] * 3 + ["b"] * 2 + ["c", "d"]
    rows = "".join(f"{name},{place % 2}\n" for place, name in enumerate(names))
    source = open_source(written(tmp_path, "name,y\n" + rows), target="y")
    preparation = TablePreparation.fit(
        Selection(source, range(7)), ("0", "1"), Classes(2), PreparationOptions(max_categories=2)
    )
    assert preparation.shape == (2,)
    assert preparation.split(source).x.tolist() == [[1, 0]] * 3 + [[0, 1]] * 2 + [[0, 0]] * 2
    assert preparation.facts()["rare categories taken as unseen"] == {"name": 2}


def test_numbers_can_be_taken_as_categories(tmp_path):
    source = open_source(written(tmp_path, "zip,y\n10,a\n9,b\n10,a\n9,b\n"), target="y")
    assert fitted(source, categorical=("zip",)).split(source).x.tolist() == [[1, 0], [0, 1]] * 2
    with pytest.raises(UserError, match=r"categorical: people.csv has no column 'zap'; did you"):
        fitted(source, categorical=("zap",))


def test_types_of_parquet_become_numbers_or_words(tmp_path):
    frame = pd.DataFrame(
        {
            "flag": [True, False, True],
            "when": pd.to_datetime(["2020-01-01", "2020-01-03", None]),
            "kind": pd.Categorical(["u", None, "v"]),
            "count": pd.array([1, None, 3], dtype="Int64"),
            "y": pd.array([2**60, 2**60 + 1, 2**60], dtype="Int64"),
        }
    )
    frame.to_parquet(tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet", target="y")
    assert source.labels == [str(2**60), str(2**60 + 1), str(2**60)]
    x = fitted(source).split(source).x
    assert x[:, :2].tolist() == [[0, 1], [1, 0], [0, 1]]  # False, True
    assert x[:, [2, 14]].tolist() == [[-1, 0], [1, 0], [0, 1]]  # two days apart, missing
    assert x[:, 15:18].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]  # u, v, missing
    assert x[:, 18:].tolist() == [[-1, 0], [0, 1], [1, 0]]


def test_a_value_out_of_all_proportion_is_refused(tmp_path):
    source = open_source(written(tmp_path, "a,y\n1,u\n2,v\n"), target="y")
    preparation = fitted(source)
    far = open_source(written(tmp_path, "a\n1\n1e300\n", "far.csv"))
    with pytest.raises(UserError, match=r"column 'a' has 1e\+300 in row 1, too far"):
        preparation.split(far)


cells = st.one_of(
    st.none(),
    st.floats(-1e6, 1e6, allow_nan=False).map(repr),
    st.sampled_from(["a", "b", "<script>", 'quote"d', "comma, inside"]),
)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(cells, st.floats(-1e9, 1e9).map(repr)), min_size=2, max_size=20),
    batch=st.integers(1, 7),
)
def test_a_preparation_survives_json_and_a_stream_gives_what_a_split_gives(
    tmp_path_factory, rows, batch
):
    file = tmp_path_factory.mktemp("tables") / "any.csv"
    pd.DataFrame(rows, columns=["mixed", "number"]).to_csv(file, index=False)
    source = open_source(file)
    preparation = TablePreparation.fit(
        Selection(source, range(0, len(rows), 2)), ("a", "b"), Classes(2), PreparationOptions()
    )
    again = preparation_from_json(json.loads(json.dumps(preparation.to_json())))
    assert again == preparation
    assert isinstance(again, TablePreparation)
    try:
        whole = preparation.split(source)
    except UserError as error:  # a word where training saw numbers
        assert "column" in str(error)  # noqa: PT017
        return
    torch.testing.assert_close(again.split(source).x, whole.x, rtol=0, atol=0)
    streamed = list(again.stream(source, batch))
    torch.testing.assert_close(torch.cat([b.x for b in streamed]), whole.x, rtol=0, atol=0)
    assert torch.cat([b.ids for b in streamed]).tolist() == list(range(len(rows)))
    assert {len(b.ids) for b in streamed[:-1]} <= {batch}


def test_a_row_is_described_by_its_first_cells(tmp_path):
    source = open_source(written(tmp_path, PEOPLE), target="y")
    assert source.describe(1) == "row 1: age=missing, city=Bergen, score=2.5, ..."
    assert source.thumbnail(1) is None


def test_the_fingerprint_follows_the_content(tmp_path):
    one, same = written(tmp_path, PEOPLE), written(tmp_path, PEOPLE, "b.csv")
    other = written(tmp_path, PEOPLE.replace("31", "32"), "c.csv")
    found = [open_source(file).fingerprint() for file in (one, same, other)]
    assert found[0] == found[1] != found[2]
