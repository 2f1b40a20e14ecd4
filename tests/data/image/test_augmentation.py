"""Random variants of images: where they are cut, and that a row, seed and epoch decide it."""

import importlib.util

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hma.data import PreparationOptions, open_source, preparation_from_json, prepare
from hma.data.arrays import ArrayImages
from hma.data.draws import dice_of, mixed, words_of
from hma.data.image.preparation import ImagePreparation, cut_parts, draw_shifts, shift_and_mirror
from hma.data.image.source import THROWS, ImageFiles, choose_part
from hma.errors import UserError
from hma.extras import ensure_torchvision

IMAGES = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="needs the vision extra"
)


def by_hand(image, down, right, mirror):
    channels, height, width = image.shape
    out = torch.zeros_like(image)
    for c in range(channels):
        for row in range(height):
            for column in range(width):
                across = width - 1 - column if mirror else column
                y, x = row + down - 4, across + right - 4
                if 0 <= y < height and 0 <= x < width:
                    out[c, row, column] = image[c, y, x]
    return out


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32))
def test_cuts_match_a_loop_over_pixels(count, height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(1, 256, (count, 2, height, width), generator=generator).to(torch.uint8)
    down, right, mirror = draw_shifts(torch.arange(count), seed, epoch=1)
    found = shift_and_mirror(images, down, right, mirror)
    expected = [
        by_hand(image, int(d), int(r), bool(m))
        for image, d, r, m in zip(images, down, right, mirror, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=0)


def split_of(augment, seed=7):
    source = ArrayImages("noise", IMAGES, ["a"] * 50, unit=True)
    return ImagePreparation(("a",), (1, 8, 8), (0.5,), (2.0,), unit=True).split(
        source, augment_seed=seed if augment else None
    )


@settings(deadline=None)
@given(st.permutations(range(12)), st.integers(0, 5))
def test_a_shift_depends_on_place_seed_and_epoch_alone(order, epoch):
    split = split_of(augment=True)
    together = split.batch(torch.tensor(order), epoch).x
    for place, seen in zip(order, together, strict=True):
        torch.randperm(5)  # the global generator has no say
        alone = split.batch(torch.tensor([place]), epoch).x[0]
        torch.testing.assert_close(seen, alone, rtol=0, atol=0)


def test_epochs_seeds_and_places_differ():
    places = torch.arange(1000)
    base = torch.stack([part.long() for part in draw_shifts(places, 0, 0)])
    for other in (
        draw_shifts(places, 0, 1),
        draw_shifts(places, 1, 0),
        draw_shifts(places + 1, 0, 0),
    ):
        same = (base == torch.stack([part.long() for part in other])).all(dim=0)
        assert 0 < int(same.sum()) < 30  # 1 in 162 by chance


def test_every_shift_and_both_sides_are_as_frequent():
    down, right, mirror = draw_shifts(torch.arange(81_000), seed=3, epoch=5)
    pairs = torch.bincount(down * 9 + right, minlength=81)
    assert int(pairs.min()) > 850
    assert int(pairs.max()) < 1150
    assert abs(float(mirror.float().mean()) - 0.5) < 0.01


def test_mixing_is_splitmix64():
    # first outputs of the published generator for state 0
    state = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mixed(state).tolist() == published


def test_evaluation_never_augments():
    places = torch.arange(50)
    plain = (IMAGES - 0.5) / 2.0
    for split in (split_of(augment=True), split_of(augment=False)):
        torch.testing.assert_close(split.batch(places).x, plain, rtol=0, atol=0)
    seen = split_of(augment=False).batch(places, epoch=0).x
    torch.testing.assert_close(seen, plain, rtol=0, atol=0)
    moved = [split_of(augment=True, seed=seed).batch(places, epoch=0).x for seed in (0, 0, 1)]
    assert not torch.equal(moved[0], plain)
    assert torch.equal(moved[0], moved[1])
    assert not torch.equal(moved[0], moved[2])


@pytest.mark.parametrize("augment", [False, True])
def test_only_the_training_split_of_a_task_augments(tmp_path, augment):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (32, 32), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    task = prepare(open_source(tmp_path), seed=0, options=PreparationOptions(augment=augment)).task
    for split, changes in [(task.train, augment), (task.validation, False)]:
        places = torch.arange(len(split))
        seen = split.batch(places, epoch=0)
        assert torch.equal(seen.x, split.batch(places).x) != changes
        assert torch.equal(seen.y, split.batch(places).y)
    assert ("augmentation" in task.facts) == augment


class LoadedDice:
    """Stands in for torch inside torchvision's transform, with four throws for each attempt."""

    exp, log = torch.exp, torch.log

    def __init__(self, dice):
        self.attempts = iter(dice[place : place + 4] for place in range(0, THROWS, 4))
        self.left = []

    def throw(self):
        return self.left.pop(0)

    def empty(self, _):
        if len(self.left) != 3:  # not the shape, so the area: a new attempt
            self.left = list(next(self.attempts))
        return self

    def uniform_(self, low, high):
        return float(low) + torch.tensor(self.throw(), dtype=torch.float64) * (
            float(high) - float(low)
        )

    def randint(self, _, most, size):
        return torch.tensor(int(self.throw() * most))


def torchvisions_part(height, width, dice, monkeypatch):
    ensure_torchvision()
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import _geometry

    transform = v2.RandomResizedCrop(224)
    monkeypatch.setattr(_geometry, "torch", LoadedDice(dice))
    found = transform.make_params([torch.zeros(3, height, width)])
    return found["top"], found["left"], found["height"], found["width"]


@needs_torchvision
@pytest.mark.parametrize(
    ("height", "width"), [(224, 224), (300, 640), (37, 500), (500, 37), (5, 4), (1, 1), (90, 60)]
)
def test_parts_are_those_of_torchvision(height, width, monkeypatch):
    dice = dice_of(words_of(torch.arange(60), seed=4, epoch=2), THROWS).tolist()
    for row in dice:
        with monkeypatch.context() as patch:
            expected = torchvisions_part(height, width, row, patch)
        assert choose_part(height, width, row) == expected


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 2**32))
def test_a_part_lies_inside_the_image(height, width, seed):
    dice = dice_of(words_of(torch.arange(1), seed, epoch=0), THROWS)[0].tolist()
    top, left, tall, wide = choose_part(height, width, dice)
    assert 0 <= top <= top + tall <= height
    assert 0 <= left <= left + wide <= width
    assert tall >= 1
    assert wide >= 1


def test_dice_are_even_and_independent_of_one_another():
    dice = dice_of(words_of(torch.arange(20_000), seed=0, epoch=1), 5)
    assert float(dice.min()) < 1e-3
    assert float(dice.max()) > 1 - 1e-3
    torch.testing.assert_close(dice.mean(0), torch.full((5,), 0.5).double(), rtol=0, atol=0.01)
    correlation = np.corrcoef(dice.T.numpy()) - np.eye(5)
    assert np.abs(correlation).max() < 0.03
    other = dice_of(words_of(torch.arange(20_000), seed=0, epoch=2), 5)
    assert abs(np.corrcoef(dice[:, 0], other[:, 0])[0, 1]) < 0.03


@pytest.fixture
def photographs(tmp_path):
    for place, name in enumerate(["cat", "dog"]):
        (tmp_path / name).mkdir()
        for number in range(8):
            generator = np.random.default_rng(10 * place + number)
            rough = generator.integers(0, 256, (5, 7, 3), np.uint8)
            size = (60 + 9 * number, 50 + 7 * place)
            Image.fromarray(rough).resize(size).save(tmp_path / name / f"{number}.png")
    return tmp_path


def prepared(folder, transform="vit", augment=True, size=24, seed=0):
    options = PreparationOptions(transform=transform, augment=augment, image_size=size)
    return prepare(open_source(folder), seed=seed, options=options)


@needs_torchvision
def test_training_sees_what_torchvision_cuts_resizes_mirrors_and_normalises(photographs):
    ensure_torchvision()
    from torchvision.transforms.v2 import functional

    ready = prepared(photographs, seed=11)
    places = torch.tensor([3, 0, 5])
    seen = ready.task.train.batch(places, epoch=4)
    dice = dice_of(words_of(places, 11, 4), 1 + THROWS)
    for row, place in enumerate(places.tolist()):
        file = ready.source.files[ready.places["train"][place]]
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        part = choose_part(image.height, image.width, dice[row, 1:].tolist())
        cut = functional.resized_crop(image, *part, size=[24, 24])
        if dice[row, 0] < 0.5:
            cut = functional.horizontal_flip(cut)
        scaled = functional.to_dtype(functional.to_image(cut), torch.float32, scale=True)
        expected = functional.normalize(scaled, [0.5] * 3, [0.5] * 3)
        torch.testing.assert_close(seen.x[row], expected.as_subclass(torch.Tensor))
    assert 0 < int((dice[:, 0] < 0.5).sum()) < 3  # some mirrored, some not


@needs_torchvision
def test_evaluation_sees_the_whole_picture_resized(photographs):
    ensure_torchvision()
    from torchvision.transforms.v2 import functional

    ready = prepared(photographs)
    for name, split in {"validation": ready.task.validation, **ready.task.tests}.items():
        places = torch.arange(len(split))
        for image, row in zip(split.batch(places).x, ready.places[name], strict=True):
            with Image.open(ready.source.files[row]) as opened:
                small = functional.resize(opened.convert("RGB"), [24, 24])
            scaled = functional.to_dtype(functional.to_image(small), torch.float32, scale=True)
            torch.testing.assert_close(image, scaled.as_subclass(torch.Tensor) * 2 - 1)
        assert torch.equal(split.batch(places, epoch=3).x, split.batch(places).x)


@settings(deadline=None, max_examples=15)
@given(st.permutations(range(8)), st.integers(0, 5), st.sampled_from(["vit", "vit-mirror"]))
def test_a_crop_depends_on_place_seed_and_epoch_alone(order, epoch, transform):
    pixels = torch.randint(0, 256, (8, 3, 20, 30), generator=torch.Generator().manual_seed(0))
    source = ArrayImages("noise", pixels.to(torch.uint8), ["a", "b"] * 4, unit=True)
    ready = prepare(
        source,
        seed=0,
        validation=0.25,
        test=0,
        options=PreparationOptions(transform=transform, augment=True, image_size=12),
    )
    split = ready.task.train
    order = [place for place in order if place < len(split)]
    together = split.batch(torch.tensor(order), epoch).x
    for place, seen in zip(order, together, strict=True):
        torch.randperm(5)  # the global generator has no say
        alone = split.batch(torch.tensor([place]), epoch).x[0]
        torch.testing.assert_close(seen, alone, rtol=0, atol=0)
    places = torch.arange(len(split))
    epochs = [split.batch(places, number).x for number in range(epoch, epoch + 4)]
    assert any(not torch.equal(epochs[0], other) for other in epochs[1:])


def test_mirroring_alone_shows_each_picture_or_its_mirror_image(photographs):
    split = prepared(photographs, "vit-mirror").task.train
    places = torch.arange(len(split))
    plain, seen = split.batch(places).x, split.batch(places, epoch=0).x
    sides = [
        (torch.equal(a, b), torch.equal(a.flip(2), b)) for a, b in zip(plain, seen, strict=True)
    ]
    assert all(same != mirror for same, mirror in sides)
    assert len(set(sides)) == 2


def test_parts_of_arrays_are_cut_from_the_array_itself():
    pixels = torch.arange(2 * 3 * 10 * 12).view(2, 3, 10, 12).float()
    dice = dice_of(words_of(torch.arange(2), 0, 0), THROWS)
    for row in range(2):
        top, left, tall, wide = choose_part(10, 12, dice[row].tolist())
        exact = cut_parts(pixels[row : row + 1], (3, tall, wide), dice[row : row + 1])[0]
        assert torch.equal(exact, pixels[row, :, top : top + tall, left : left + wide])
    assert cut_parts(pixels[:0], (3, 4, 4), dice[:0]).shape == (0, 3, 4, 4)


def test_vision_transformers_get_their_size_and_gray(photographs):
    ready = prepared(photographs, size=None)
    assert ready.task.shape == (3, 224, 224)
    assert ready.preparation.mean == ready.preparation.std == (0.5, 0.5, 0.5)
    assert ready.task.facts["augmentation"].startswith("random part of 8% to 100%")
    again = preparation_from_json(ready.preparation.to_json())
    assert again == ready.preparation
    old = {k: v for k, v in ready.preparation.to_json().items() if k != "augmentation"}
    assert preparation_from_json(old).augmentation == "shift"
    assert "augmentation" not in prepared(photographs, augment=None).task.facts


def test_large_pictures_are_decoded_again_not_kept(photographs):
    files = [(file, file.parent.name) for file in sorted(photographs.rglob("*.png"))]
    source = ImageFiles("photographs", photographs, files)
    ready = prepare(source, seed=0, options=PreparationOptions(transform="vit", augment=True))
    ready.task.train.batch(torch.arange(3), epoch=0)
    assert not source._kept


def test_a_picture_that_became_unreadable_is_named(photographs):
    ready = prepared(photographs)
    file = ready.source.files[ready.places["train"][2]]
    file.write_bytes(b"no picture")
    with pytest.raises(UserError, match=f"{file.name} cannot be read as an image"):
        ready.task.train.batch(torch.tensor([2]), epoch=0)


def test_numbers_that_are_no_pixels_have_no_half_gray():
    source = ArrayImages("waves", torch.randn(20, 1, 8, 8), ["a", "b"] * 10, unit=False)
    with pytest.raises(UserError, match="transform 'vit' is for pixels from 0 to 255"):
        prepare(source, seed=0, options=PreparationOptions(transform="vit"))


def test_an_unknown_transform_is_refused():
    with pytest.raises(UserError, match="transform must be one of 'measured', 'vit'"):
        PreparationOptions(transform="vti")
