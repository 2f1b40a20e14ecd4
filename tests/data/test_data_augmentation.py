"""Shifts and mirror images against a loop, and what they may depend on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hma.data import PreparationOptions, open_source, prepare
from hma.data.draws import mixed
from hma.data.image.array import ArrayImages
from hma.data.image.preparation import ImagePreparation
from hma.data.image.split import draws, shifted_and_mirrored


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
    down, right, mirror = draws(torch.arange(count), seed, epoch=1)
    found = shifted_and_mirrored(images, down, right, mirror)
    expected = [
        by_hand(image, int(d), int(r), bool(m))
        for image, d, r, m in zip(images, down, right, mirror, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=0)


IMAGES = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def split_of(augment, seed=7):
    source = ArrayImages("noise", IMAGES, ["a"] * 50, unit=True)
    return ImagePreparation(("a",), (1, 8, 8), (0.5,), (2.0,), unit=True).split(
        source, augment_seed=seed if augment else None
    )


@settings(deadline=None)
@given(st.permutations(range(12)), st.integers(0, 5))
def test_a_row_depends_on_place_seed_and_epoch_alone(order, epoch):
    split = split_of(augment=True)
    together = split.batch(torch.tensor(order), epoch).x
    for place, seen in zip(order, together, strict=True):
        torch.randperm(5)  # the global generator has no say
        alone = split.batch(torch.tensor([place]), epoch).x[0]
        torch.testing.assert_close(seen, alone, rtol=0, atol=0)


def test_epochs_seeds_and_places_differ():
    places = torch.arange(1000)
    base = torch.stack([part.long() for part in draws(places, 0, 0)])
    for other in (draws(places, 0, 1), draws(places, 1, 0), draws(places + 1, 0, 0)):
        same = (base == torch.stack([part.long() for part in other])).all(dim=0)
        assert 0 < int(same.sum()) < 30  # 1 in 162 by chance


def test_every_shift_and_both_sides_are_as_frequent():
    down, right, mirror = draws(torch.arange(81_000), seed=3, epoch=5)
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
