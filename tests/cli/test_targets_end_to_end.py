"""From a CSV file with a number, or with several yes/no labels, to predictions and a page."""

import json

import numpy as np
import pandas
import pytest
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

QUICK = ["--epochs", "2", "--memory-size", "32", "--slots-per-class", "2"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("targets")
    draw = np.random.default_rng(0)
    x = draw.normal(size=(160, 4))
    frame = pandas.DataFrame(x, columns=list("abcd"))
    frame["price"] = 1000 + 50 * (x @ [1.0, -1.0, 0.5, 0.0])
    frame.to_csv(folder / "number.csv", index=False)
    told = (x[:, :3] > 0).astype(float)
    told[draw.random(told.shape) < 0.3] = np.nan
    labelled = frame.drop(columns="price")
    labelled[["p", "q", "r"]] = told
    labelled.to_csv(folder / "labels.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def number(rows, run_hma):
    options = ["--target", "price", "--task", "regression", *QUICK]
    ended = run_hma("train", rows / "number.csv", *options, "-o", rows / "number")
    assert ended.code == 0, ended.err
    return rows / "number", ended.out


@pytest.fixture(scope="module")
def labels(rows, run_hma):
    options = ["--target", "p", "--target", "q", "--target", "r", *QUICK]
    ended = run_hma("train", rows / "labels.csv", *options, "-o", rows / "labels")
    assert ended.code == 0, ended.err
    return rows / "labels", ended.out


def printed_row(text, context="alone"):
    return next(
        line.split() for line in text.splitlines() if "mixture " in line and context in line
    )


def test_predicted_numbers_have_the_error_that_evaluate_prints(number, rows, run_hma, tmp_path):
    run, said = number
    assert "the number price" in said
    ended = run_hma("predict", run, rows / "number.csv", "-o", tmp_path / "out.csv")
    assert ended.code == 0, ended.err
    found = pandas.read_csv(tmp_path / "out.csv")
    assert list(found.columns) == ["row", "price"]
    truth = pandas.read_csv(rows / "number.csv")["price"]
    rmse = float(np.sqrt(((found["price"] - truth) ** 2).mean()))
    printed = printed_row(run_hma("evaluate", run, rows / "number.csv").out)
    assert float(printed[-3]) == pytest.approx(rmse, abs=5.1e-5)  # as many digits as shown


def test_predicted_labels_have_the_area_that_evaluate_prints(labels, rows, run_hma, tmp_path):
    run, said = labels
    assert "3 yes/no labels" in said
    assert run_hma("predict", run, rows / "labels.csv", "-o", tmp_path / "out.csv").code == 0
    found = pandas.read_csv(tmp_path / "out.csv")
    assert list(found.columns) == ["row", *(f"probability of {name}" for name in "pqr")]
    truth = pandas.read_csv(rows / "labels.csv")
    areas = []
    for name in "pqr":
        known = truth[name].notna()
        areas.append(roc_auc_score(truth[name][known], found[f"probability of {name}"][known]))
    printed = printed_row(run_hma("evaluate", run, rows / "labels.csv").out)
    assert float(printed[-3]) == pytest.approx(np.mean(areas), abs=1e-4)


def test_explanations_say_numbers_and_labels_in_words(number, labels, rows, run_hma):
    ended = run_hma("explain", number[0], rows / "number.csv", "--index", "3")
    assert ended.code == 0, ended.err
    assert "price about 1e+03" in ended.out
    ended = run_hma("explain", labels[0], rows / "labels.csv", "--index", "3")
    assert ended.code == 0, ended.err
    assert "p: yes" in ended.out


def test_both_have_a_page(number, labels):
    assert "What was said against what is true" in (number[0] / "report.html").read_text()
    assert "Label by label" in (labels[0] / "report.html").read_text()


def test_a_column_of_words_is_no_number(rows, refuses, tmp_path):
    frame = pandas.read_csv(rows / "number.csv").astype({"price": str})
    frame.loc[::2, "price"] = "dear"
    frame.to_csv(tmp_path / "half.csv", index=False)
    options = ["--target", "price", "--task", "regression", *QUICK, "-o", tmp_path / "run"]
    assert "finite numbers" in refuses("train", tmp_path / "half.csv", *options)
    assert not (tmp_path / "run").exists()


PAPERS = ["--epochs", "4", "--no-compare", "--no-report"]
PAPERS += ["--memory", "hma", "--hma-queue-size", "16", "--hma-slots-per-class", "2"]


def test_slots_start_from_the_rows_of_a_command_and_contrast_counts(rows, run_hma, tmp_path):
    labels = ["--target", "p", "--target", "q", "--target", "r", *PAPERS]
    for name, more in (("kmeans", ["--hma-contrastive", "0.5"]), ("kmeans", []), ("normal", [])):
        run = tmp_path / (name + "".join(more))
        options = [*labels, "--hma-slot-init", name, *more, "-o", run]
        ended = run_hma("train", rows / "labels.csv", *options)
        assert ended.code == 0, ended.err
        assert "noise" not in ended.err
    first = [read_first_loss(tmp_path / name) for name in ("kmeans--hma-contrastive0.5", "kmeans")]
    assert first[0] > first[1] != read_first_loss(tmp_path / "normal")
    weights = load_file(tmp_path / "kmeans" / "memory" / "weights.safetensors")
    assert not weights["synthetic.waiting"]


def read_first_loss(run):
    record = json.loads((run / "memory" / "record.json").read_text())
    return record["epochs"][0]["train_loss"]


def test_a_contrast_of_numbers_is_refused(rows, refuses, tmp_path):
    options = ["--target", "price", "--task", "regression", "--hma-contrastive", "0.1", *PAPERS]
    said = refuses("train", rows / "number.csv", *options, "-o", tmp_path / "run")
    assert "contrastive needs labels that rows can share, classes or yes/no, got numbers" in said
