"""Image sets in torchvision's layout: tiny copies, compared with torchvision's own items."""

import hashlib
import importlib.util
import pickle
import sys
import urllib.error

import numpy as np
import pytest
import torch
from PIL import Image

from hma.data import PreparationOptions, builtin, open_source, stream
from hma.data.sets.torchvision_sets import CIFAR10, CIFAR100, DTD, FLOWERS102, PETS37
from hma.errors import UserError
from hma.extras import ensure_torchvision

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="needs the vision extra"
)
SMALL = PreparationOptions(image_size=16)
IMAGE_SETS = {one.name: one for one in (CIFAR10, CIFAR100, DTD, PETS37, FLOWERS102)}


@pytest.fixture
def datasets():
    ensure_torchvision()
    from torchvision import datasets

    return datasets


def photograph(file, seed):
    file.parent.mkdir(parents=True, exist_ok=True)
    rough = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), np.uint8)
    Image.fromarray(rough).resize((40 + seed % 7, 30)).save(file)


def written_pickle(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps(content))
    return [file.name, hashlib.md5(file.read_bytes()).hexdigest()]


def fake_cifar(root, kind, monkeypatch, *, classes, rows, key, names):
    """Write batches of noise and tell torchvision what they hash to."""
    generator = np.random.default_rng(0)

    def batch(name, count):
        pixels = generator.integers(0, 256, (count, 3072), np.uint8)
        labels = [place % classes for place in range(count)]
        return written_pickle(root / kind.base_folder / name, {"data": pixels, key: labels})

    train = [batch(name, rows) for name, _ in kind.train_list]
    test = [batch(name, 2 * classes) for name, _ in kind.test_list]
    told = {names: [f"class {label}" for label in range(classes)]}
    meta = written_pickle(root / kind.base_folder / kind.meta["filename"], told)
    monkeypatch.setattr(kind, "train_list", train)
    monkeypatch.setattr(kind, "test_list", test)
    monkeypatch.setattr(kind, "meta", {"filename": meta[0], "key": names, "md5": meta[1]})


def fake_cifar10(root, datasets, patch):
    fake_cifar(
        root, datasets.CIFAR10, patch, classes=10, rows=20, key="labels", names="label_names"
    )
    return {
        "train": datasets.CIFAR10(root, train=True),
        "validation": [],
        "test": datasets.CIFAR10(root, train=False),
    }


def fake_cifar100(root, datasets, patch):
    fake_cifar(
        root,
        datasets.CIFAR100,
        patch,
        classes=5,
        rows=100,
        key="fine_labels",
        names="fine_label_names",
    )
    return {"rest": datasets.CIFAR100(root), "test": datasets.CIFAR100(root, train=False)}


def fake_dtd(root, datasets, patch):
    folder = root / "dtd" / "dtd"
    (folder / "labels").mkdir(parents=True)
    seed = 0
    for split in ("train", "val", "test"):
        lines = []
        for texture in ("zigzagged", "banded", "dotted"):
            for _ in range(3):
                seed += 1
                photograph(folder / "images" / texture / f"{texture}_{seed:04}.jpg", seed)
                lines.append(f"{texture}/{texture}_{seed:04}.jpg")
        (folder / "labels" / f"{split}1.txt").write_text("\n".join(lines) + "\n")
    opened = {split: datasets.DTD(root, split=split) for split in ("train", "val", "test")}
    return {"train": opened["train"], "validation": opened["val"], "test": opened["test"]}


def fake_pets(root, datasets, patch):
    folder = root / "oxford-iiit-pet"
    (folder / "annotations").mkdir(parents=True)
    for split, count in (("trainval", 10), ("test", 3)):
        lines = []
        for label, breed in enumerate(["Abyssinian", "american_bulldog", "Bengal"], 1):
            for number in range(count):
                name = f"{breed}_{number + (100 if split == 'test' else 0)}"
                photograph(folder / "images" / f"{name}.jpg", 50 * label + len(lines))
                lines.append(f"{name} {label} {1 + label % 2} 1")
        (folder / "annotations" / f"{split}.txt").write_text("\n".join(lines) + "\n")
    pets = datasets.OxfordIIITPet
    return {"rest": pets(root, split="trainval"), "test": pets(root, split="test")}


def fake_flowers(root, datasets, patch):
    from scipy.io import savemat

    folder = root / "flowers-102"
    for number in range(1, 13):
        photograph(folder / "jpg" / f"image_{number:05d}.jpg", number)
    savemat(folder / "imagelabels.mat", {"labels": np.arange(12)[None] % 3 * 40 + 1})
    sets = {"trnid": [[5, 2, 9]], "valid": [[1, 3, 4]], "tstid": [[6, 7, 8, 10, 11, 12]]}
    savemat(folder / "setid.mat", {name: np.array(ids) for name, ids in sets.items()})
    files = {
        kind: (name, hashlib.md5((folder / name).read_bytes()).hexdigest())
        for kind, name in (("label", "imagelabels.mat"), ("setid", "setid.mat"))
    }
    patch.setattr(datasets.Flowers102, "_file_dict", files)
    opened = {split: datasets.Flowers102(root, split=split) for split in ("train", "val", "test")}
    return {"train": opened["train"], "validation": opened["val"], "test": opened["test"]}


FAKES = {
    "cifar10": fake_cifar10,
    "cifar100": fake_cifar100,
    "dtd": fake_dtd,
    "pets37": fake_pets,
    "flowers102": fake_flowers,
}


@pytest.fixture(params=FAKES)
def copy(request, tmp_path, datasets, monkeypatch):
    """A tiny copy of each data set, its name, and torchvision's own view of it."""
    return request.param, tmp_path, FAKES[request.param](tmp_path, datasets, monkeypatch)


def as_evaluated(image, size, ready):
    """Convert one of torchvision's items by hand."""
    small = image.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(small, np.float64).transpose(2, 0, 1) / 255
    mean, std = (np.array(getattr(ready.preparation, name)) for name in ("mean", "std"))
    return (pixels - mean[:, None, None]) / std[:, None, None]


def test_every_row_is_an_item_of_torchvision(copy):
    name, root, theirs = copy
    size = 32 if name.startswith("cifar") else 16
    options = None if name == "cifar10" else PreparationOptions(image_size=size)
    ready = builtin(name, seed=1, data_root=root, options=options)
    splits = {"train": ready.task.train, "validation": ready.task.validation, **ready.task.tests}
    for split, own in splits.items():
        items = theirs[split] if split in theirs else theirs["rest"]
        if split not in theirs:  # a part of torchvision's split, chosen by seed
            items = [items[row] for row in ready.places[split]]
        assert len(own) == len(items)
        if not len(own):
            continue
        batch = own.batch(torch.arange(len(own)))
        for x, y, (image, label) in zip(batch.x, batch.y, items, strict=True):
            np.testing.assert_allclose(x, as_evaluated(image, size, ready), atol=1e-5)
            assert int(y) == label
    assert ready.task.classes == tuple(getattr(theirs["test"], "classes", ready.task.classes))
    assert ready.task.facts["split"] == IMAGE_SETS[name].split


def test_splits_are_the_papers(copy):
    name, root, _ = copy
    ready = builtin(name, seed=1, data_root=root, options=SMALL)
    rows = {split: len(places) for split, places in ready.places.items()}
    expected = {
        "cifar10": {"train": 100, "validation": 0, "test": 20},
        "cifar100": {"train": 95, "validation": 5, "test": 10},
        "dtd": {"train": 9, "validation": 9, "test": 9},
        "pets37": {"train": 27, "validation": 3, "test": 9},
        "flowers102": {"train": 3, "validation": 3, "test": 6},
    }
    assert rows == expected[name]
    seen = sorted(row for places in ready.places.values() for row in places)
    assert seen == list(range(len(ready.source)))  # no row twice, none left out
    other = builtin(name, seed=2, data_root=root, options=SMALL)
    drawn = name in ("cifar100", "pets37")
    assert (other.places["validation"] != ready.places["validation"]) == drawn
    assert other.places["test"] == ready.places["test"]


def test_only_training_rows_are_augmented_and_only_unless_told_otherwise(copy):
    name, root, _ = copy
    usual = builtin(name, seed=0, data_root=root, options=SMALL).task
    kind = {"cifar10": "random crop with 4", "cifar100": "mirror images"}
    assert usual.facts["augmentation"].startswith(kind.get(name, "random part of 8%"))
    still = PreparationOptions(image_size=16, augment=False)
    plain = builtin(name, seed=0, data_root=root, options=still).task
    for task, changes in ((usual, True), (plain, False)):
        splits = {"train": task.train, "validation": task.validation, **task.tests}
        for part, split in splits.items():
            places = torch.arange(len(split))
            if len(places):
                seen = [split.batch(places, epoch).x for epoch in range(3)]
                moves = any(not torch.equal(x, split.batch(places).x) for x in seen)
                assert moves == (changes and part == "train")


def test_the_papers_sizes_and_normalisation(copy):
    name, root, _ = copy
    ready = builtin(name, seed=0, data_root=root)
    assert ready.task.shape == ((3, 32, 32) if name == "cifar10" else (3, 224, 224))
    if name == "cifar10":  # measured over all training pixels
        pixels = ready.source.images[:100].double() / 255
        np.testing.assert_allclose(ready.preparation.mean, pixels.mean((0, 2, 3)), rtol=1e-6)
        std = pixels.std((0, 2, 3), unbiased=False)
        np.testing.assert_allclose(ready.preparation.std, std, rtol=1e-6)
    else:
        assert ready.preparation.mean == ready.preparation.std == (0.5,) * 3


def test_all_pictures_can_be_opened_and_streamed_by_name(copy, monkeypatch):
    name, root, _ = copy
    ready = builtin(name, seed=0, data_root=root, options=SMALL)
    source = open_source(name, data_root=root)
    assert source.fingerprint() == ready.source.fingerprint()
    assert source.labels == ready.source.labels
    rows = torch.cat([batch.x for batch in stream(ready.preparation, source, 7)])
    test = ready.task.tests["test"]
    expected = test.batch(torch.arange(len(test))).x
    torch.testing.assert_close(rows[ready.places["test"]], expected)
    assert source.thumbnail(0).size[0] > 1
    assert source.describe(0)


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_data_that_is_absent_is_named_with_place_and_address(name, tmp_path):
    about = IMAGE_SETS[name]
    with pytest.raises(UserError) as e:
        builtin(name, seed=0, data_root=tmp_path)
    message = str(e.value)
    assert "\n" not in message
    assert all(
        part in message
        for part in (about.title, str(tmp_path / about.folder), about.address, "--data-root")
    )


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "flowers102"])
def test_files_that_are_not_the_published_ones_are_refused(name, datasets, tmp_path, monkeypatch):
    FAKES[name](tmp_path, datasets, monkeypatch)
    folder = tmp_path / IMAGE_SETS[name].folder
    file = next(file for file in sorted(folder.iterdir()) if file.is_file())
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(UserError, match="is incomplete or damaged"):
        builtin(name, seed=0, data_root=tmp_path)


@pytest.mark.parametrize("name", ["dtd", "pets37", "flowers102"])
def test_a_picture_that_is_missing_is_named(name, datasets, tmp_path, monkeypatch):
    FAKES[name](tmp_path, datasets, monkeypatch)
    file = next((tmp_path / IMAGE_SETS[name].folder).rglob("*.jpg"))
    file.unlink()
    with pytest.raises(UserError, match=f"1 of .* images are missing, the first is .*{file.name}"):
        builtin(name, seed=0, data_root=tmp_path)


def test_a_list_of_labels_that_is_missing_is_damage(datasets, tmp_path, monkeypatch):
    fake_dtd(tmp_path, datasets, monkeypatch)
    (tmp_path / "dtd" / "dtd" / "labels" / "val1.txt").unlink()
    with pytest.raises(UserError, match=r"DTD in .* is incomplete or damaged"):
        builtin("dtd", seed=0, data_root=tmp_path)


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_a_download_without_a_network_says_so(name, tmp_path, monkeypatch):
    def refused(*arguments, **options):
        raise urllib.error.URLError("no network here")

    monkeypatch.setattr("urllib.request.urlopen", refused)
    with pytest.raises(UserError, match=r"cannot be fetched: .*no network here"):
        builtin(name, seed=0, data_root=tmp_path / "new", download=True)


def test_the_papers_choices_give_way_one_by_one(datasets, tmp_path, monkeypatch):
    fake_dtd(tmp_path, datasets, monkeypatch)
    options = PreparationOptions(transform="measured", image_size=16)
    ready = builtin("dtd", seed=0, data_root=tmp_path, options=options)
    assert ready.preparation.mean != (0.5,) * 3
    assert ready.task.facts["augmentation"].startswith("random crop with 4")


def test_a_package_that_is_missing_is_named(datasets, tmp_path, monkeypatch):
    fake_flowers(tmp_path, datasets, monkeypatch)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(UserError, match="the labels of Flowers102 needs scipy: pip install scipy"):
        builtin("flowers102", seed=0, data_root=tmp_path)
