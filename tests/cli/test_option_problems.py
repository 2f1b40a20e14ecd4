"""Options that cannot be used: all of them at once, by the names a user types, in plain words."""

import pytest


def test_every_option_that_cannot_be_used_is_named_at_once(refuses, tmp_path):
    words = ["--epochs", "0", "--lr", "-1", "--memory-size", "-4", "--batch-size", "x"]
    words += ["--hma-dropout", "half", "--balance", "los", "--seed", "-3", "--max-length", "0"]
    said = refuses("train", "digits", *words, "-o", tmp_path / "run")
    assert "hma: 8 options cannot be used:" in said
    for problem in (
        "--epochs must be at least 1, got 0",
        "--lr must be above 0, got -1.0",
        "--memory-size must be at least 0, got -4",
        "--batch-size must be a whole number, got 'x'",
        "--hma-dropout must be a number, got 'half'",
        "--balance must be one of 'none', 'loss', 'sampler', got 'los'; did you mean 'loss'?",
        "--seed must be at least 0, got -3",
        "--max-length must be at least 1, got 0",
    ):
        assert said.count(problem) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "digits", "--hma-top-k", "0"], "--hma-top-k must be at least 1, got 0"),
        (
            ["train", "digits", "--hma-queue-size", "8"],
            "--hma-queue-size is for --memory hma, got --memory vote; leave it out, or train with "
            "--memory hma",
        ),
        (
            ["train", "digits", "--memory", "hma", "--key-dim", "8"],
            "--key-dim is for --memory vote, got --memory hma; leave it out, or train with "
            "--memory vote",
        ),
        (
            ["train", "digits", "--memory-size", "0"],
            "--memory-size and --slots-per-class are both 0, so nobody votes; turn one on, or take "
            "the backbone without a memory",
        ),
        (
            ["train", "digits", "--evaluate-every", "2", "--evaluate-every-steps", "3"],
            "--evaluate-every must be 1 beside --evaluate-every-steps, got 2",
        ),
        (["train", "digits", "--epochs", "1.5"], "--epochs must be a whole number, got '1.5'"),
        (["train", "digits", "--devices", "0"], "--devices must be at least 1, got 0"),
        (["quickstart", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["run", "T1", "--workers", "0"], "--workers must be at least 1, got 0"),
        (
            ["predict", "run", "rows.csv", "-o", "x.csv", "--context", "alon"],
            "--context must be one of 'alone', 'batch', got 'alon'; did you mean 'alone'?",
        ),
        (
            ["explain", "run", "rows.csv", "--index", "first"],
            "--index must be a whole number, got 'first'",
        ),
    ],
)
def test_one_problem_is_one_line(refuses, words, message):
    assert refuses(*words) == f"hma: {message}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["predict", "run"],
            "hma predict needs SOURCE: rows of the same kind as at training; write hma predict RUN "
            "SOURCE --output OUTPUT",
        ),
        (
            ["predict", "run", "rows.csv"],
            "hma predict needs --output OUTPUT: the file, .csv or .parquet; write hma predict RUN "
            "SOURCE --output OUTPUT",
        ),
        (
            ["evaluate"],
            "hma evaluate needs RUN: a folder that hma train wrote; write hma evaluate RUN SOURCE",
        ),
        (
            ["search", "T3"],
            "hma search needs --only ONLY: TASK/METHOD: the row, and the task to search it on; "
            "write hma search TABLE --only ONLY",
        ),
        (
            ["train", "digits", "--epochs"],
            "--epochs needs a value after it; hma train --help lists the options",
        ),
        (
            ["evaluate", "run", "a.csv", "b.csv"],
            "hma evaluate has no use for 'b.csv'; write hma evaluate RUN SOURCE",
        ),
        (
            ["train", "digits", "--tarte", "x"],
            "Unknown option: --tarte. Did you mean --target? hma train --help lists what there is",
        ),
    ],
)
def test_what_is_missing_or_too_much_is_one_line(refuses, words, message):
    assert refuses(*words) == f"hma: {message}"


def test_training_without_data_says_what_data_may_be(refuses):
    said = refuses("train")
    assert said.startswith("hma: hma train needs SOURCE: a folder of class-named image folders")
    assert said.endswith("; write hma train SOURCE")
