"""Arrays in an .npz: tables and images by their shape, and nothing unpickled."""

import json

import numpy as np
import pytest
import torch

from hma.data import PreparationOptions, open_source, preparation_from_json, prepare
from hma.errors import UserError

GENERATOR = np.random.default_rng(0)
Y = np.arange(40) % 2


def saved(folder, **arrays):
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def test_two_axes_are_a_table(tmp_path):
    x = GENERATOR.normal(3.0, 2.0, (40, 5))
    x[7, 2] = np.nan
    source = open_source(saved(tmp_path, x=x, y=Y))
    prepared = prepare(source, seed=0)
    assert (source.kind, prepared.task.classes) == ("table", ("0", "1"))
    train = x[prepared.places["train"]]
    missing = 7 in prepared.places["train"]
    assert prepared.task.shape == (5 + missing,)
    expected = (train[:, 0] - train[:, 0].mean()) / train[:, 0].std()
    np.testing.assert_allclose(prepared.task.train.x[:, 0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(40, 9, 7), (40, 1, 9, 7), (40, 9, 7, 1)])
def test_gray_images_wherever_the_channels_are(tmp_path, shape):
    pixels = GENERATOR.integers(0, 256, (40, 9, 7), dtype=np.uint8)
    source = open_source(saved(tmp_path, x=pixels.reshape(shape), y=Y))
    prepared = prepare(source, seed=0)
    assert prepared.task.shape == (1, 9, 7)
    train = pixels[prepared.places["train"]] / 255
    batch = prepared.task.train.batch(torch.arange(3))
    expected = (train[:3] - train.mean()) / train.std()
    np.testing.assert_allclose(batch.x[:, 0], expected, rtol=1e-4, atol=1e-5)


def test_colour_images_of_floats_are_taken_as_they_are(tmp_path):
    pixels = GENERATOR.normal(100.0, 50.0, (40, 3, 8, 8)).astype(np.float32)
    prepared = prepare(open_source(saved(tmp_path, x=pixels, y=Y)), seed=0)
    train = pixels[prepared.places["train"]].astype(np.float64)
    mean = train.mean(axis=(0, 2, 3), keepdims=True)
    std = train.std(axis=(0, 2, 3), keepdims=True)
    batch = prepared.task.train.batch(torch.arange(5))
    np.testing.assert_allclose(batch.x, ((train - mean) / std)[:5], rtol=1e-3, atol=1e-4)


def test_a_size_can_be_asked_for(tmp_path):
    source = open_source(saved(tmp_path, x=np.full((40, 8, 8), 9, np.uint8), y=Y))
    prepared = prepare(source, seed=0, options=PreparationOptions(image_size=4))
    assert prepared.task.train.batch(torch.arange(2)).x.shape == (2, 1, 4, 4)


def test_bytes_and_other_numbers_are_not_mixed(tmp_path):
    prepared = prepare(open_source(saved(tmp_path, x=np.zeros((40, 8, 8), np.uint8), y=Y)), seed=0)
    other = open_source(saved(tmp_path, x=np.full((2, 8, 8), 0.5)))
    with pytest.raises(UserError, match=r"data.npz holds arrays of other numbers, .* 0 to 255"):
        prepared.preparation.split(other)


def test_without_y_there_are_no_labels(tmp_path):
    prepared = prepare(open_source(saved(tmp_path, x=GENERATOR.normal(size=(40, 2)), y=Y)), seed=0)
    source = open_source(saved(tmp_path, x=GENERATOR.normal(size=(3, 2))))
    assert source.labels is None
    again = preparation_from_json(json.loads(json.dumps(prepared.preparation.to_json())))
    assert again.split(source).labels.tolist() == [-1, -1, -1]
    assert [len(batch.ids) for batch in again.stream(source, 2)] == [2, 1]


def test_labels_may_be_words_or_whole_floats(tmp_path):
    x = np.zeros((4, 2))
    source = open_source(saved(tmp_path, x=x, y=np.array(["<script>", "a", "a", "<script>"])))
    assert source.labels == ["<script>", "a", "a", "<script>"]
    assert open_source(saved(tmp_path, x=x, y=np.array([0.0, 1.0, 1.0, 0.0]))).labels == list(
        "0110"
    )


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"data": np.zeros(3)}, "has no array 'x'; it has 'data'"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, r"y of .* each of the 3 rows .* shape \(2,\)"),
        ({"x": np.zeros((3, 2)), "y": np.zeros((3, 3, 1))}, r"y of .* shape \(3, 3, 1\)"),
        ({"x": np.zeros(3)}, r"x of .* must have shape .* got \(3,\)"),
        ({"x": np.zeros((2, 3, 5, 3))}, r"x of .* must have shape"),
        ({"x": np.array(["a", "b"])}, "x of .* must be numbers"),
        ({"x": np.full((2, 4, 4), np.nan)}, "images with NaN or infinity"),
        ({"x": np.zeros((3, 2)), "y": np.array([0, np.nan, 1])}, "no label in 1 of 3 rows"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, message):
    with pytest.raises(UserError, match=message):
        open_source(saved(tmp_path, **arrays))


def test_pickles_are_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    objects = np.empty(1, dtype=object)
    objects[0] = Bomb()
    np.savez(tmp_path / "data.npz", x=np.zeros((1, 2)), y=objects)
    with pytest.raises(UserError, match=r"cannot be read as an \.npz of plain arrays"):
        open_source(tmp_path / "data.npz")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_thumbnails_show_the_pixels(tmp_path, channels):
    pixels = GENERATOR.integers(0, 256, (2, 9, 7, channels), dtype=np.uint8)
    picture = open_source(saved(tmp_path, x=pixels)).thumbnail(1)
    shown = np.asarray(picture).reshape(9, 7, -1)
    np.testing.assert_array_equal(shown, pixels[1][:, :, : shown.shape[2]])
    assert shown.shape[2] == min(channels, 3)


def test_a_file_that_may_not_be_read_is_not_to_be_written_again(tmp_path, monkeypatch):
    path = saved(tmp_path, x=np.zeros((40, 2)), y=Y)

    def refuse(*given):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hma.data.arrays.ZipFile", refuse)
    with pytest.raises(UserError) as caught:
        open_source(path)
    assert (
        str(caught.value) == f"{path} cannot be read: Permission denied; see to that and try again"
    )


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_archive_is_to_be_written_by_numpy(tmp_path, content):
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"File is not a zip file; write it with numpy\.savez\("):
        open_source(tmp_path / "data.npz")
