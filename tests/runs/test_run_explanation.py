"""What an explanation of a run's prediction names, against the model asked directly."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

import hma
from hma.attention.config import HMAConfig
from hma.runs import MEMORY, RunOptions, train
from hma.runs.answers import predict
from hma.runs.explanation import as_page, explain_row
from hma.runs.source import rows_for
from hma.training import Recipe, SilentProgress
from hma.vote.config import VoteConfig


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose queue holds most training rows more than once."""
    folder = tmp_path_factory.mktemp("explained")
    draw = np.random.default_rng(0)
    y = np.arange(30) % 2
    np.savez(folder / "rows.npz", x=draw.normal(size=(30, 4)) + y[:, None], y=y)
    options = RunOptions(
        source=str(folder / "rows.npz"),
        config=HMAConfig(queue_size=50, slots_per_class=2, label_dim=8),
        recipe=Recipe(epochs=4, batch_size=8),
    )
    return train(options, folder / "run", compare=False, progress=SilentProgress())


def test_a_training_row_held_more_than_once_is_named_once_with_all_its_shares(run):
    rows = rows_for(run, run.options.source, labelled=False)
    found = explain_row(run, rows, 3, top=1000, context="alone")
    named = {seen.description: seen.share for seen in found.seen if seen.kind == "training row"}
    assert len(named) == sum(seen.kind == "training row" for seen in found.seen)
    model = run.learner(MEMORY).model
    model.context = "alone"
    asked = hma.explain(model, run.preparation.split(rows).batch(torch.tensor([3])).x)
    expected = Counter()
    for sample, share in zip(asked.queue_ids.tolist(), asked.queue[0].tolist(), strict=True):
        expected[rows.describe(learned(run)[sample])] += share
    assert len(expected) < 50
    assert named == pytest.approx(dict(expected), abs=1e-7)
    assert list(named.values()) == sorted(named.values(), reverse=True)


def test_effects_are_those_of_leaving_out_and_the_strongest_come_first(run):
    rows = rows_for(run, run.options.source, labelled=False)
    found = explain_row(run, rows, 3, top=3, context="alone")
    model = run.learner(MEMORY).model
    model.context = "alone"
    moved = hma.contributions(model, run.preparation.split(rows).batch(torch.tensor([3])).x)
    assert found.explained == f"the probability of {run.preparation.classes[moved.output]}"
    parts = Counter(effect.part for effect in found.effects)
    assert parts == {"both memories": 1, "all queue rows": 1, "all slots": 1, "class": 2,
                     "training row": 3, "slot": 3}  # fmt: skip
    shown = {effect.part: points(effect) for effect in found.effects[:3]}
    assert shown["both memories"] == pytest.approx(moved.memory, abs=1e-4)
    of_rows = [abs(points(effect)) for effect in found.effects if effect.part == "training row"]
    assert of_rows == sorted(of_rows, reverse=True)
    assert of_rows[0] == pytest.approx(float(moved.queue.abs().max()), abs=1e-4)
    strongest = int(moved.queue.abs().argmax())
    sample = int(model.memory_state().ids[strongest])
    place = learned(run)[sample]
    first = next(effect for effect in found.effects if effect.part == "training row")
    assert (first.label, first.description) == (str(place % 2), rows.describe(place))


def learned(run):
    """Places of the rows behind the sample ids: training rows, then validation rows."""
    return run.places["train"] + run.places["validation"]


def points(effect):
    return float(effect.change.removesuffix(" points").replace("\u2212", "-")) / 100


@pytest.fixture(scope="module")
def voting(tmp_path_factory):
    """A run with the memory that is the default."""
    folder = tmp_path_factory.mktemp("voting")
    draw = np.random.default_rng(0)
    y = np.arange(30) % 2
    np.savez(folder / "rows.npz", x=draw.normal(size=(30, 4)) + y[:, None], y=y)
    options = RunOptions(
        source=str(folder / "rows.npz"),
        config=VoteConfig(slots_per_class=1),
        recipe=Recipe(epochs=1, batch_size=8),
    )
    return train(options, folder / "run", compare=False, progress=SilentProgress())


def test_with_the_default_memory_the_parts_sum_to_the_probability_that_is_shown(voting):
    rows = rows_for(voting, voting.options.source, labelled=False)
    found = explain_row(voting, rows, 3, top=2, context="alone")
    model = voting.learner(MEMORY).model
    asked = hma.explain(model, voting.preparation.split(rows).batch(torch.tensor([3])).x)
    output = int(asked.prediction[0])
    *parts, whole = [float(effect.change.rstrip("%")) / 100 for effect in found.effects]
    assert [effect.part for effect in found.effects] == [
        *("plain part", "training row", "training row", "other training rows", "slot", "slot"),
        *("even vote", "together"),
    ]
    assert found.explained == f"the probability of {voting.preparation.classes[output]}"
    assert sum(parts) == pytest.approx(whole, abs=5e-4)  # each is rounded
    assert whole == pytest.approx(float(asked.probabilities[0, output]), abs=1e-4)
    assert f"({100 * whole:.1f}%)" in found.answer
    share = float(asked.itself[0])
    assert f"{share:.1%} of the answer" in found.effects[0].description
    by_row = asked.exact.queue(0)[:, output]
    first = int(by_row.argmax())
    place = learned(voting)[int(asked.queue_ids[first])]
    assert parts[1] == pytest.approx(float(by_row[first]), abs=1e-4)
    assert found.effects[1].description == rows.describe(place)
    assert found.effects[1].label == str(place % 2)
    page = as_page(found)
    assert "The parts sum to the prediction." in page
    assert "not what decided" not in page


def test_the_nearest_training_rows_are_those_scikit_learn_finds(run, monkeypatch):
    rows = rows_for(run, run.options.source, labelled=False)
    model, split = run.learner(MEMORY).model, run.preparation.split(rows)
    with torch.no_grad():
        features = model.backbone.eval()(split.batch(torch.arange(30)).x).numpy()

    def expected(places, top):
        search = NearestNeighbors(n_neighbors=top).fit(features[places])
        (distances,), (found,) = search.kneighbors(features[3:4])
        return [(rows.describe(places[i]), d) for i, d in zip(found, distances, strict=True)]

    for most in (4096, 5):  # of many rows only those in the queue are compared
        monkeypatch.setattr("hma.runs.explanation.COMPARED", most)
        compared = learned(run)
        if most == 5:
            held = set(model.memory_state().ids.tolist())
            compared = [place for i, place in enumerate(compared) if i in held]
        found = explain_row(run, rows, 3, top=4, context="alone")
        assert found.near_of == len(compared)
        wanted = expected(compared, 4)
        assert [row.description for row in found.near] == [text for text, _ in wanted]
        assert [row.distance for row in found.near] == pytest.approx(
            [distance for _, distance in wanted], abs=1e-4
        )
        assert all(row.label in ("0", "1") for row in found.near)


def test_only_the_classes_with_most_attention_are_named(tmp_path):
    draw = np.random.default_rng(0)
    y = np.arange(84) % 12
    np.savez(tmp_path / "rows.npz", x=draw.normal(size=(84, 4)) + y[:, None], y=y)
    config = HMAConfig(queue_size=50, slots_per_class=1, label_dim=8)
    options = RunOptions(source=str(tmp_path / "rows.npz"), config=config, recipe=Recipe(epochs=1))
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    rows = rows_for(run, run.options.source, labelled=False)
    found = explain_row(run, rows, 0, top=5, context="alone")
    shares = [share for _, share in found.by_group]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)
    assert sum(effect.part == "class" for effect in found.effects) == 5
    page = as_page(found)
    assert "They say what was read, not what decided." in page
    assert "decided" not in page.replace("not what decided", "")


def test_a_row_asked_about_alone_has_no_neighbours(run):
    rows = rows_for(run, run.options.source, labelled=False)
    kinds = {
        context: Counter(s.kind for s in explain_row(run, rows, 3, top=99, context=context).seen)
        for context in ("alone", "batch")
    }
    assert kinds["alone"]["neighbour"] == 0
    assert kinds["batch"]["neighbour"] == 26  # the rows that follow


def test_a_long_table_is_read_in_chunks_and_never_held_whole(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    y = np.arange(60) % 2
    frame = pandas.DataFrame(draw.normal(size=(60, 3)) + y[:, None], columns=list("abc"))
    frame.assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    options = RunOptions(
        source=str(tmp_path / "rows.csv"),
        target=("y",),
        config=HMAConfig(queue_size=16, slots_per_class=2, label_dim=8),
        recipe=Recipe(epochs=1),
    )
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    monkeypatch.setattr("hma.data.table.source.CHUNK", 7)
    rows = rows_for(run, run.options.source, labelled=False)
    found = explain_row(run, rows, 41, top=99, context="batch")
    assert "frame" not in vars(rows)
    whole = rows_for(run, run.options.source, labelled=False)
    assert len(whole.frame) == 60
    assert found.description == whole.describe(41)
    neighbours = {seen.description for seen in found.seen if seen.kind == "neighbour"}
    assert neighbours == {whole.describe(place) for place in range(42, 60)}
    some = [50, 3, 3, 27]
    assert rows.rows_at(some).to_dict("list") == whole.frame.iloc[some].to_dict("list")


def test_an_explanation_says_what_predict_answers_and_what_the_memory_counts_in_it(
    run, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("mixed")
    quick = replace(run.options, recipe=Recipe(epochs=1, batch_size=8))
    mixed = train(quick, folder / "run", progress=SilentProgress())
    rows = rows_for(mixed, mixed.options.source, labelled=False)
    assert explain_row(run, rows, 3, top=1, context="alone").note == ""
    for deploy in ("mixture", "logistic", "memory"):
        again = train(quick, folder / "run", deploy=deploy, progress=SilentProgress())
        found = explain_row(again, rows, 3, top=1, context="alone")
        if deploy == "memory":
            assert found.note == ""
            continue
        list(predict(again, rows, folder / f"{deploy}.csv"))
        said = pandas.read_csv(folder / f"{deploy}.csv", dtype={"label": str}).iloc[3]
        share = again.deployed.shares["memory"]
        who = {
            "mixture": f"by the mixture of this run, in which the memory counts {share:.0%}.",
            "logistic": "by logistic regression of this run, without the memory.",
        }
        answer = f"hma predict answers {said['label']} ({said['probability']:.1%}), {who[deploy]}"
        assert found.note == f"This is about the memory. {answer}"
        assert answer in as_page(found)
