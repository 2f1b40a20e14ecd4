"""Built-in data: counts, colours, splits, and what is said when it is not there."""

import gzip
import struct

import numpy as np
import pytest
import torch

from hma.data import builtin, is_builtin, open_source, preparation_from_json
from hma.data.sets.digits import colored_digits, digits
from hma.data.sets.mnist import colored_mnist, read_idx
from hma.data.storage import cache_folder, data_folder
from hma.errors import UserError


def everything(split):
    return split.batch(torch.arange(len(split)))


@pytest.mark.parametrize("name", ["digits", "digits:10", "colored-digits"])
def test_embedded_data_is_the_task_and_its_source(name):
    prepared = builtin(name, seed=5)
    direct = {"digits": digits(5), "digits:10": digits(5, 10), "colored-digits": colored_digits(5)}
    task = direct[name]
    source = open_source(name, seed=5)
    assert (
        source.fingerprint() == prepared.source.fingerprint() == prepared.task.facts["fingerprint"]
    )
    again = preparation_from_json(prepared.preparation.to_json())
    parts = {"train": task.train, "validation": task.validation, **task.tests}
    assert sorted(prepared.places) == sorted(parts)
    for part, split in parts.items():
        rebuilt = everything(again.split(source, prepared.places[part]))
        torch.testing.assert_close(rebuilt.x, everything(split).x, rtol=0, atol=0)
        assert rebuilt.y.tolist() == split.labels.tolist()


def test_few_labels_are_as_many_for_each_class():
    prepared = builtin("digits:10", seed=1)
    assert torch.bincount(prepared.task.train.labels).tolist() == [10] * 10
    assert len(prepared.task.tests["test"]) == 360


def test_a_digit_can_be_looked_at():
    shown = builtin("digits", seed=0).source.thumbnail(0)
    assert (shown.size, shown.mode) == ((8, 8), "L")
    painted = builtin("colored-digits", seed=0).source.thumbnail(0)
    assert (painted.size, painted.mode) == ((8, 8), "RGB")
    assert np.asarray(painted)[:, :, 2].max() == 0


@pytest.mark.data
def test_mnist_has_its_counts(data_root):
    prepared = builtin("mnist", seed=0, data_root=data_root)
    assert len(prepared.source) == 70_000
    assert prepared.task.facts["rows"] == {"train": 50_000, "validation": 10_000, "test": 10_000}
    published = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert torch.bincount(prepared.task.tests["test"].labels).tolist() == published
    assert prepared.places["test"] == list(range(60_000, 70_000))
    assert sorted(prepared.places["train"] + prepared.places["validation"]) == list(range(60_000))
    assert abs(prepared.preparation.mean[0] - 0.1307) < 0.001
    assert abs(prepared.preparation.std[0] - 0.3081) < 0.001


@pytest.mark.data
def test_mnist_with_few_labels(data_root):
    task = builtin("mnist:3", seed=0, data_root=data_root).task
    assert torch.bincount(task.train.labels).tolist() == [3] * 10


@pytest.mark.data
@pytest.mark.parametrize(("size", "flips"), [(14, (0.2, 0.1)), (28, (0.0, 0.02))])
def test_colours_lie_as_often_as_they_should(data_root, size, flips):
    prepared = colored_mnist(0, flips=flips, size=size, data_root=data_root)
    task = prepared.task
    assert task.shape == (2, size, size)
    images, _ = raw_mnist(data_root)
    step = 28 // size
    for split, environments in [(task.train, 2), (task.validation, 2)]:
        assert torch.bincount(split.environment).tolist() == [len(split) // 2] * environments
        batch = split.batch(torch.arange(10_000))
        colour = batch.x.sum(dim=(2, 3)).argmax(dim=1)
        lies = (colour != batch.y).float()
        for environment, wanted in enumerate(flips):
            share = float(lies[batch.environment == environment].mean())
            assert abs(share - wanted) < 0.02
    assert len(task.train) == 50_000
    reversed_, gray = (everything(task.tests[name]) for name in ("reversed", "gray"))
    assert len(reversed_.y) == len(gray.y) == 10_000
    assert (
        abs(float((reversed_.x.sum(dim=(2, 3)).argmax(1) != reversed_.y).float().mean()) - 0.9)
        < 0.01
    )
    assert torch.equal(reversed_.y, gray.y)
    expected = torch.from_numpy(images[60_000:, ::step, ::step]).float() / 255
    torch.testing.assert_close(reversed_.x.sum(dim=1), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(gray.x, (expected / 2)[:, None].expand(-1, 2, -1, -1))


def raw_mnist(data_root):
    """Read the files with struct alone."""
    images, labels = [], []
    for part in ("train", "t10k"):
        content = (data_root / "MNIST" / "raw" / f"{part}-images-idx3-ubyte").read_bytes()
        _, count, height, width = struct.unpack(">IIII", content[:16])
        images.append(np.frombuffer(content[16:], np.uint8).reshape(count, height, width))
        content = (data_root / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte").read_bytes()
        labels.append(np.frombuffer(content[8:], np.uint8))
    return np.concatenate(images), np.concatenate(labels)


@pytest.mark.data
def test_labels_of_colored_mnist_are_small_digits_with_a_quarter_flipped(data_root):
    prepared = builtin("colored-mnist", seed=2, data_root=data_root)
    _, digit = raw_mnist(data_root)
    source = prepared.source
    shown = source.image[torch.tensor(prepared.places["train"])]
    assert sorted(shown.tolist() + source.image[prepared.places["validation"]].tolist()) == list(
        range(60_000)
    )
    small = torch.from_numpy(digit < 5)[shown].long()
    flipped = float((small != prepared.task.train.labels).float().mean())
    assert abs(flipped - 0.25) < 0.01
    assert source.describe(prepared.places["gray"][7]) == "image 60007 in gray"
    assert np.asarray(source.thumbnail(0)).shape == (14, 14, 3)


@pytest.mark.data
def test_colored_mnist_can_be_opened_again(data_root):
    prepared = builtin("colored-mnist:28", seed=2, data_root=data_root)
    source = open_source("colored-mnist:28", data_root=data_root, seed=2)
    assert source.fingerprint() == prepared.task.facts["fingerprint"]
    other = builtin("colored-mnist:28", seed=3, data_root=data_root)
    assert other.source.fingerprint() != source.fingerprint()
    again = preparation_from_json(prepared.preparation.to_json())
    rebuilt = again.split(source, prepared.places["reversed"][:50])
    expected = prepared.task.tests["reversed"].batch(torch.arange(50))
    torch.testing.assert_close(everything(rebuilt).x, expected.x, rtol=0, atol=0)


@pytest.mark.data
def test_tu_data_is_split_seventy_ten_twenty(data_root):
    prepared = builtin("tu:PROTEINS", seed=0, data_root=data_root)
    assert prepared.task.facts["rows"] == {"train": 779, "validation": 111, "test": 223}
    assert prepared.task.shape == (3,)
    assert prepared.task.classes == ("1", "2")
    assert open_source("tu:PROTEINS", data_root=data_root).labels.count("1") == 663


@pytest.mark.parametrize(
    ("name", "looked_for"),
    [
        ("mnist", r"MNIST/raw/train-images-idx3-ubyte"),
        ("colored-mnist", r"MNIST/raw/train-images-idx3-ubyte"),
        ("tu:MUTAG", r"TU/MUTAG/raw"),
    ],
)
def test_missing_data_is_one_message_with_the_way_to_it(tmp_path, name, looked_for, monkeypatch):
    def no_network(*given, **named):
        raise AssertionError("the network was used")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    where = rf"is missing: looked for {tmp_path}/{looked_for}"
    message = rf"{where}; .*https://.*--data-root or HMA_DATA.*download=True"
    with pytest.raises(UserError, match=message):
        builtin(name, seed=0, data_root=tmp_path)
    monkeypatch.setenv("HMA_DATA", str(tmp_path))
    with pytest.raises(UserError, match=message):
        open_source(name)


def test_a_near_name_beside_the_missing_one_is_offered(tmp_path):
    (tmp_path / "TU" / "PROTEINS").mkdir(parents=True)
    with pytest.raises(UserError, match=r"tu:PROTEIN is missing \(did you mean 'PROTEINS'\?\)"):
        builtin("tu:PROTEIN", seed=0, data_root=tmp_path)


def test_data_is_looked_for_where_the_argument_then_the_environment_say(tmp_path, monkeypatch):
    monkeypatch.setenv("HMA_DATA", "~/data")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder() == tmp_path / "data"
    monkeypatch.delenv("HMA_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert data_folder() == cache_folder() == tmp_path / ".cache" / "hma"


@pytest.mark.parametrize("name", ["digit", "digits:x", "mnist:", "tu:", "colored-mnist:20"])
def test_a_wrong_name_is_no_builtin(name):
    assert not is_builtin(name)
    with pytest.raises(UserError, match=rf"no built-in data called '{name}'.*there are digits, "):
        builtin(name, seed=0)


def test_no_labels_per_class_are_refused():
    with pytest.raises(UserError, match=r"digits:0 must ask for at least 1 label"):
        builtin("digits:0", seed=0)


@pytest.mark.parametrize("flips", [(0.2, 1.5), (-0.1, 0.1)])
def test_probabilities_are_checked(flips):
    with pytest.raises(UserError, match=r"flips and noise must be probabilities"):
        colored_mnist(0, flips=flips)


def test_idx_files_are_read_packed_or_not(tmp_path):
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    content = b"\0\0\x08\3" + struct.pack(">III", 2, 3, 4) + values.tobytes()
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    for name in ("a", "a.gz"):
        np.testing.assert_array_equal(read_idx(tmp_path / name), values)


@pytest.mark.parametrize("cut", [0, 2, 9, 20])
def test_a_cut_idx_file_is_refused(tmp_path, cut):
    content = b"\0\0\x08\3" + struct.pack(">III", 2, 3, 4) + bytes(24)
    (tmp_path / "a").write_bytes(content[:cut])
    with pytest.raises(UserError, match=r"a is not a whole idx file"):
        read_idx(tmp_path / "a")
    (tmp_path / "a.gz").write_bytes(gzip.compress(content)[: cut + 1])
    with pytest.raises(UserError, match=r"a.gz cannot be read"):
        read_idx(tmp_path / "a.gz")
