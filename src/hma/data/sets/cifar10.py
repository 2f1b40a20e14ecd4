"""CIFAR-10, as torchvision keeps it, which compares the MD5 of its files before unpickling."""

from hma.data.options import PreparationOptions
from hma.data.sets.torchvision_set import TorchvisionSet

ABOUT = TorchvisionSet(
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
SET = ABOUT.named()
