"""The Describable Textures Dataset, as torchvision keeps it."""

from pathlib import Path
from typing import Any

from hma.data.sets.torchvision_set import CROPPED, OFFICIAL, Pictures, TorchvisionSet, pictures


def _opened(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
    found = datasets.DTD(root, split=split, download=download)
    return pictures(found._image_files, found.classes, found._labels)


ABOUT = TorchvisionSet(
    name="dtd",
    title="DTD",
    folder="dtd",
    address="https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
    open=_opened,
    splits=("train", "val", "test"),
    held_out=0.0,
    split=f"{OFFICIAL}, partition 1",
    options=CROPPED,
)
SET = ABOUT.named()
