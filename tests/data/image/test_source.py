"""Folders of pictures: what is found, decoded, kept, and refused."""

import json
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import hma.data.image.source
from hma.data import PreparationOptions, open_source, preparation_from_json, prepare, stream
from hma.data.image.source import ImageFolder
from hma.errors import UserError

PER_CLASS = 6


def picture(seed, size=(20, 16), mode="RGB"):
    channels = {"RGB": 3, "L": 1, "RGBA": 4}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], channels), np.uint8)
    return Image.fromarray(pixels.squeeze())


@pytest.fixture
def animals(tmp_path):
    for place, name in enumerate(["cat", "dog", "<script>"]):
        (tmp_path / "animals" / name).mkdir(parents=True)
        for number in range(PER_CLASS):
            file = tmp_path / "animals" / name / f"{number}.png"
            picture(100 * place + number).save(file)
    return tmp_path / "animals"


@pytest.fixture(scope="module")
def digits_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jpeg") / "digits"
    bunch = load_digits()
    for place in range(300):
        inside = folder / str(bunch.target[place])
        inside.mkdir(parents=True, exist_ok=True)
        pixels = (bunch.images[place] * 255 / 16).round().astype(np.uint8)
        Image.fromarray(pixels).resize((24, 24)).save(inside / f"{place:04}.jpg", quality=95)
    return folder


def everything(split):
    return split.batch(torch.arange(len(split)))


def by_hand(file, shape):
    with Image.open(file) as image:
        converted = image.convert("L" if shape[0] == 1 else "RGB")
        small = converted.resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
    return np.asarray(small, np.float64).reshape(shape[1], shape[2], shape[0]).transpose(2, 0, 1)


def test_jpegs_of_digits_are_gray_small_and_normalised(digits_folder):
    source = open_source(digits_folder)
    prepared = prepare(source, seed=1)
    assert prepared.task.shape == (1, 32, 32)
    assert prepared.task.classes == tuple("0123456789")
    rows = prepared.places["train"]
    train = np.stack([by_hand(source.files[row], (1, 32, 32)) for row in rows]) / 255
    batch = everything(prepared.task.train)
    expected = (train - train.mean()) / train.std()
    np.testing.assert_allclose(batch.x.numpy(), expected, atol=1e-5)
    assert batch.y.tolist() == [int(source.files[row].parent.name) for row in rows]


def test_colour_is_kept_and_size_chosen_by_the_median_side(animals):
    prepared = prepare(open_source(animals), seed=0)
    assert prepared.task.shape == (3, 32, 32)
    for file in sorted(animals.rglob("*.png"))[: 2 * PER_CLASS + 3]:
        picture(0, size=(60, 60)).save(file)
    assert prepare(open_source(animals), seed=0).task.shape == (3, 224, 224)
    small = prepare(open_source(animals), seed=0, options=PreparationOptions(image_size=8))
    assert small.task.shape == (3, 8, 8)


def test_mean_and_deviation_come_from_training_rows_only(animals):
    first = prepare(open_source(animals), seed=0)
    for row in first.places["test"] + first.places["validation"]:
        picture(0, mode="L").point(lambda value: 255).save(first.source.files[row])
    assert prepare(open_source(animals), seed=0).preparation == first.preparation


def test_one_colour_picture_among_gray_ones_makes_all_of_them_colour(animals):
    for file in animals.rglob("*.png"):
        picture(0, mode="L").save(file)
    source = open_source(animals)
    assert source.shape_for(range(len(source)), None)[0] == 1
    picture(1).save(source.files[3])
    assert source.shape_for(range(len(source)), None)[0] == 3
    assert source.shape_for([0, 1, 2], None)[0] == 1


@pytest.mark.parametrize("limit", [0, 2**30])
def test_kept_and_decoded_again_are_the_same(animals, limit):
    source = ImageFolder(animals, memory_limit=limit)
    prepared = prepare(source, seed=0)
    other = prepare(ImageFolder(animals), seed=0)
    places = torch.tensor([3, 0, 3, 1])
    torch.testing.assert_close(
        prepared.task.train.batch(places).x, other.task.train.batch(places).x, rtol=0, atol=0
    )
    assert bool(source._kept) == (limit > 0)


def test_a_kept_picture_is_decoded_once(animals, monkeypatch):
    counted, lock = [], threading.Lock()
    decode = hma.data.image.source.decode

    def counting(file, **how):
        with lock:
            counted.append(file)
        return decode(file, **how)

    monkeypatch.setattr(hma.data.image.source, "decode", counting)
    prepared = prepare(open_source(animals), seed=0)
    assert sorted(counted) == sorted(prepared.source.files)
    everything(prepared.task.train)
    everything(prepared.task.tests["test"])
    assert len(counted) == 3 * PER_CLASS


def test_a_split_reads_nothing_until_it_is_asked(animals, monkeypatch):
    preparation = prepare(open_source(animals), seed=0).preparation
    read = []
    decode = hma.data.image.source.decode
    monkeypatch.setattr(
        hma.data.image.source,
        "decode",
        lambda file, **how: (read.append(file), decode(file, **how))[1],
    )
    source = ImageFolder(animals, memory_limit=0)
    split = preparation.split(source)
    assert read == []
    split.batch(torch.tensor([4, 5]))
    assert sorted(read) == source.files[4:6]


def test_a_flat_folder_is_there_to_be_predicted(animals, tmp_path):
    prepared = prepare(open_source(animals), seed=0)
    flat = tmp_path / "flat"
    flat.mkdir()
    for place, file in enumerate(prepared.source.files):
        (flat / f"{place:03}.png").write_bytes(file.read_bytes())
    source = open_source(flat)
    assert source.labels is None
    split = prepared.preparation.split(source)
    assert set(split.labels.tolist()) == {-1}
    expected = everything(prepared.preparation.split(prepared.source)).x
    torch.testing.assert_close(everything(split).x, expected, rtol=0, atol=0)
    with pytest.raises(UserError, match=r"flat has no labels to learn from; put the images into"):
        prepare(source, seed=0)


def test_a_stream_gives_every_picture_and_keeps_none(animals):
    prepared = prepare(open_source(animals), seed=0)
    again = preparation_from_json(json.loads(json.dumps(prepared.preparation.to_json())))
    assert again == prepared.preparation
    source = open_source(animals)
    batches = list(stream(again, source, 4))
    whole = everything(prepared.preparation.split(prepared.source))
    torch.testing.assert_close(torch.cat([b.x for b in batches]), whole.x, rtol=0, atol=0)
    assert torch.cat([b.y for b in batches]).tolist() == whole.y.tolist()
    assert source._kept == {}


def test_an_unreadable_picture_is_named_with_the_way_on(animals):
    broken = animals / "dog" / "3.png"
    broken.write_bytes(broken.read_bytes()[:90])
    with pytest.raises(UserError, match=r"dog/3\.png cannot be read as an image.*--skip-bad-files"):
        prepare(open_source(animals), seed=0)
    source = open_source(animals, skip_bad_files=True)
    assert source.skipped == [str(broken)]
    assert len(source) == 3 * PER_CLASS - 1
    prepared = prepare(source, seed=0)
    assert prepared.task.facts["skipped files"] == 1


@pytest.mark.parametrize("part", ["train", "validation", "test"])
@pytest.mark.parametrize("limit", [0, 2**30])
def test_a_bad_picture_in_any_split_is_named_before_training(animals, part, limit):
    first = prepare(open_source(animals), seed=0)
    broken = first.source.files[first.places[part][0]]
    broken.write_bytes(broken.read_bytes()[:200])  # whole header, half the pixels
    with pytest.raises(UserError, match=rf"{broken.name} cannot be read"):
        prepare(ImageFolder(animals, memory_limit=limit), seed=0)


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"<html>", b"\x89PNG\r\n\x1a\n" + bytes(40)])
def test_no_picture_at_all_is_skipped_or_named(animals, content):
    (animals / "cat" / "7.gif").write_bytes(content)
    assert open_source(animals, skip_bad_files=True).skipped == [str(animals / "cat" / "7.gif")]
    with pytest.raises(UserError, match=r"7\.gif cannot be read"):
        prepare(ImageFolder(animals, memory_limit=0), seed=0)


def test_when_every_picture_is_bad_there_is_nothing_left(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"none of the 1 images .* can be read"):
        open_source(tmp_path, skip_bad_files=True)


def test_a_thumbnail_of_a_bad_picture_names_it(animals):
    (animals / "cat" / "0.png").write_bytes(b"")
    source = open_source(animals)
    place = [file.as_posix() for file in source.files].index(str(animals / "cat" / "0.png"))
    with pytest.raises(UserError, match=r"cat/0\.png cannot be read"):
        source.thumbnail(place)


def test_an_empty_folder_says_what_is_expected(tmp_path):
    with pytest.raises(UserError, match=r"holds no images .*one folder of images for each class"):
        open_source(tmp_path)


def test_an_empty_class_is_named(animals):
    (animals / "wolf").mkdir()
    with pytest.raises(UserError, match=r"wolf holds no images"):
        open_source(animals)


def test_pictures_beside_class_folders_are_refused(animals):
    picture(0).save(animals / "stray.png")
    with pytest.raises(UserError, match=r"both images \(stray.png\) and folders"):
        open_source(animals)


def test_a_folder_of_folders_of_classes_points_at_the_right_one(animals):
    with pytest.raises(UserError, match=r"too deep.*such as .*/animals$"):
        open_source(animals.parent)


def test_files_that_are_no_pictures_do_not_count(animals):
    (animals / "cat" / "notes.txt").write_text("not a picture")
    (animals / "cat" / ".hidden.png").write_text("left by a camera")
    (animals / ".thumbnails").mkdir()
    assert len(open_source(animals)) == 3 * PER_CLASS


def test_an_unknown_class_at_evaluation_is_named(animals):
    prepared = prepare(open_source(animals), seed=0)
    (animals / "dog").rename(animals / "wolf")
    with pytest.raises(UserError, match=r"label 'wolf' .* known are '<script>', 'cat', 'dog'"):
        prepared.preparation.split(open_source(animals))


def test_every_mode_of_picture_becomes_bytes(tmp_path):
    gray = np.arange(256, dtype=np.uint8).reshape(16, 16)
    made = {
        "l.png": Image.fromarray(gray),
        "rgba.png": picture(0, (16, 16), "RGBA"),
        "palette.png": picture(1, (16, 16)).quantize(16),
        "bits.png": Image.fromarray(gray > 99),
        "wide.png": Image.fromarray(gray.astype(np.uint16) * 257),
        "cmyk.jpg": picture(2, (16, 16)).convert("CMYK"),
    }
    for name, image in made.items():
        image.save(tmp_path / name)
    clear = picture(3, (16, 16)).quantize(16)
    clear.save(tmp_path / "clear.png", transparency=bytes(range(16)))
    source = open_source(tmp_path)
    pixels = source.read(torch.arange(len(source)), (1, 16, 16), keep=False)
    at = [file.name for file in source.files]
    np.testing.assert_array_equal(pixels[at.index("l.png"), 0], gray)
    np.testing.assert_array_equal(pixels[at.index("wide.png"), 0], gray)  # 16 bits to 8
    np.testing.assert_array_equal(pixels[at.index("bits.png"), 0], (gray > 99) * 255)
    assert source.read(torch.arange(len(source)), (3, 16, 16), keep=False).shape[1] == 3


def test_pictures_are_turned_as_the_camera_says(tmp_path):
    upright = picture(0, (12, 8))
    upright.save(tmp_path / "a.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to see it upright
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "b.png", exif=exif)
    both = open_source(tmp_path).read(torch.arange(2), (3, 8, 12), keep=False)
    torch.testing.assert_close(both[0], both[1], rtol=0, atol=0)


def test_a_source_describes_and_shows_its_pictures(animals):
    source = open_source(animals)
    assert source.describe(0) == "<script>/0.png"
    shown = source.thumbnail(PER_CLASS)
    assert (shown.size, shown.mode) == ((20, 16), "RGB")
    np.testing.assert_array_equal(np.asarray(shown), np.asarray(picture(0)))


def test_the_fingerprint_sees_content_and_class(animals):
    first = open_source(animals).fingerprint()
    assert open_source(animals).fingerprint() == first
    (animals / "dog" / "0.png").rename(animals / "cat" / "9.png")
    moved = open_source(animals).fingerprint()
    picture(7777).save(animals / "cat" / "9.png")
    assert len({first, moved, open_source(animals).fingerprint()}) == 3


def test_other_kinds_of_data_are_refused(animals, tmp_path):
    prepared = prepare(open_source(animals), seed=0)
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(UserError, match=r"a.csv holds rows of kind 'table', .* for 'image'"):
        prepared.preparation.split(open_source(tmp_path / "a.csv"))
    with pytest.raises(UserError, match=r"encoder is for data of kind 'text', .* kind 'image'"):
        prepare(open_source(animals), seed=0, options=PreparationOptions(encoder="x"))
