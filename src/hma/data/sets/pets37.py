"""Pets37, the Oxford-IIIT Pet dataset, as torchvision keeps it."""

from pathlib import Path
from typing import Any

from hma.data.sets.torchvision_set import CROPPED, Pictures, TorchvisionSet, pictures


def _opened(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
    found = datasets.OxfordIIITPet(root, split=split, download=download)
    return pictures(found._images, found.classes, found._labels)


ABOUT = TorchvisionSet(
    name="pets37",
    title="Pets37 (Oxford-IIIT Pet)",
    folder="oxford-iiit-pet",
    address="https://www.robots.ox.ac.uk/~vgg/data/pets/",
    open=_opened,
    splits=("trainval", "test"),
    held_out=0.1,
    split="10% of the training images for validation by class and seed; the authors' test images",
    options=CROPPED,
)
SET = ABOUT.named()
