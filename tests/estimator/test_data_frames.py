"""Data frames with words, dates and gaps: prepared as ``hma train`` prepares the same table."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from hma.data import open_source, prepare
from hma.data.table.columns import CategoryColumn, DateColumn, NumberColumn
from hma.errors import UserError
from hma.estimator import MemoryClassifier, MemoryRegressor

ROWS = 48
SMALL = {"hidden": (8,), "max_epochs": 1, "random_state": 0}


def people(seed=0):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.normal(40, 10, ROWS),
            "city": random.choice(["Oslo", "Bergen", "Bodø"], ROWS),
            "joined": pd.date_range("2024-01-30", periods=ROWS, freq="9D"),
            "member": random.choice([True, False], ROWS),
            "rooms": pd.array(random.integers(1, 9, ROWS), dtype="Int64"),
            "zone": pd.Categorical(random.integers(0, 3, ROWS)),
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[3, ["city", "rooms"]] = pd.NA
    frame.loc[5, "joined"] = pd.NaT
    return frame


LABELS = np.where(np.arange(ROWS) % 3 == 0, "yes", "no")


@pytest.fixture(scope="module")
def fitted():
    return MemoryClassifier(**SMALL).fit(people(), LABELS)


# ------------------------------------------------------------------ what a column becomes


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_model_sees_what_hma_train_would_give_it(fitted, tmp_path, ending):
    frame = people().drop(columns="zone")  # a CSV does not say that numbers are categories
    file = tmp_path / f"people.{ending}"
    labelled = frame.assign(y=LABELS)
    labelled.to_csv(file, index=False) if ending == "csv" else labelled.to_parquet(file)
    prepared = prepare(open_source(file, target="y"), seed=0, options=None)
    places = prepared.places["train"]
    wanted = prepared.task.train.batch(torch.arange(len(places))).x
    model = MemoryClassifier(**SMALL, early_stopping=False).fit(frame.iloc[places], LABELS[places])
    np.testing.assert_allclose(model._inputs(frame.iloc[places]), wanted, atol=1e-6)
    kinds = [type(column) for column in model.inputs_.columns]
    assert kinds == [NumberColumn, CategoryColumn, DateColumn, CategoryColumn, NumberColumn]


def test_a_column_of_categories_is_one_even_where_they_are_numbers(fitted):
    zone = fitted.inputs_.columns[-1]
    assert isinstance(zone, CategoryColumn)
    assert zone.values == ("0", "1", "2")


def test_gaps_in_an_array_are_the_mean_and_a_value_of_their_own():
    x = np.array([[1.0, 5.0], [np.nan, 7.0], [3.0, 6.0], [5.0, 2.0]])
    model = MemoryClassifier(**SMALL).fit(x, [0, 1, 0, 1])
    deviation = np.std([1, 3, 5])
    wanted = [[-2 / deviation, 0], [0, 1], [0, 0], [2 / deviation, 0]]
    np.testing.assert_allclose(model._inputs(x)[:, :2], wanted, atol=1e-12)
    unseen = model._inputs([[1.0, np.nan]])  # the second column had no gaps: its mean
    assert unseen[0, 2] == 0
    frame = pd.DataFrame(x).astype(object).where(lambda cells: cells.notna(), None)
    np.testing.assert_array_equal(model._inputs(frame.to_numpy()), model._inputs(x))


def test_numbers_stay_as_they_are_without_standardisation():
    x = np.array([[10.0, 1.0], [np.nan, 2.0], [30.0, 3.0], [50.0, 4.0]])
    model = MemoryClassifier(**SMALL, standardize=False).fit(x, [0, 1, 0, 1])
    assert model._inputs(x).tolist() == [[10, 0, 1], [0, 1, 2], [30, 0, 3], [50, 0, 4]]


def test_an_array_of_words_is_a_table_of_words():
    x = np.array([["a", 1.5], ["b", None], ["a", 2.5], ["c", 0.5]], dtype=object)
    model = MemoryRegressor(**SMALL).fit(x, [1.0, 2.0, 3.0, 4.0])
    assert [column.width for column in model.inputs_.columns] == [3, 2]
    new = model._inputs(np.array([["d", 1.5]], dtype=object))
    np.testing.assert_allclose(new, np.zeros((1, 5)), atol=1e-12)  # unseen word, mean number


def test_a_backbone_sees_the_prepared_columns():
    asked = []

    def factory(inputs):
        asked.append(inputs)
        return torch.nn.Linear(inputs, 4)

    model = MemoryClassifier(factory, max_epochs=1, random_state=0).fit(people(), LABELS)
    assert set(asked) == {model.inputs_.width}
    # age and rooms with their gaps, cities and their gap, dates and theirs, yes or no, zones
    assert model.inputs_.width == 2 + 4 + 13 + 2 + 2 + 3
    assert model.n_features_in_ == 6


# ------------------------------------------------------------------ any library, any order


class Frame:
    """What a library that only speaks one protocol hands over."""

    def __init__(self, table, protocol):
        setattr(type(self), protocol, lambda self, *_, **__: getattr(table, protocol)(*_, **__))


@pytest.mark.parametrize("protocol", ["to_pandas", "__arrow_c_stream__"])
def test_frames_of_other_libraries_are_read_by_their_protocol(fitted, protocol):
    table = pa.Table.from_pandas(people(), preserve_index=False)
    given = type("Frame", (Frame,), {})(table, protocol)
    wanted = fitted.predict_proba(people())
    np.testing.assert_array_equal(fitted.predict_proba(given), wanted)


def test_columns_are_taken_by_name(fitted):
    frame, wanted = people(), fitted.predict_proba(people())
    assert fitted.feature_names_in_.tolist() == frame.columns.tolist()
    np.testing.assert_array_equal(fitted.predict_proba(frame[frame.columns[::-1]]), wanted)
    with pytest.warns(UserWarning, match=r"ignored column 'height' of X, which fit did not see"):
        found = fitted.predict_proba(frame.assign(height=1.8))
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(
        UserError, match=r"lacks 'age', 'city' and has 'town' besides; give the same columns"
    ):
        fitted.predict(frame.drop(columns=["age"]).rename(columns={"city": "town"}))


def test_an_unknown_word_is_no_word(fitted):
    frame = people().iloc[:1].assign(city="Narvik")
    cities = fitted._inputs(frame)[0, 2:6]
    assert cities.tolist() == [0, 0, 0, 0]


# ------------------------------------------------------------------ rows as a weighted set


def test_a_weight_is_a_number_of_repetitions_of_a_row_of_words():
    frame, weight = people(), np.random.default_rng(1).integers(0, 4, ROWS)
    order = np.random.default_rng(2).permutation(ROWS)
    repeated = np.repeat(np.arange(ROWS), weight)
    one = MemoryClassifier(**SMALL).fit(frame.iloc[repeated], LABELS[repeated])
    two = MemoryClassifier(**SMALL).fit(
        frame.iloc[order], LABELS[order], sample_weight=weight[order]
    )
    np.testing.assert_array_equal(one.predict_proba(frame), two.predict_proba(frame))


def test_a_word_of_weight_zero_leaves_no_trace():
    frame, weight = people(), np.ones(ROWS)
    frame.loc[7, "city"] = "Atlantis"
    weight[7] = 0
    model = MemoryClassifier(**SMALL).fit(frame, LABELS, sample_weight=weight)
    assert model.inputs_.columns[1].values == ("Bergen", "Bodø", "Oslo")


def test_partial_fit_keeps_columns_and_goes_on_with_moments(tmp_path):
    frame, model = people(), MemoryClassifier(**SMALL)
    first, second = slice(0, 20), slice(20, ROWS)
    model.partial_fit(frame[first], LABELS[first], classes=["no", "yes"])
    before = model.inputs_.columns
    model.save(tmp_path)
    loaded = MemoryClassifier.load(tmp_path)
    model._optimizer = None  # its running averages are not saved
    for one in (model, loaded):
        one.partial_fit(frame[second][frame.columns[::-1]], LABELS[second])
        one.partial_fit(frame[first], LABELS[first])  # each of these rows is known
        ids = one.model_.memory_state().ids.tolist()
        assert sorted(ids) == list(range(ROWS))
    assert [c.width for c in model.inputs_.columns] == [c.width for c in before]
    ages = np.concatenate([frame.age, frame.age[first]])
    assert model.inputs_.columns[0].mean == pytest.approx(np.nanmean(ages))
    assert model.inputs_.columns[0].std == pytest.approx(np.nanstd(ages))
    np.testing.assert_array_equal(model.predict_proba(frame), loaded.predict_proba(frame))


# ------------------------------------------------------------------ files, labels, explanations


def test_a_loaded_classifier_prepares_as_the_saved_one(fitted, tmp_path):
    fitted.save(tmp_path)
    loaded = MemoryClassifier.load(tmp_path)
    assert loaded.inputs_.columns == fitted.inputs_.columns
    np.testing.assert_array_equal(loaded.predict_proba(people(1)), fitted.predict_proba(people(1)))


def test_a_table_of_words_alone_is_learned_and_saved(tmp_path):
    frame = people()[["city", "member"]]
    model = MemoryRegressor(**SMALL).fit(frame, np.arange(ROWS))
    model.save(tmp_path)
    loaded = MemoryRegressor.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))


def test_several_labels_of_a_frame_may_have_gaps():
    y = np.stack([LABELS == "yes", np.arange(ROWS) % 2], axis=1).astype(float)
    y[4, 1] = np.nan
    model = MemoryClassifier(**SMALL).fit(people(), y)
    assert model.predict_proba(people()).shape == (ROWS, 2)


def test_parts_of_an_explanation_sum_to_the_answer(fitted):
    frame = people().iloc[:4]
    found = fitted.explain(frame)
    np.testing.assert_allclose(found.exact.whole, fitted.predict_proba(frame), atol=1e-6)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda frame: frame.assign(age=[[1, 2]] * ROWS),
            r"got \[1, 2\] in column 'age', row 0 \(counted from 0\); leave the column out",
        ),
        (
            lambda frame: frame.assign(age=frame.age.where(frame.index != 2, np.inf)),
            r"column 'age' has 'inf' in row 2 \(counted from 0\)",
        ),
        (lambda frame: frame.assign(age=1j), "column 'age' of X holds complex numbers"),
        (lambda frame: frame.iloc[:0], r"X is an empty data frame, of shape \(0, 6\); give one"),
        (lambda frame: frame[[]], r"X is an empty data frame, of shape \(48, 0\); give one"),
        (
            lambda frame: frame.rename(columns={"age": "city"}),
            "X has the column 'city' twice; rename one of them",
        ),
        (lambda frame: frame.iloc[:, :1] * np.nan, "X has no column with values; give one"),
    ],
)
def test_a_frame_that_makes_no_sense_is_named(change, message):
    with warnings.catch_warnings(), pytest.raises(UserError, match=message):
        MemoryClassifier(**SMALL).fit(change(people()), LABELS)


@pytest.mark.parametrize(
    "y",
    [
        np.where(np.arange(ROWS) == 5, np.nan, np.arange(ROWS) % 2),
        np.where(np.arange(ROWS) == 5, None, LABELS),
        pd.Series(LABELS, dtype="string").where(np.arange(ROWS) != 5),
        pd.Series(np.arange(ROWS) % 2, dtype="Int64").where(np.arange(ROWS) != 5),
    ],
    ids=["nan", "none", "string", "Int64"],
)
@pytest.mark.parametrize("x", [people(), np.ones((ROWS, 1))], ids=["frame", "array"])
def test_a_row_without_a_label_is_named(x, y):
    with pytest.raises(UserError, match="y has no label in 1 of 48 rows, first in row 5"):
        MemoryClassifier(**SMALL).fit(x, y)


def test_a_word_where_numbers_were_is_named(fitted):
    frame = people().astype({"age": object})
    frame.loc[9, "age"] = "forty"
    with pytest.raises(UserError, match=r"column 'age' has 'forty' in row 9 \(counted from 0\)"):
        fitted.predict(frame)
