"""Flowers102, as torchvision keeps it."""

from pathlib import Path
from typing import Any

from hma.data.sets.torchvision_set import CROPPED, OFFICIAL, Pictures, TorchvisionSet, pictures
from hma.extras import needed


def _opened(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
    needed("scipy", "the labels of Flowers102")  # torchvision imports it when it reads them
    found = datasets.Flowers102(root, split=split, download=download)
    return pictures(found._image_files, datasets.Flowers102.classes, found._labels)


ABOUT = TorchvisionSet(
    name="flowers102",
    title="Flowers102",
    folder="flowers-102",
    address="https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
    open=_opened,
    splits=("train", "val", "test"),
    held_out=0.0,
    split=OFFICIAL,
    options=CROPPED,
)
SET = ABOUT.named()
