"""From a CSV file to predictions, explanations and a page, with the numbers checked."""

import os
import re
import signal
import subprocess
import sys
import time

import pandas
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score

from hma.io.json_files import read_json, write_json
from hma.runs import Run
from hma.training import Record

QUICK = ["--target", "diagnosis", "--epochs", "4", "--memory-size", "64", "--slots-per-class", "4"]


@pytest.fixture(scope="module")
def cancer(tmp_path_factory):
    frame = load_breast_cancer(as_frame=True).frame
    frame["diagnosis"] = frame.pop("target").map({0: "malignant", 1: "benign"})
    folder = tmp_path_factory.mktemp("cancer")
    frame.to_csv(folder / "cancer.csv", index=False)
    return folder / "cancer.csv"


@pytest.fixture(scope="module")
def trained(cancer, run_hma):
    run = cancer.parent / "run"
    ended = run_hma("train", cancer, *QUICK, "-o", run)
    assert ended.code == 0, ended.err
    return run, ended


def test_training_prints_the_scores_of_its_records(trained):
    run, ended = trained
    for which in ("plain", "memory"):
        record = Record.read(run / which / "record.json")
        for scores in record.tests["test"].values():
            assert scores["accuracy"] > 0.85
            assert f"{scores['accuracy']:.4f}" in ended.out
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_the_record_says_how_the_rows_were_split(trained):
    run, _ = trained
    record = Record.read(run / "memory" / "record.json")
    assert record.setup["task"]["facts"]["rows"] == {"train": 370, "validation": 85, "test": 114}
    assert "stratified" in record.setup["task"]["facts"]["split"]


def test_predictions_have_the_accuracy_that_evaluate_prints(trained, cancer, run_hma, tmp_path):
    run, _ = trained
    printed = run_hma("evaluate", run, cancer).out
    ended = run_hma("predict", run, cancer, "-o", tmp_path / "out.csv")
    assert "wrote 569 predictions" in ended.out
    truth, said = pandas.read_csv(cancer)["diagnosis"], pandas.read_csv(tmp_path / "out.csv")
    accuracy = accuracy_score(truth, said["label"])
    row = next(line for line in printed.splitlines() if "mixture " in line and "alone" in line)
    assert f"{accuracy:.4f}" in row
    shares = said[["probability of benign", "probability of malignant"]]
    assert shares.sum(axis=1).sub(1).abs().max() < 1e-5
    assert (shares.max(axis=1) == said["probability"]).all()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("given", ["csv", "parquet"])
def test_no_rows_give_a_header_and_say_so(trained, cancer, run_hma, tmp_path, ending, given):
    run, _ = trained
    empty, output = tmp_path / f"empty.{given}", tmp_path / f"out.{ending}"
    frame = pandas.read_csv(cancer).iloc[:0]
    frame.to_csv(empty, index=False) if given == "csv" else frame.to_parquet(empty)
    ended = run_hma("predict", run, empty, "-o", output)
    assert (ended.code, ended.err) == (0, "")
    assert f"{empty} has 0 rows" in " ".join(ended.out.split())
    said = pandas.read_csv(output) if ending == "csv" else pandas.read_parquet(output)
    names = ["row", "label", "probability", "probability of benign", "probability of malignant"]
    assert (list(said.columns), len(said)) == (names, 0)


def test_no_rows_cannot_be_scored(trained, cancer, refuses, tmp_path):
    run, _ = trained
    pandas.read_csv(cancer).iloc[:0].to_csv(tmp_path / "empty.csv", index=False)
    said = refuses("evaluate", run, tmp_path / "empty.csv")
    assert re.search(
        r"empty\.csv has names of columns \(.*\) and no rows; add rows below them$", said
    )


def test_the_table_of_candidates_names_shares_losses_and_what_is_deployed(trained):
    run, ended = trained
    deployed = Run.open(run).deployed
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    for which, name in [("memory", "memory"), ("boosting", "gradient boosting")]:
        assert f"{name} {deployed.shares[which]:.0%} {deployed.losses[which]:.4f}" in lines
    assert f"mixture (deployed) {deployed.losses['mixture']:.4f}" in lines
    scored = deployed.tests["test"]
    assert any(f"mixture alone {scored['accuracy']:.4f}" in line for line in lines)


def test_rows_without_labels_get_the_same_predictions(trained, cancer, run_hma, tmp_path):
    run, _ = trained
    unlabelled = tmp_path / "new.csv"
    pandas.read_csv(cancer).drop(columns="diagnosis").to_csv(unlabelled, index=False)
    run_hma("predict", run, cancer, "-o", tmp_path / "with.csv")
    run_hma("predict", run, unlabelled, "-o", tmp_path / "without.csv", "--batch-size", "33")
    with_labels, without = (pandas.read_csv(tmp_path / f"{n}.csv") for n in ("with", "without"))
    assert (with_labels["label"] == without["label"]).all()
    assert with_labels["probability"].sub(without["probability"]).abs().max() < 1e-5


def test_predictions_are_never_overwritten_silently(trained, cancer, refuses, tmp_path):
    mine = tmp_path / "out.csv"
    mine.write_text("mine")
    assert "exists already; pass --overwrite" in refuses("predict", trained[0], cancer, "-o", mine)
    assert mine.read_text() == "mine"


def test_an_explanation_names_training_rows_and_slots(trained, cancer, run_hma, tmp_path):
    run, _ = trained
    ended = run_hma("explain", run, cancer, "--index", 7, "-o", tmp_path / "why.html")
    assert ended.code == 0, ended.err
    assert "is the sum of" in ended.out
    assert ended.out.count("training row") >= 10  # by part, by nearness, by share
    assert ended.out.count("slot ") >= 5
    assert "neighbour" not in ended.out  # the row was asked about alone
    page = (tmp_path / "why.html").read_text()
    assert page.count("training row:") == 10  # by part and by share
    assert "http:" not in page
    assert "https:" not in page
    assert "Content-Security-Policy" in page


def test_an_explanation_in_a_batch_is_refused_where_rows_answer_alone(trained, cancer, refuses):
    said = refuses("explain", trained[0], cancer, "--index", 7, "--context", "batch")
    assert "context must be one of alone, got 'batch'" in said


def test_the_same_command_again_shows_the_finished_run(trained, cancer, run_hma):
    run, first = trained
    before = (run / "memory" / "record.json").stat().st_mtime_ns
    again = run_hma("train", cancer, *QUICK, "-o", run)
    assert (run / "memory" / "record.json").stat().st_mtime_ns == before
    scores = [line for line in first.out.splitlines() if " memory " in line]
    assert scores == [line for line in again.out.splitlines() if " memory " in line]


def test_a_run_with_other_options_is_refused_untouched(trained, cancer, refuses):
    run, _ = trained
    before = (run / "run.json").read_text()
    said = refuses("train", cancer, *QUICK, "--seed", 1, "-o", run)
    assert "seed was 0, is 1 now" in said
    assert (run / "run.json").read_text() == before


def test_wrong_columns_labels_and_rows_are_named(trained, cancer, refuses, tmp_path):
    run, _ = trained
    frame = pandas.read_csv(cancer)
    other = tmp_path / "other.csv"
    frame.rename(columns={"mean radius": "radius"}).to_csv(other, index=False)
    said = refuses("predict", run, other, "-o", tmp_path / "out.csv")
    assert "mean radius" in said
    assert "radius" in said
    frame.assign(diagnosis="unclear").to_csv(other, index=False)
    assert "label 'unclear' was not among the classes" in refuses("evaluate", run, other)
    assert "index must be from 0 to 568" in refuses("explain", run, cancer, "--index", 569)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.rename(columns={"diagnosis": "diag"}), "did you mean 'diag'"),
        (lambda f: f.assign(diagnosis="benign"), "a classifier needs two classes"),
        (lambda f: f.assign(diagnosis=f.diagnosis.where(f.index > 2)), "no label in 3 of 569 rows"),
        (
            lambda f: f.assign(diagnosis=f.diagnosis.where(f.index != 0, "rare")),
            "class 'rare' has one row only",
        ),
        (lambda f: f.head(0), "no rows"),
    ],
    ids=["missing column", "one class", "missing targets", "lone example", "no rows"],
)
def test_data_that_cannot_be_learned_from_is_refused(change, message, cancer, refuses, tmp_path):
    change(pandas.read_csv(cancer)).to_csv(tmp_path / "bad.csv", index=False)
    said = refuses("train", tmp_path / "bad.csv", *QUICK, "-o", tmp_path / "run")
    assert message in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lr", "-1"], "lr must be above 0, got -1"),
        (["--hma-dropout", "3"], "--hma-dropout must be at least 0 and below 1, got 3"),
        (["--backbone", "gni"], "did you mean 'gin'"),
        (["--backbone", "gin"], "reads rows of kind graph"),
        (["--schedule", "cosin"], "did you mean 'cosine'"),
        (["--image-size", "32"], "image_size is for data of kind 'image'"),
        (["--hma-label-dim", "63", "--memory", "hma"], "num_heads must divide"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_options_that_cannot_work_are_refused(arguments, message, cancer, refuses, tmp_path):
    said = refuses("train", cancer, *QUICK[:2], *arguments, "-o", tmp_path / "run")
    assert message in said.replace("│ ", "")
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_version_is_refused(trained, cancer, refuses, tmp_path):
    values = read_json(trained[0] / "run.json", dict)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    write_json(foreign / "run.json", values | {"schema": 99}, sealed=True)
    assert "another version of hma (schema 99" in refuses("evaluate", foreign, cancer)
    assert "is not a run" in refuses("evaluate", tmp_path, cancer)


def test_a_full_disk_ends_with_one_line_and_keeps_earlier_results(
    trained, cancer, refuses, monkeypatch, tmp_path
):
    import errno

    run, _ = trained
    before = (run / "report.html").read_bytes()

    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    assert "No space left on device" in refuses("report", run)
    assert (run / "report.html").read_bytes() == before


SAME_THREADS = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
LONGER = [*QUICK[:2], "--epochs", "10", "--memory-size", "64", "--checkpoint-every-steps", "5"]
LONGER += ["--schedule", "cosine", "--no-report"]


@pytest.fixture(scope="module")
def undisturbed(cancer, run_hma):
    run = cancer.parent / "undisturbed"
    assert run_hma("train", cancer, *LONGER, "-o", run).code == 0
    return run


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_ends_like_an_undisturbed_one(
    how, cancer, undisturbed, run_hma, tmp_path
):
    command = [sys.executable, "-m", "hma", "train", str(cancer), *LONGER]
    command += ["-o", str(tmp_path / "cut")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=SAME_THREADS, text=True)
    marks = tmp_path / "cut" / "memory" / "checkpoints"
    while process.poll() is None and not (marks.exists() and any(marks.iterdir())):
        time.sleep(0.02)
    process.send_signal(how)
    said = process.communicate()[1].splitlines()
    assert process.returncode == (-how if how == signal.SIGKILL else 128 + how)
    if how != signal.SIGKILL:
        assert len(said) == 1
        assert said[0].startswith("hma: stopped by Ctrl-C after step ")
        assert said[0].endswith("start the same run again to go on from there")
    assert run_hma("train", cancer, *LONGER, "-o", tmp_path / "cut").code == 0
    for which in ("plain", "memory"):
        folders = undisturbed / which, tmp_path / "cut" / which
        whole, cut = (Record.read(folder / "record.json") for folder in folders)
        assert cut.repeatable() == whole.repeatable()
        first, second = (load_file(folder / "weights.safetensors") for folder in folders)
        assert all((first[name] == second[name]).all() for name in first)
