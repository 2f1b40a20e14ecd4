"""Flowers102, as torchvision keeps it."""

from hma.data.sets.torchvision_set import CROPPED, OFFICIAL, TorchvisionSet

ABOUT = TorchvisionSet(
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
SET = ABOUT.named()
