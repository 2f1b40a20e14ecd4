"""``hma suspects`` on a run with labels changed on purpose: the list, the file, the page."""

import csv

import numpy as np
import pandas
import pytest
import torch
from cleanlab.filter import find_label_issues

import hma
from hma.attention.config import HMAConfig
from hma.report.numbers import TIMES
from hma.report.page import render
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.page import report_of
from hma.runs.source import prepared_from
from hma.runs.suspects import ON_THE_PAGE, suspects_of
from hma.training import Recipe, SilentProgress
from hma.vote.config import VoteConfig

NAMES = np.array(["red", "green", "blue"])
CHANGED = (7, 40, 71)


def options_of(folder, **options):
    return RunOptions(
        source=str(folder / "rows.csv"),
        backbone="mlp",
        recipe=Recipe(epochs=1, lr=1e-3),
        **{"target": ("y",), "config": VoteConfig(), **options},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Clear classes, the labels of three rows changed; and one row of a class of its own."""
    folder = tmp_path_factory.mktemp("suspects")
    draw = np.random.default_rng(0)
    y = np.arange(90) % 3
    frame = pandas.DataFrame(6 * np.eye(3)[y] + draw.normal(size=(90, 3)), columns=[*"abc"])
    y[list(CHANGED)] = (y[list(CHANGED)] + 1) % 3
    frame = frame.round(3).assign(y=NAMES[y], size=frame.sum(axis=1).round(2))
    frame.to_csv(folder / "rows.csv", index=False)
    every = options_of(folder, validation=0.1, test=0.0)
    train(every, folder / "run", compare=False, progress=SilentProgress())
    return folder


def trained_on(folder):
    """Return the changed rows that the memory holds, by sample id."""
    found = Run.open(folder / "run").places
    places = found["train"] + found["validation"]  # all rows train
    return {places.index(row): row for row in CHANGED if row in places}


def test_changed_labels_come_first_with_what_they_were_and_rows_that_say_so(folder):
    changed, run = trained_on(folder), Run.open(folder / "run")
    found = suspects_of(run, top=len(changed))
    assert changed
    assert {row.id for row in found.rows} == set(changed)
    for row in found.rows:
        place = changed[row.id]
        assert row.suggested == NAMES[place % 3]
        assert row.label == NAMES[(place + 1) % 3]
        assert row.what == prepared_from(run.options).source.describe(place)
        assert {one.label for one in row.against} == {row.suggested}
    scores = hma.suspects(run.learner(MEMORY).model).score
    assert [row.score for row in found.rows] == scores.sort(descending=True).values[
        : len(changed)
    ].tolist()
    assert (found.of, found.unjudged) == (len(scores), 0)


def test_the_command_prints_the_first_and_writes_all(folder, run_hma, refuses, tmp_path):
    changed = trained_on(folder)
    ended = run_hma("suspects", folder / "run", "--top", 2)
    assert ended.code == 0
    assert "2 of 90 rows" in " ".join(ended.out.split())
    output = tmp_path / "found.csv"
    assert run_hma("suspects", folder / "run", "-o", output).code == 0
    with open(output, newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 90  # all rows train
    assert {int(line["id"]) for line in lines[: len(changed)]} == set(changed)
    doubts = [float(line["doubt"]) for line in lines]
    assert doubts == sorted(doubts, reverse=True)
    assert "exists already; pass --overwrite" in refuses("suspects", folder / "run", "-o", output)
    assert run_hma("suspects", folder / "run", "-o", output, "--overwrite", "--top", 3).code == 0
    assert len(output.read_text().splitlines()) == 4
    assert "--output must end in .csv" in refuses("suspects", folder / "run", "-o", "found.txt")


def test_cleanlab_says_which_labels_are_wrong_and_they_come_first(folder, run_hma):
    run = Run.open(folder / "run")
    asked = hma.suspects(run.learner(MEMORY).model)
    chances = asked.expected.double().numpy()
    expected = find_label_issues(asked.given.numpy(), chances / chances.sum(axis=1, keepdims=True))
    found = suspects_of(run, cleanlab=True)
    wrong = {row.id for row in found.rows if row.issue}
    assert wrong == set(asked.ids[torch.from_numpy(expected)].tolist()) != set()
    assert found.issues == len(wrong)
    assert all(row.issue for row in found.rows[: len(wrong)])
    ended = run_hma("suspects", folder / "run", "--cleanlab", "--top", 1)
    assert f"cleanlab takes the labels of {len(wrong)} of 90 rows for wrong" in ended.out


def test_the_page_has_the_list(folder):
    run = Run.open(folder / "run")
    report = report_of(run)
    page = render(report)
    assert report.parts["suspects"] == suspects_of(run, top=ON_THE_PAGE)
    assert '<section id="suspects">' in page
    assert report.parts["suspects"].rows[0].what in page


def test_memories_that_do_not_vote_are_refused_in_a_line(folder, refuses, tmp_path):
    paper = HMAConfig(queue_size=16, slots_per_class=1, label_dim=4)
    run = train(
        options_of(folder, config=paper), tmp_path, compare=False, progress=SilentProgress()
    )
    said = refuses("suspects", tmp_path)
    assert "suspects needs a memory whose rows vote, one for each sample, got HMA" in said
    assert "suspects" not in report_of(run).parts


def test_numbers_are_listed_by_the_usual_difference(folder, refuses, tmp_path):
    options = options_of(folder, target=("size",), task="regression")
    run = train(options, tmp_path, compare=False, progress=SilentProgress())
    found = suspects_of(run, top=3)
    expected = hma.suspects(run.learner(MEMORY).model)
    assert [row.score for row in found.rows] == expected.score[expected.order[:3]].tolist()
    assert found.score_text(found.rows[0]).endswith(TIMES)
    assert found.rows[0].suggested == f"{expected.voted[expected.order[0]]:.4g}"
    assert "cleanlab judges classes" in refuses("suspects", tmp_path, "--cleanlab")
    assert torch.isfinite(expected.score).all()
