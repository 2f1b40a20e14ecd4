"""Options that cannot be used: all of them at once, by the names a user types, in plain words."""

import pytest


def test_every_option_that_cannot_be_used_is_named_at_once(refuses, tmp_path):
    words = ["--epochs", "0", "--lr", "-1", "--queue-size", "-4", "--batch-size", "x"]
    words += ["--dropout", "half", "--balance", "los", "--seed", "-3", "--max-length", "0"]
    said = refuses("train", "digits", *words, "-o", tmp_path / "run")
    assert "hma: 8 options cannot be used:" in said
    for problem in (
        "--epochs must be at least 1, got 0",
        "--lr must be above 0, got -1.0",
        "--queue-size must be at least 0, got -4",
        "--batch-size must be a whole number, got 'x'",
        "--dropout must be a number, got 'half'",
        "--balance must be one of 'none', 'loss', 'sampler', got 'los'; did you mean 'loss'?",
        "--seed must be at least 0, got -3",
        "--max-length must be at least 1, got 0",
    ):
        assert said.count(problem) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "digits", "--top-k", "0"], "--top-k must be at least 1, got 0"),
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
