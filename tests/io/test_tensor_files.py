"""Our tensor files: what was written is read, and anything else is refused before it is."""

import hashlib
import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

import hma.io.tensor_files
from hma.errors import UserError
from hma.io.files import FileError, MissingFileError
from hma.io.tensor_files import read_about, read_shapes, read_tensors, shapes_of, write_tensors


@pytest.fixture
def written(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    tensors = {"a": shared, "same": shared, "turned": shared.T, "count": torch.tensor(7)}
    path = tmp_path / "file.safetensors"
    return path, tensors, write_tensors(path, tensors, about={"key": "value"})


def test_what_is_written_is_read_and_hashed(written):
    path, tensors, sha256 = written
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    found = read_tensors(path, sha256=sha256, expect=shapes_of(tensors))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
    assert read_shapes(path) == {"a": (2, 3), "same": (2, 3), "turned": (3, 2), "count": ()}
    assert read_about(path) == {"key": "value"}


def test_another_content_than_the_recorded_is_refused(written):
    path, _, sha256 = written
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match="does not match its recorded hash; restore it"):
        read_tensors(path, sha256=sha256)
    assert read_tensors(path).keys() == written[1].keys()  # as long as nobody knows the hash


def test_names_and_shapes_are_compared_before_anything_is_read(written, monkeypatch):
    path, tensors, _ = written
    wanted = shapes_of(tensors) | {"a": (2, 10**12), "more": (1,)}
    monkeypatch.setattr(torch, "empty", None)
    with pytest.raises(FileError) as caught:
        read_tensors(path, expect=wanted, remedy="train again")
    said = str(caught.value)
    assert "more is missing" in said
    assert "a has shape (2, 3) in the file, (2, 1000000000000)" in said
    assert said.endswith("; train again")
    assert "\n" not in said


@pytest.mark.parametrize("kept", [0, 4, 8, 40, -1])
def test_half_a_file_is_one_line(written, kept):
    path = written[0]
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(FileError, match="is damaged") as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)


def test_a_header_that_promises_more_than_the_file_has_is_refused(tmp_path):
    header = b'{"a":{"dtype":"F32","shape":[3000000000],"data_offsets":[0,12000000000]}}'
    path = tmp_path / "file.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    with pytest.raises(FileError, match="is damaged"):
        read_tensors(path)


def test_what_is_no_file_is_refused_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(FileError):
            read_tensors(path)
    with pytest.raises(MissingFileError):
        read_tensors(tmp_path / "none")


@pytest.mark.parametrize("sha256", [None, "0" * 64])
def test_a_file_that_goes_while_it_is_read_is_missing(sha256, tmp_path, monkeypatch):
    monkeypatch.setattr(
        hma.io.tensor_files, "expect_regular", lambda path: None
    )  # it was there then
    with pytest.raises(MissingFileError, match="does not exist"):
        read_tensors(tmp_path / "gone.safetensors", sha256=sha256)


def test_only_tensors_can_be_written(tmp_path):
    with pytest.raises(UserError, match="state holds a dict"):
        write_tensors(tmp_path / "file", {"state": {}})


def test_a_full_disk_is_one_line_and_leaves_what_was_there(written, monkeypatch):
    path, _, sha256 = written

    def full(*arguments):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(hma.io.tensor_files, "save_file", full)
    with pytest.raises(UserError, match=r"cannot write .*No space left.*free some space"):
        write_tensors(path, {})
    assert read_shapes(path, sha256=sha256)
