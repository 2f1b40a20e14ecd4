"""Images, graphs, arrays, text and built-in data through the same commands."""

import gzip

import numpy as np
import pandas
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from hma.training import Record

QUICK = ["--epochs", "3", "--memory-size", "32", "--slots-per-class", "2"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    digits = load_digits()
    names = {0: "zero", 1: "<script>alert(1)</script>".replace("/", "")}
    for place, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        if digit in names:
            (folder / "train" / names[digit]).mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray((image * 15).astype(np.uint8)).resize((16, 16))
            picture.save(folder / "train" / names[digit] / f"{place}.jpg")
    return folder


def scores_of(run):
    return Record.read(run / "memory" / "record.json").tests["test"]["alone"]


def test_a_folder_of_jpegs(pictures, run_hma, tmp_path):
    run = tmp_path / "run"
    ended = run_hma("train", pictures / "train", *QUICK, "--image-size", "16", "-o", run)
    assert ended.code == 0, ended.err
    assert scores_of(run)["accuracy"] > 0.9
    page = (run / "report.html").read_text()
    assert "<script>alert(1)<script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    zero = pictures / "train" / "zero"
    ended = run_hma("predict", run, zero, "-o", tmp_path / "out.csv")
    said = pandas.read_csv(tmp_path / "out.csv")
    assert len(said) == len(list(zero.iterdir()))
    assert (said["label"] == "zero").mean() > 0.9
    why = tmp_path / "why.html"
    assert run_hma("explain", run, zero, "--index", 7, "-o", why).code == 0
    # the row, and five training rows by effect, by nearness and by attention
    assert why.read_text().count("data:image/png") == 16


def test_an_unreadable_image_is_named_and_can_be_skipped(pictures, run_hma, refuses, tmp_path):
    bad = pictures / "train" / "zero" / "torn.jpg"
    bad.write_bytes(b"no picture")
    try:
        command = ["train", pictures / "train", *QUICK, "--image-size", "16", "--no-report"]
        said = refuses(*command, "-o", tmp_path / "run")
        assert "torn.jpg" in said
        assert "skip-bad-files" in said.replace("_", "-")
        ended = run_hma(*command, "--skip-bad-files", "-o", tmp_path / "run")
        assert ended.code == 0, ended.err
        assert "left out 1 unreadable files" in ended.out
    finally:
        bad.unlink()


def test_an_empty_folder_is_refused(refuses, tmp_path):
    (tmp_path / "nothing").mkdir()
    said = refuses("train", tmp_path / "nothing", *QUICK, "-o", tmp_path / "run")
    assert "nothing" in said


def test_arrays_with_imbalanced_classes(run_hma, tmp_path):
    draw = np.random.default_rng(0)
    y = (draw.random(400) < 0.1).astype(int)
    x = draw.normal(size=(400, 5)) + 2 * y[:, None]
    np.savez(tmp_path / "data.npz", x=x, y=y)
    run = tmp_path / "run"
    ended = run_hma("train", tmp_path / "data.npz", *QUICK, "--balance", "sampler", "-o", run)
    assert ended.code == 0, ended.err
    assert scores_of(run)["matthews"] > 0.5


def test_built_in_digits_with_few_labels(run_hma, tmp_path):
    options = [*QUICK[2:], "--epochs", "25", "--no-compare", "--no-report"]
    ended = run_hma("train", "digits:10", *options, "-o", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert scores_of(tmp_path / "run")["accuracy"] > 0.7
    assert " memory " in ended.out
    assert "plain backbone" not in ended.out


@pytest.mark.data
def test_graphs_of_the_tu_collection(data_root, run_hma, tmp_path):
    run = tmp_path / "run"
    ended = run_hma("train", "tu:MUTAG", "--data-root", data_root, *QUICK, "-o", run)
    assert ended.code == 0, ended.err
    assert "backbone gin" in ended.out
    assert scores_of(run)["accuracy"] > 0.6
    ended = run_hma("explain", run, "tu:MUTAG", "--index", 3)
    assert "training row" in ended.out


@pytest.mark.slow
def test_molecules_of_ogb(run_hma, refuses, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, chains = tmp_path / "ogbg_molbace", range(2, 22)
    smiles = [(1, "C" * size) for size in chains] + [(0, "C" * size + "O") for size in chains]
    splits = {"train": range(1, 40, 2), "valid": range(0, 40, 4), "test": range(2, 40, 4)}
    lines = {"mapping/mol": ["yes,smiles", *(f"{label},{text}" for label, text in smiles)]}
    lines |= {f"split/scaffold/{name}": map(str, rows) for name, rows in splits.items()}
    for part, rows in lines.items():
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        packed = gzip.compress("".join(f"{row}\n" for row in rows).encode())
        (folder / f"{part}.csv.gz").write_bytes(packed)
    where = ["ogb:molbace", "--data-root", tmp_path]
    run = tmp_path / "run"
    ended = run_hma("train", *where, "--epochs", "1", "--no-report", "-o", run)
    assert ended.code == 0, ended.err
    assert set(scores_of(run)) == {"auroc", "average precision", "nll"}
    ended = run_hma("predict", run, where[0], "-o", tmp_path / "a.csv")
    assert ended.code == 0, ended.err
    assert len(pandas.read_csv(tmp_path / "a.csv")) == 40
    said = refuses("train", "ogb:molbce", "-o", tmp_path / "other")
    assert "did you mean 'ogb:molbace'" in said


def test_text_with_a_local_encoder(run_hma, tmp_path):
    transformers = pytest.importorskip("transformers")
    words = ["good", "fine", "great", "bad", "poor", "awful", "film", "plot"]
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]))
    transformers.BertTokenizerFast(str(encoder / "vocab.txt")).save_pretrained(encoder)
    config = transformers.BertConfig(
        vocab_size=12, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(encoder)
    lines = pandas.DataFrame(
        [
            {"text": f"{word} {noun} {extra}", "label": label}
            for label, some in (("up", words[:3]), ("down", words[3:6]))
            for word in some
            for noun in words[6:]
            for extra in ("", "film", "plot plot", "film film", word)
        ]
    )
    lines.to_json(tmp_path / "reviews.jsonl", orient="records", lines=True)
    run = tmp_path / "run"
    options = [
        "--epochs",
        "12",
        "--lr",
        "0.003",
        "--batch-size",
        "16",
        "--memory-size",
        "16",
        "--max-length",
        "16",
    ]
    ended = run_hma(
        "train", tmp_path / "reviews.jsonl", "--backbone", f"hf:{encoder}", *options, "-o", run
    )
    assert ended.code == 0, ended.err
    assert scores_of(run)["accuracy"] > 0.8
    explained = run_hma("explain", run, tmp_path / "reviews.jsonl", "--index", 3)
    with open(tmp_path / "longer.jsonl", "w", encoding="utf-8") as longer:
        longer.write((tmp_path / "reviews.jsonl").read_text() + "a line that is never read\n")
    assert run_hma("explain", run, tmp_path / "longer.jsonl", "--index", 3).out == explained.out
    without = run_hma("train", tmp_path / "reviews.jsonl", "-o", tmp_path / "other")
    assert without.code == 2
    assert "hf:" in without.err
