"""Image sets in torchvision's layout, in the paper's splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import numpy as np
import torch

from hma.data.arrays import ArrayImages
from hma.data.division import by_class
from hma.data.image.source import ImageFiles, ImageSource
from hma.data.labels import encode
from hma.data.prepared import Prepared, prepare_splits
from hma.data.sets.named_set import NamedSet, SetRequest
from hma.data.storage import data_folder, missing_data
from hma.errors import UserError, reason
from hma.extras import needed, needed_beside_torchvision
from hma.options.preparation import PreparationOptions

OFFICIAL = "the authors' training, validation and test images"
CROPPED = PreparationOptions(transform="vit", augment=True)


class Pictures(NamedTuple):
    """One split as torchvision has it: pictures and the name of the class of each."""

    images: Any
    """Files, or an array ``(N, H, W, C)`` of bytes."""
    labels: list[str]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class TorchvisionSet:
    """A data set, where it is kept, and how its authors and the paper use it.

    Args:
        name: As a user writes it.
        title: As people call it.
        folder: Below the data folder.
        address: Where it can be fetched from.
        dataset: Name of its class in ``torchvision.datasets``.
        images, labels: Where an object of that class keeps files or pixels, and class ids.
        splits: What the class is told for each split, in order; the last is the test split.
        held_out: Share of the first split to select by, where there is no split for that.
        split: How the splits come about, in words.
        options: How the paper prepares the images.
        needs: Packages that torchvision imports when it reads the labels.
    """

    name: str
    title: str
    folder: str
    address: str
    dataset: str
    images: str
    labels: str
    splits: tuple[Mapping[str, Any], ...]
    held_out: float
    split: str
    options: PreparationOptions
    needs: tuple[str, ...] = ()

    def to_named_set(self) -> NamedSet:
        """Return the set as users find it."""
        return NamedSet((self.name,), self.name, self._prepare, self._all_pictures)

    def _prepare(self, request: SetRequest) -> Prepared:
        """Return the paper's splits, prepared as the paper has it unless told otherwise."""
        splits = _open_splits(self, request.data_root, download=request.download)
        return prepare_splits(
            _source(self, splits, request.data_root),
            _places(self, splits, request.seed),
            classes=splits[0].classes,
            seed=request.seed,
            facts={"split": self.split, "seed": request.seed},
            options=_choose_options(self.options, request.options),
        )

    def _all_pictures(self, request: SetRequest) -> ImageSource:
        """Return training, then validation, then test pictures."""
        return _source(
            self, _open_splits(self, request.data_root, download=False), request.data_root
        )


def _choose_options(
    usual: PreparationOptions, chosen: PreparationOptions | None
) -> PreparationOptions:
    if chosen is None:
        return usual
    augment = usual.augment if chosen.augment is None else chosen.augment
    return replace(chosen, transform=chosen.transform or usual.transform, augment=augment)


def _open_splits(
    about: TorchvisionSet, data_root: Path | None, *, download: bool
) -> list[Pictures]:
    """Return every split of a data set, or say what is missing or damaged."""
    root = data_folder(data_root)
    folder = root / about.folder
    if not download and not folder.is_dir():
        raise missing_data(about.title, folder, about.address)
    datasets = needed_beside_torchvision("torchvision.datasets", about.title, extra="vision")
    for module in about.needs:
        needed(module, f"the labels of {about.title}")
    if download:
        root.mkdir(parents=True, exist_ok=True)
    try:
        return [_open_split(about, datasets, root, split, download) for split in about.splits]
    except (URLError, TimeoutError, ConnectionError) as error:
        raise UserError(
            f"{about.address} cannot be fetched: {error}; fetch it elsewhere and unpack it into "
            f"{folder}"
        ) from error
    except (RuntimeError, OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(
            f"{about.title} in {folder} is incomplete or damaged ({reason(error)}); remove the "
            f"folder and put the data of {about.address} there"
        ) from error


def _open_split(
    about: TorchvisionSet, datasets: Any, root: Path, split: Mapping[str, Any], download: bool
) -> Pictures:
    rows = getattr(datasets, about.dataset)(root, download=download, **split)
    labels = [rows.classes[label] for label in getattr(rows, about.labels)]
    return Pictures(getattr(rows, about.images), labels, tuple(rows.classes))


def _source(
    about: TorchvisionSet, splits: Sequence[Pictures], data_root: Path | None
) -> ImageSource:
    labels = [label for split in splits for label in split.labels]
    if isinstance(splits[0].images, np.ndarray):
        pixels = np.concatenate([split.images for split in splits]).transpose(0, 3, 1, 2)
        return ArrayImages(
            about.name, torch.from_numpy(np.ascontiguousarray(pixels)), labels, unit=True
        )
    files = [Path(file) for split in splits for file in split.images]
    folder = data_folder(data_root) / about.folder
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise UserError(
            f"{about.title} in {folder} is incomplete: {len(missing)} of {len(files)} images are "
            f"missing, the first is {missing[0]}; remove the folder and put the data of "
            f"{about.address} there"
        )
    return ImageFiles(about.name, folder, list(zip(files, labels, strict=True)))


def _places(about: TorchvisionSet, splits: Sequence[Pictures], seed: int) -> dict[str, list[int]]:
    """Return the rows of each split, counted over all of them."""
    first = len(splits[0].labels)
    total = sum(len(split.labels) for split in splits)
    test = list(range(total - len(splits[-1].labels), total))
    if about.held_out:
        labels = encode(splits[0].labels, splits[0].classes)
        return {**by_class(labels, seed, validation=about.held_out, test=0.0), "test": test}
    validation = list(range(first, total - len(test)))
    return {"train": list(range(first)), "validation": validation, "test": test}


CIFAR10 = TorchvisionSet(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    dataset="CIFAR10",
    images="data",
    labels="targets",
    splits=({"train": True}, {"train": False}),
    held_out=0.0,
    split="all 50,000 training images, no validation (the last epoch counts); CIFAR's test images",
    options=PreparationOptions(transform="measured", augment=True),
)
CIFAR100 = TorchvisionSet(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-python",
    address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    dataset="CIFAR100",
    images="data",
    labels="targets",
    splits=({"train": True}, {"train": False}),
    held_out=0.05,
    split="5% of the training images for validation by class and seed; CIFAR's test images",
    options=PreparationOptions(transform="vit-mirror", augment=True),
)
DTD = TorchvisionSet(
    name="dtd",
    title="DTD",
    folder="dtd",
    address="https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
    dataset="DTD",
    images="_image_files",
    labels="_labels",
    splits=({"split": "train"}, {"split": "val"}, {"split": "test"}),
    held_out=0.0,
    split=f"{OFFICIAL}, partition 1",
    options=CROPPED,
)
PETS37 = TorchvisionSet(
    name="pets37",
    title="Pets37 (Oxford-IIIT Pet)",
    folder="oxford-iiit-pet",
    address="https://www.robots.ox.ac.uk/~vgg/data/pets/",
    dataset="OxfordIIITPet",
    images="_images",
    labels="_labels",
    splits=({"split": "trainval"}, {"split": "test"}),
    held_out=0.1,
    split="10% of the training images for validation by class and seed; the authors' test images",
    options=CROPPED,
)
FLOWERS102 = TorchvisionSet(
    name="flowers102",
    title="Flowers102",
    folder="flowers-102",
    address="https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
    dataset="Flowers102",
    images="_image_files",
    labels="_labels",
    splits=({"split": "train"}, {"split": "val"}, {"split": "test"}),
    held_out=0.0,
    split=OFFICIAL,
    options=CROPPED,
    needs=("scipy",),
)
SETS = tuple(one.to_named_set() for one in (CIFAR10, CIFAR100, DTD, PETS37, FLOWERS102))
