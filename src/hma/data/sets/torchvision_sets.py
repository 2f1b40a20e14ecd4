"""CIFAR-10, CIFAR-100, DTD, Pets37 and Flowers102, read by torchvision from its own layout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import numpy as np
import torch

from hma.data.image.files import ImageFiles
from hma.data.image.rows import ImageRows
from hma.data.labels import encode
from hma.data.location import data_folder, missing_data
from hma.data.npz import ArrayImages
from hma.data.preparation import PreparationOptions
from hma.data.task_from_source import Prepared, prepare_splits, stratified
from hma.errors import UserError
from hma.extras import needed, needed_beside_torchvision

Found = list[tuple[Path, str | None]]


class Pictures(NamedTuple):
    """One split as torchvision has it: pictures and the name of the class of each."""

    images: Any
    """Files, or an array ``(N, H, W, C)`` of bytes."""
    labels: list[str]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class ImageSet:
    """A data set, where it is kept, and how its authors and the paper use it.

    Args:
        title: As people call it.
        folder: Below the data folder.
        address: Where it can be fetched from.
        open: Opens the splits of ``splits`` with torchvision; takes ``torchvision.datasets``,
            the data folder, the name of a split, and whether to download.
        splits: Splits to be read, in order; the last is the test split.
        held_out: Share of the first split to select by, where there is no split for that.
        split: How the splits come about, in words.
        options: How the paper prepares the images.
    """

    title: str
    folder: str
    address: str
    open: Callable[[Any, Path, str, bool], Pictures]
    splits: tuple[str, ...]
    held_out: float
    split: str
    options: PreparationOptions


def _cifar(of: Callable[[Any], Any]) -> Callable[[Any, Path, str, bool], Pictures]:
    def opened(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
        # torchvision compares the MD5 of these files with the published one before unpickling
        found = of(datasets)(root, train=split == "train", download=download)
        names = tuple(found.classes)
        return Pictures(found.data, [names[label] for label in found.targets], names)

    return opened


def _dtd(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
    found = datasets.DTD(root, split=split, download=download)
    names = tuple(found.classes)
    return Pictures(found._image_files, [names[label] for label in found._labels], names)


def _pets(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
    found = datasets.OxfordIIITPet(root, split=split, download=download)
    names = tuple(found.classes)
    return Pictures(found._images, [names[label] for label in found._labels], names)


def _flowers(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
    needed("scipy", "the labels of Flowers102")  # torchvision imports it only when it reads them
    found = datasets.Flowers102(root, split=split, download=download)
    names = tuple(datasets.Flowers102.classes)
    return Pictures(found._image_files, [names[label] for label in found._labels], names)


OFFICIAL = "the authors' training, validation and test images"
CROPPED = PreparationOptions(transform="vit", augment=True)

IMAGE_SETS = {
    "cifar10": ImageSet(
        title="CIFAR-10",
        folder="cifar-10-batches-py",
        address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        open=_cifar(lambda datasets: datasets.CIFAR10),
        splits=("train", "test"),
        held_out=0.0,
        split="all 50,000 training images, no validation (the last epoch counts); CIFAR's test "
        "images",
        options=PreparationOptions(transform="measured", augment=True),
    ),
    "cifar100": ImageSet(
        title="CIFAR-100",
        folder="cifar-100-python",
        address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        open=_cifar(lambda datasets: datasets.CIFAR100),
        splits=("train", "test"),
        held_out=0.05,
        split="5% of the training images for validation by class and seed; CIFAR's test images",
        options=PreparationOptions(transform="vit-mirror", augment=True),
    ),
    "dtd": ImageSet(
        title="DTD",
        folder="dtd",
        address="https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
        open=_dtd,
        splits=("train", "val", "test"),
        held_out=0.0,
        split=f"{OFFICIAL}, partition 1",
        options=CROPPED,
    ),
    "pets37": ImageSet(
        title="Pets37 (Oxford-IIIT Pet)",
        folder="oxford-iiit-pet",
        address="https://www.robots.ox.ac.uk/~vgg/data/pets/",
        open=_pets,
        splits=("trainval", "test"),
        held_out=0.1,
        split="10% of the training images for validation by class and seed; the authors' test "
        "images",
        options=CROPPED,
    ),
    "flowers102": ImageSet(
        title="Flowers102",
        folder="flowers-102",
        address="https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
        open=_flowers,
        splits=("train", "val", "test"),
        held_out=0.0,
        split=OFFICIAL,
        options=CROPPED,
    ),
}


def image_set(
    name: str,
    *,
    seed: int,
    data_root: Path | None = None,
    download: bool = False,
    options: PreparationOptions | None = None,
) -> Prepared:
    """Return a data set in the paper's splits, prepared as the paper has it unless told otherwise.

    Args:
        name: One of ``IMAGE_SETS``.
        seed: Decides the split, where its authors leave it open.
        data_root: Where the data is; ``$HMA_DATA`` or the cache folder if not given.
        download: Fetch the data if it is not there.
        options: Choices about the images; what is None is the paper's.
    """
    about = IMAGE_SETS[name]
    splits = _opened(about, data_root, download=download)
    source = _source(name, about, splits, data_root)
    facts = {"split": about.split, "seed": seed}
    return prepare_splits(
        source,
        _places(about, splits, seed),
        classes=splits[0].classes,
        seed=seed,
        facts=facts,
        options=_chosen(about.options, options),
    )


def image_set_source(name: str, data_root: Path | None = None) -> ImageRows:
    """Return all pictures of a data set: training, then validation, then test."""
    about = IMAGE_SETS[name]
    return _source(name, about, _opened(about, data_root, download=False), data_root)


def _chosen(usual: PreparationOptions, asked: PreparationOptions | None) -> PreparationOptions:
    if asked is None:
        return usual
    augment = usual.augment if asked.augment is None else asked.augment
    return replace(asked, transform=asked.transform or usual.transform, augment=augment)


def _opened(about: ImageSet, data_root: Path | None, *, download: bool) -> list[Pictures]:
    """Return every split of a data set, or say what is missing or damaged."""
    root = data_folder(data_root)
    folder = root / about.folder
    if not download and not folder.is_dir():
        raise missing_data(about.title, folder, about.address)
    datasets = needed_beside_torchvision("torchvision.datasets", about.title, extra="vision")
    if download:
        root.mkdir(parents=True, exist_ok=True)
    try:
        return [about.open(datasets, root, split, download) for split in about.splits]
    except (URLError, TimeoutError, ConnectionError) as error:
        raise UserError(
            f"{about.address} cannot be fetched: {error}; fetch it elsewhere and unpack it into "
            f"{folder}"
        ) from error
    except (RuntimeError, OSError, ValueError, KeyError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{about.title} in {folder} is incomplete or damaged ({reason}); remove the folder and "
            f"put the data of {about.address} there"
        ) from error


def _source(
    name: str, about: ImageSet, splits: Sequence[Pictures], data_root: Path | None
) -> ImageRows:
    labels = [label for split in splits for label in split.labels]
    if isinstance(splits[0].images, np.ndarray):
        pixels = np.concatenate([split.images for split in splits]).transpose(0, 3, 1, 2)
        return ArrayImages(name, torch.from_numpy(np.ascontiguousarray(pixels)), labels, unit=True)
    files = [Path(file) for split in splits for file in split.images]
    folder = data_folder(data_root) / about.folder
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise UserError(
            f"{about.title} in {folder} is incomplete: {len(missing)} of {len(files)} images are "
            f"missing, the first is {missing[0]}; remove the folder and put the data of "
            f"{about.address} there"
        )
    found: Found = list(zip(files, labels, strict=True))
    return ImageFiles(name, folder, found)


def _places(about: ImageSet, splits: Sequence[Pictures], seed: int) -> dict[str, list[int]]:
    """Return the rows of each split, counted over all of them."""
    first = len(splits[0].labels)
    total = sum(len(split.labels) for split in splits)
    test = list(range(total - len(splits[-1].labels), total))
    if about.held_out:
        labels = encode(splits[0].labels, splits[0].classes)
        return {**stratified(labels, seed, validation=about.held_out, test=0.0), "test": test}
    validation = list(range(first, total - len(test)))
    return {"train": list(range(first)), "validation": validation, "test": test}
