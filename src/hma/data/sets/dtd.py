"""The Describable Textures Dataset, as torchvision keeps it."""

from hma.data.sets.torchvision_set import CROPPED, OFFICIAL, TorchvisionSet

ABOUT = TorchvisionSet(
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
SET = ABOUT.named()
