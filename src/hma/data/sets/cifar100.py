"""CIFAR-100, as torchvision keeps it, which compares the MD5 of its files before unpickling."""

from hma.data.options import PreparationOptions
from hma.data.sets.torchvision_set import TorchvisionSet

ABOUT = TorchvisionSet(
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
SET = ABOUT.named()
