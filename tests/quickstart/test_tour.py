"""The tour: what its steps show, and that record, print and page say the same."""

import json
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from hma.cli.quickstart import quickstart
from hma.errors import UserError
from hma.extras import install_command
from hma.quickstart import digits, few_labels, motifs, take_tour
from hma.quickstart.step import Line, Picture, Step, figure
from hma.quickstart.tour import render_tour
from hma.runs import Run
from hma.runs.living import LivingMemory

SHORT = replace(few_labels.RECIPE, epochs=20, evaluate_every=10)


@pytest.fixture(scope="module", autouse=True)
def _short():
    """Twenty epochs of the first step, and no graphs, which have a test of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_labels, "OPTIONS", replace(few_labels.OPTIONS, recipe=SHORT))
        patch.setattr(motifs, "has_graphs", lambda: False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("somewhere") / "tour"


@pytest.fixture(scope="module")
def tour(folder):
    return take_tour(folder, seeds=2)


@pytest.fixture(scope="module")
def steps(tour):
    return {step.name: step for step in tour.steps}


def test_the_table_has_the_rivals_and_each_has_a_score_for_every_seed(tour):
    methods = {line.method for line in tour.lines}
    named = {"nearest neighbours", "logistic regression", "plain backbone", "PARAM"}
    assert named | {"memory", "mixture"} <= methods
    assert all(len(line.accuracy) == len(line.loss) == 2 for line in tour.lines)
    assert tour.lines[-1].method == "mixture"


def test_the_digit_is_unknown_at_first_and_predicted_once_it_is_taught(steps):
    found = steps["taught"].numbers
    assert found["rows taught"] == 5
    assert found["new digit before"] == 0
    assert found["new digit after"] > 0.5
    assert found["other digits after"] > found["other digits before"] - 0.05
    unknown = steps["unknown"].numbers
    assert unknown["AUROC"] > 0.8
    assert unknown["7s called unknown"] > unknown["other digits called unknown"]


def test_undoing_the_lesson_gives_the_scores_from_before(steps):
    found = steps["taught"].numbers
    assert found["new digit undone"] == found["new digit before"]
    assert found["other digits undone"] == found["other digits before"]


def test_wrong_labels_are_found_far_above_chance(steps):
    found = steps["wrong labels"].numbers
    assert found["precision"] > 5 * found["precision by chance"]
    assert found["AUROC"] > 0.9
    assert len(steps["wrong labels"].pictures) == 12


def test_the_explained_row_shows_itself_and_the_rows_that_voted(steps):
    step = steps["explained row"]
    assert step.pictures[0].head == "asked"
    assert all(one.picture.startswith("data:image/png") for one in step.pictures)
    assert sum(step.numbers.values()) <= 1


def test_the_record_and_the_page_hold_what_the_tour_found(tour, folder):
    record = json.loads((folder / "tour.json").read_text())
    assert record == json.loads(json.dumps(tour.to_json()))
    page = unescape((folder / "tour.html").read_text())
    for step in record["steps"]:
        assert step["result"][1:] in page
        assert step["command"] in page
        for name, value in step["numbers"].items():
            assert f"<b>{figure(name, value)}</b><span>{name}</span>" in page
    for line in record["table"]:
        held = Line(**{**line, "accuracy": tuple(line["accuracy"]), "loss": tuple(line["loss"])})
        row = f"{held.method}</bdi></th><td><b>{held.texts[0]}</b></td><td>{held.texts[1]}</td>"
        assert row in page


def test_the_printed_table_is_that_of_the_record(tour, folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    quickstart(seeds=2, folder=folder)
    printed = capsys.readouterr().out
    for line in tour.lines:
        (row,) = [row for row in printed.splitlines() if row.startswith(f"│ {line.method} ")]
        assert [cell.strip() for cell in row.strip("│").split("│")] == [
            line.method, *line.texts[:2]
        ]  # fmt: skip
    for step in tour.steps:
        assert step.command in printed
    assert str(folder / "tour.html") in printed


def test_a_tour_that_was_stopped_after_its_lesson_comes_to_the_same_numbers(tour, folder):
    memory = LivingMemory.open(Run.open(folder / digits.FOLDER))
    memory.remember(str(folder / digits.LESSON), new_classes=True)
    again = take_tour(folder, seeds=2)
    assert again.to_json() == tour.to_json()
    assert not Run.open(folder / digits.FOLDER).living.classes


def test_a_folder_with_anything_else_is_refused_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"holds thesis\.tex, which is not of the tour; give anoth"):
        take_tour(tmp_path, seeds=1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_without_pyg_graphs_are_left_out_and_the_remedy_is_named(steps):
    assert install_command("graph") in steps["motifs"].result


def test_commands_that_are_shown_work_on_what_the_tour_left(steps):
    for name, more in {"few labels": ["--no-report"], "explained row": []}.items():
        command = [sys.executable, "-m", *steps[name].command.split(), *more]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, "")


def test_texts_of_the_page_are_escaped(tour):
    evil = "<script>alert(1)</script>"
    shown = Picture(picture=None, head=evil, text=evil)
    step = Step(
        name=evil, title=evil, result=evil, command=evil, numbers={evil: 1}, pictures=(shown,),
        caption=evil,
    )  # fmt: skip
    line = Line(method=evil, accuracy=(1.0,), loss=(0.0,))
    page = render_tour([step], [line], tour.audit, 1)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.slow
def test_graphs_are_scored_where_the_base_says_nothing(tmp_path: Path, monkeypatch):
    pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)
    monkeypatch.setattr(motifs, "has_graphs", lambda: True)
    monkeypatch.setattr(motifs, "EPOCHS", 1)
    found = motifs.motifs(tmp_path, None)
    assert {"plain backbone", "memory", "mixture", "nearest neighbours"} <= set(found.graphs)
    assert found.step.numbers["deployed accuracy"] == found.graphs["mixture"]
    assert found.step.numbers["test graphs"] == 600
