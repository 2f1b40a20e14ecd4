"""Fetching data when asked to: whole and verified, or not there at all."""

import gzip
import hashlib
import io
import struct
import zipfile

import numpy as np
import pytest

import hma.data.sets.mnist
import hma.data.sets.tu
import hma.data.storage
from hma.data.sets.mnist import mnist_source
from hma.data.sets.tu import tu_source
from hma.data.storage import fetch
from hma.errors import UserError

TOY = {
    "TOY/TOY_A.txt": "1, 2\n2, 1\n",
    "TOY/TOY_graph_indicator.txt": "1\n1\n",
    "TOY/TOY_graph_labels.txt": "1\n",
    "TOY/README.txt": "about",
}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder that stands for the internet."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    address = f"{folder.as_uri()}/"
    monkeypatch.setattr(hma.data.sets.tu, "ADDRESS", address)
    monkeypatch.setattr(hma.data.sets.mnist, "ADDRESS", address)
    return folder


def packed(files):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return held.getvalue()


def idx(values):
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(header + values.tobytes())


def test_a_tu_data_set_is_fetched_once_and_found_again(shelf, tmp_path):
    (shelf / "TOY.zip").write_bytes(packed(TOY))
    root = tmp_path / "root"
    assert len(tu_source("TOY", root, download=True)) == 1
    (shelf / "TOY.zip").unlink()
    assert tu_source("TOY", root).labels == ["1"]
    names = sorted(path.name for path in (root / "TU" / "TOY" / "raw").iterdir())
    assert names == ["TOY_A.txt", "TOY_graph_indicator.txt", "TOY_graph_labels.txt"]


@pytest.mark.parametrize(
    "content", [b"", b"<html>not found</html>", packed({"a/b.txt": "x"}), packed(TOY)[:200]]
)
def test_a_wrong_answer_leaves_nothing_behind(shelf, tmp_path, content):
    (shelf / "TOY.zip").write_bytes(content)
    with pytest.raises(UserError, match=r"TOY.zip (is damaged|does not hold TOY_A.txt)"):
        tu_source("TOY", tmp_path / "root", download=True)
    with pytest.raises(UserError, match=r"tu:TOY is missing"):
        tu_source("TOY", tmp_path / "root")


def test_names_in_an_archive_cannot_lead_outside(shelf, tmp_path):
    (shelf / "TOY.zip").write_bytes(packed({**TOY, "../../../TOY_evil.txt": "x"}))
    tu_source("TOY", tmp_path / "root", download=True)
    inside = tmp_path / "root" / "TU" / "TOY" / "raw"
    assert [path.parent for path in tmp_path.rglob("TOY_evil.txt")] == [inside]


def test_a_crash_while_unpacking_is_noticed_next_time(shelf, tmp_path, monkeypatch):
    (shelf / "TOY.zip").write_bytes(packed(TOY))
    whole = hma.data.storage.atomic_write

    def full_disk(target):
        if target.name == "TOY_graph_labels.txt":
            raise OSError(28, "No space left on device")
        return whole(target)

    monkeypatch.setattr(hma.data.storage, "atomic_write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        tu_source("TOY", tmp_path / "root", download=True)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"tu:TOY is missing"):
        tu_source("TOY", tmp_path / "root")


def test_mnist_is_fetched_and_verified(shelf, tmp_path, monkeypatch):
    made = {
        "train-images-idx3-ubyte": np.zeros((3, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.array([1, 2, 3], np.uint8),
        "t10k-images-idx3-ubyte": np.ones((2, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": np.array([4, 5], np.uint8),
    }
    hashes = {}
    for name, values in made.items():
        content = idx(values)
        (shelf / f"{name}.gz").write_bytes(content)
        hashes[name] = hashlib.md5(content).hexdigest()
    root = tmp_path / "root"
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte.gz is damaged: MD5"):
        mnist_source(root, download=True)  # these are not the files of MNIST
    assert not list((root / "MNIST" / "raw").iterdir())
    monkeypatch.setattr(hma.data.sets.mnist, "FILES", hashes)
    assert mnist_source(root, download=True).labels == list("12345")
    assert mnist_source(root).labels == list("12345")


def test_an_address_out_of_reach_says_where_to_put_the_file(tmp_path):
    missing = (tmp_path / "nothing").as_uri()
    with pytest.raises(UserError, match=rf"nothing cannot be fetched.*put it at {tmp_path}/a/b"):
        fetch(missing, tmp_path / "a" / "b")
    assert not list((tmp_path / "a").iterdir())
