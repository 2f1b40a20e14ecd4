"""Image sets read by torchvision from its own layout, in the paper's splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import numpy as np
import torch

from hma.data.image.array import ArrayImages
from hma.data.image.files import ImageFiles
from hma.data.image.rows import ImageRows
from hma.data.labels import encode
from hma.data.location import data_folder, missing_data
from hma.data.options import PreparationOptions
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.splitting import stratified
from hma.data.task_from_source import Prepared, prepare_splits
from hma.errors import UserError, reason
from hma.extras import needed, needed_beside_torchvision

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

    def named(self) -> NamedSet:
        """Return the set as users find it."""
        return NamedSet((self.name,), self.name, self._prepared, self._all_pictures)

    def _prepared(self, asked: Asked) -> Prepared:
        """Return the paper's splits, prepared as the paper has it unless told otherwise."""
        splits = _opened(self, asked.data_root, download=asked.download)
        return prepare_splits(
            _source(self, splits, asked.data_root),
            _places(self, splits, asked.seed),
            classes=splits[0].classes,
            seed=asked.seed,
            facts={"split": self.split, "seed": asked.seed},
            options=_chosen(self.options, asked.options),
        )

    def _all_pictures(self, asked: Asked) -> ImageRows:
        """Return training, then validation, then test pictures."""
        return _source(self, _opened(self, asked.data_root, download=False), asked.data_root)


def _chosen(usual: PreparationOptions, asked: PreparationOptions | None) -> PreparationOptions:
    if asked is None:
        return usual
    augment = usual.augment if asked.augment is None else asked.augment
    return replace(asked, transform=asked.transform or usual.transform, augment=augment)


def _opened(about: TorchvisionSet, data_root: Path | None, *, download: bool) -> list[Pictures]:
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
        return [_pictures(about, datasets, root, split, download) for split in about.splits]
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


def _pictures(
    about: TorchvisionSet, datasets: Any, root: Path, split: Mapping[str, Any], download: bool
) -> Pictures:
    rows = getattr(datasets, about.dataset)(root, download=download, **split)
    labels = [rows.classes[label] for label in getattr(rows, about.labels)]
    return Pictures(getattr(rows, about.images), labels, tuple(rows.classes))


def _source(about: TorchvisionSet, splits: Sequence[Pictures], data_root: Path | None) -> ImageRows:
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
        return {**stratified(labels, seed, validation=about.held_out, test=0.0), "test": test}
    validation = list(range(first, total - len(test)))
    return {"train": list(range(first)), "validation": validation, "test": test}
