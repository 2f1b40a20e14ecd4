"""Where commands write, and what they print of what users named: one line, nothing lost."""

import os
import re
import stat

import numpy as np
import pandas
import pytest

from hma import training
from hma.attention.config import HMAConfig
from hma.runs import Run, RunOptions, train
from hma.training import LineProgress, Recipe, SilentProgress

EVIL = "\x1b[31mred\x1b[0m[/bold]"
"""A label that would colour the terminal, and break rich's markup."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A table whose labels and columns hold escape sequences and markup."""
    draw = np.random.default_rng(0)
    y = np.arange(40) % 2
    values = draw.normal(size=(40, 2)) + y[:, None]
    frame = pandas.DataFrame(values, columns=["a", f"b{EVIL}"])
    frame["y"] = np.where(y == 1, EVIL, "plain")
    path = tmp_path_factory.mktemp("outputs") / "rows[1].csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(rows):
    options = RunOptions(
        source=str(rows),
        target=("y",),
        config=HMAConfig(queue_size=16, slots_per_class=2, label_dim=8),
        recipe=Recipe(epochs=1),
    )
    return train(options, rows.parent / "run", compare=False, progress=SilentProgress()).folder


@pytest.mark.parametrize("command", ["train", "evaluate", "predict", "explain"])
def test_labels_and_names_of_users_are_shown_and_do_not_act(run, rows, run_hma, tmp_path, command):
    words = {
        "train": [rows, "--target", "y", "--epochs", "1", "-o", tmp_path / f"r{EVIL[:5]}"],
        "evaluate": [run, rows],
        "predict": [run, rows, "-o", tmp_path / "out[" / "x].csv"],
        "explain": [run, rows, "--index", "1"],
    }
    ended = run_hma(command, *words[command])
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out + ended.err
    shown = {"train": "r\ufffd[31m", "explain": "\ufffd[31mred\ufffd[0m[/bold]"}
    shown |= {"evaluate": "rows[1].csv", "predict": "out[/x].csv"}
    assert shown[command] in ended.out


def test_an_error_that_quotes_a_user_does_not_act_either(run, refuses, tmp_path):
    said = refuses("predict", run, tmp_path / EVIL[:8], "-o", tmp_path / f"{EVIL[:5]}.xlsx")
    assert "/\ufffd[31m.xlsx" in said


@pytest.mark.parametrize("command", ["predict", "explain", "report"])
def test_an_output_is_looked_at_before_any_work(run, rows, refuses, tmp_path, command):
    words = {"predict": [run, rows], "explain": [run, rows, "--index", "1"], "report": [run]}
    (tmp_path / "mine.csv").write_text("mine")
    given = [command, *words[command], "-o"]
    assert "exists already; pass --overwrite" in refuses(*given, tmp_path / "mine.csv")
    assert "a file is in the way" in refuses(*given, tmp_path / "mine.csv" / "out.csv")
    assert (tmp_path / "mine.csv").read_text() == "mine"
    (tmp_path / "folder.csv").mkdir()
    assert "must name a file, got the folder" in refuses(*given, tmp_path / "folder.csv")
    assert "File name too long" in refuses(*given, tmp_path / f"{'x' * 300}.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.csv", "mine.csv"]


def test_a_run_folder_cannot_be_a_file(rows, refuses, tmp_path):
    (tmp_path / "mine").write_text("mine")
    said = refuses("train", rows, "--target", "y", "--epochs", "1", "-o", tmp_path / "mine")
    assert "a file is in the way" in said
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("command", ["predict", "explain", "report"])
def test_a_missing_output_folder_is_made_and_nothing_else(run, rows, run_hma, tmp_path, command):
    words = {"predict": [run, rows], "explain": [run, rows, "--index", "1"], "report": [run]}
    output = tmp_path / "not" / "there" / ("out.csv" if command == "predict" else "out.html")
    ended = run_hma(command, *words[command], "-o", output)
    assert ended.code == 0, ended.err
    assert str(output) in ended.out
    assert list(output.parent.iterdir()) == [output]


def test_an_output_folder_that_cannot_be_made_is_named_as_it_was_given(run, rows, refuses):
    said = refuses("predict", run, rows, "-o", "/proc/none/out.csv")
    assert "/proc/none" in said
    assert "writing-" not in said  # the folder in which a file is written


def test_without_test_rows_the_validation_scores_are_shown_as_such(rows, run_hma, tmp_path):
    words = ["--target", "y", "--epochs", "1", "--test", "0", "-o", tmp_path / "run"]
    ended = run_hma("train", rows, *words)
    assert "Validation scores: there are no test rows" in ended.out
    record = Run.open(tmp_path / "run").record("memory")
    (kept,) = [epoch for epoch in record.epochs if epoch["epoch"] == record.selected_epoch]
    assert f"{kept['validation']['alone']['nll']:.4f}" in ended.out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "No rows were set aside to test on: these are the validation rows" in page


def test_parquet_holds_the_numbers_of_the_csv_file(run, rows, run_hma, tmp_path):
    for ending in ("csv", "parquet"):
        assert run_hma("predict", run, rows, "-o", tmp_path / f"out.{ending}").code == 0
    text = pandas.read_csv(tmp_path / "out.csv")
    typed = pandas.read_parquet(tmp_path / "out.parquet")
    assert list(typed.columns) == list(text.columns)
    assert typed["label"].tolist() == text["label"].tolist()
    assert typed["row"].tolist() == list(range(40))
    numbers = [name for name in text if name.startswith("probability")]
    assert typed[numbers].round(6).equals(text[numbers])


def test_predictions_of_another_format_are_refused(run, rows, refuses, tmp_path):
    said = refuses("predict", run, rows, "-o", tmp_path / "out.xlsx")
    assert "--output must end in .csv or .parquet, got" in said


def test_a_report_of_a_run_is_a_page_or_a_card(run, refuses, tmp_path):
    for name in ("card.txt", "card.docx", "card"):
        said = refuses("report", run, "-o", tmp_path / name)
        assert said.startswith(
            "hma: --output must end in .html, for the page of a run, or .md, for"
        )
        assert not (tmp_path / name).exists()


def test_changed_data_is_neither_explained_nor_reported(run, rows, refuses):
    before = rows.read_bytes()
    try:
        rows.write_bytes(before.replace(b"plain", b"PLAIN", 1))
        for words in (["explain", run, rows, "--index", "0"], ["report", run]):
            assert f"has changed since {run} was trained on it" in refuses(*words)
    finally:
        rows.write_bytes(before)
    assert Run.open(run).options.source == str(rows)


def test_a_report_of_a_mistyped_run_runs_no_program(refuses, tmp_path, monkeypatch):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "mine.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    assert "is not a run: it has no run.json" in refuses("report", "runs/typo")
    assert "is not a run: it has no run.json" in refuses("report", "experiments")
    assert not (tmp_path / "ran").exists()


def test_a_file_has_the_permissions_that_the_user_asked_for(run, rows, run_hma, tmp_path):
    before = os.umask(0o077)
    try:
        run_hma("predict", run, rows, "-o", tmp_path / "out.csv")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.csv").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["places.json", "preparation.json", "run.json", "deployment.json"])
@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"train": [1e9]}', "[" * 5000])
def test_damaged_files_of_a_run_are_one_line(run, rows, refuses, name, content):
    before = (run / name).read_bytes()
    try:
        (run / name).write_text(content)
        said = refuses("explain", run, rows, "--index", "0")
        assert name in said
    finally:
        (run / name).write_bytes(before)


def test_scores_of_rows_that_were_trained_on_are_said_to_be_too_good(run, rows, run_hma, tmp_path):
    opened = Run.open(run).places
    trained = len(opened["train"]) + len(opened["validation"])
    said = "of these rows were trained on or taught, so the scores are too good"
    assert f"{trained} {said}" in run_hma("evaluate", run, rows).out
    frame = pandas.read_csv(rows)
    places = Run.open(run).places
    some = frame.iloc[[*places["train"][:3], *places["test"]]]
    some.to_csv(tmp_path / "some.csv", index=False)
    assert f"3 {said}" in run_hma("evaluate", run, tmp_path / "some.csv").out
    frame.iloc[places["test"]].to_csv(tmp_path / "held.csv", index=False)
    assert said not in run_hma("evaluate", run, tmp_path / "held.csv").out


def test_a_pipe_is_told_how_far_predictions_are(run, rows, run_hma, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "progress_for_terminal", lambda lines: LineProgress(every=0.0))
    ended = run_hma("predict", run, rows, "-o", tmp_path / "out.csv", "--batch-size", "10")
    told = [line for line in ended.err.splitlines() if line.startswith("predicting ")]
    assert [line.split()[1] for line in told] == ["25%,", "50%,", "75%,", "100%,"]


def test_one_candidate_can_be_asked_and_one_that_is_not_there_is_named(
    run, rows, run_hma, refuses, tmp_path
):
    run_hma("predict", run, rows, "-o", tmp_path / "a.csv")
    run_hma("predict", run, rows, "-o", tmp_path / "b.csv", "--with", "memory")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    said = refuses("predict", run, rows, "-o", tmp_path / "c.csv", "--with", "boosting")
    assert "has no 'boosting'; it has memory" in said
    assert not (tmp_path / "c.csv").exists()
    said = refuses("predict", run, rows, "-o", tmp_path / "c.csv", "--with", "boostin")
    assert "--with must be one of" in said
    assert "did you mean 'boosting'?" in said


def test_the_card_of_a_run_is_written_by_its_suffix_and_the_commands_on_it_run(
    run, rows, run_hma, refuses, tmp_path, monkeypatch
):
    card = tmp_path / "README.md"
    assert run_hma("report", run, "-o", card).out.strip().endswith(f"wrote {card}")
    (block,) = re.findall(r"```console\n(.*?)```", card.read_text(), re.DOTALL)
    monkeypatch.chdir(run.parent)
    for line in block.splitlines():
        _, *words = line.replace("NEW", str(rows)).split()
        assert run_hma(*words).code == 0, line
    assert "exists already; pass --overwrite" in refuses("report", run, "-o", card)
    assert run_hma("report", run, "--format", "markdown").code == 0
    assert (run / "README.md").read_text() == card.read_text()
