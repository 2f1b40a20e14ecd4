"""CIFAR-10, as torchvision keeps it."""

from pathlib import Path
from typing import Any

from hma.data.options import PreparationOptions
from hma.data.sets.torchvision_set import Pictures, TorchvisionSet, pictures


def _opened(datasets: Any, root: Path, split: str, download: bool) -> Pictures:
    # torchvision compares the MD5 of these files with the published one before unpickling
    found = datasets.CIFAR10(root, train=split == "train", download=download)
    return pictures(found.data, found.classes, found.targets)


ABOUT = TorchvisionSet(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    open=_opened,
    splits=("train", "test"),
    held_out=0.0,
    split="all 50,000 training images, no validation (the last epoch counts); CIFAR's test images",
    options=PreparationOptions(transform="measured", augment=True),
)
SET = ABOUT.named()
