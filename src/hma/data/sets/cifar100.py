"""CIFAR-100, as torchvision keeps it."""

from pathlib import Path
from typing import Any

from hma.data.options import PreparationOptions
from hma.data.sets.torchvision_set import Pictures, TorchvisionSet, pictures


def _opened(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
    # torchvision compares the MD5 of these files with the published one before unpickling
    found = datasets.CIFAR100(root, train=split == "train", download=download)
    return pictures(found.data, found.classes, found.targets)


ABOUT = TorchvisionSet(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-python",
    address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    open=_opened,
    splits=("train", "test"),
    held_out=0.05,
    split="5% of the training images for validation by class and seed; CIFAR's test images",
    options=PreparationOptions(transform="vit-mirror", augment=True),
)
SET = ABOUT.named()
