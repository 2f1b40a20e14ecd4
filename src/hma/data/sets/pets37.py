"""Pets37, the Oxford-IIIT Pet dataset, as torchvision keeps it."""

from hma.data.sets.torchvision_set import CROPPED, TorchvisionSet

ABOUT = TorchvisionSet(
    name="pets37",
    title="Pets37 (Oxford-IIIT Pet)",
    folder="oxford-iiit-pet",
    address="https://www.robots.ox.ac.uk/~vgg/data/pets/",
    dataset="OxfordIIITPet",
    images="_images",
    labels="_labels",
    splits=({"split": "trainval"}, {"split": "test"}),
    held_out=0.1,
    split="10% of the training images for validation by class and seed; the authors' test images",
    options=CROPPED,
)
SET = ABOUT.named()
