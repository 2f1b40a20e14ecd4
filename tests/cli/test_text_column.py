"""Sentences in a column of a table in Latin-1, against the same sentences in lines of JSON."""

import json

import pandas
import pytest
from small_sources import texts

from hma.extras import ensure_torchvision
from hma.runs import Run

OPTIONS = ["--freeze-backbone", "--epochs", "2", "--no-compare", "--no-report"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers")
    ensure_torchvision()
    folder = tmp_path_factory.mktemp("reviews")
    texts(folder)
    lines = pandas.read_json(folder / "old.jsonl", lines=True)
    lines["text"] += " café"
    lines.to_json(folder / "reviews.jsonl", orient="records", lines=True)
    table = lines.assign(stars=range(len(lines))).rename(columns={"text": "words"})
    table.to_csv(folder / "reviews.csv", index=False, encoding="latin-1")
    return folder


def trained(run_hma, folder, name, *options):
    run = folder / f"run of {name}"
    if not run.exists():
        backbone = ["--backbone", f"hf:{folder / 'encoder'}"]
        ended = run_hma("train", folder / name, *backbone, *OPTIONS, *options, "-o", run)
        assert ended.code == 0, ended.err
    return run


@pytest.fixture
def run(run_hma, folder):
    of_table = ["--target", "label", "--text", "words", "--encoding", "latin-1"]
    return trained(run_hma, folder, "reviews.csv", *of_table)


def test_a_column_of_a_latin_1_table_gives_the_answers_of_lines_of_json(
    folder, run, run_hma, refuses
):
    other = trained(run_hma, folder, "reviews.jsonl")
    kept = json.loads((run / "run.json").read_text())
    assert (kept["text"], kept["encoding"]) == ("words", "latin-1")
    assert Run.open(run).places == Run.open(other).places
    said = {}
    for asked, name in [(run, "reviews.csv"), (other, "reviews.jsonl")]:
        ended = run_hma("predict", asked, folder / name, "-o", folder / f"{name} said.csv")
        assert ended.code == 0, ended.err
        said[name] = (folder / f"{name} said.csv").read_text()
    assert said["reviews.csv"] == said["reviews.jsonl"]
    # a run on a column takes lines of JSON too, in the encoding that is named
    lines = run_hma("predict", run, folder / "reviews.jsonl", "--encoding", "utf-8",
                    "-o", folder / "lines said.csv")  # fmt: skip
    assert lines.code == 0, lines.err
    assert (folder / "lines said.csv").read_text() == said["reviews.csv"]
    wrong = refuses("evaluate", run, folder / "reviews.csv", "--encoding", "utf-8")
    assert "reviews.csv is not written in UTF-8 (byte 0xe9 cannot be read)" in wrong


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "RUN", "ROWS"],
        ["explain", "RUN", "ROWS", "--index", "3"],
        ["memory", "RUN", "--like", "ROWS", "--top", "2"],
        ["audit", "RUN", "--data", "ROWS"],
        ["remember", "RUN", "ROWS", "--yes"],
    ],
)
def test_every_command_reads_the_table_as_training_did(folder, run, run_hma, refuses, words):
    asked = [{"RUN": run, "ROWS": folder / "reviews.csv"}.get(word, word) for word in words]
    ended = run_hma(*asked)
    assert ended.code == 0, ended.err
    assert "caf\u00c3" not in ended.out
    assert "is not written in UTF-8" in refuses(*asked, "--encoding", "utf-8")


def test_the_encoding_of_a_table_is_guessed_and_said(tmp_path, run_hma):
    (tmp_path / "a.csv").write_text("größe,y\n1,a\n2,b\n", encoding="latin-1")
    ended = run_hma("train", tmp_path / "a.csv", "--target", "z")
    assert "is not UTF-8, read as latin-1; else name --encoding" in " ".join(ended.out.split())
    assert ended.code == 2
    assert "it has 'größe', 'y'" in ended.err  # and it is read so
