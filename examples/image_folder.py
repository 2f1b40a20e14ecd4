"""A folder of images, one folder a class: a backbone that suits their size, with a memory.

python image_folder.py FOLDER reads yours; without one, scikit-learn's digits are written as PNG.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from sklearn.datasets import load_digits

from hma import VoteConfig
from hma.backbones import backbone_for, default_backbone
from hma.data import PreparationOptions, open_source, prepare
from hma.methods import erm, with_memory
from hma.training import UserRecipe, fit


def write_digits(folder):
    digits = load_digits()
    for place, (pixels, digit) in enumerate(zip(digits.images[:300], digits.target, strict=False)):
        (folder / str(digit)).mkdir(exist_ok=True)
        image = Image.fromarray((pixels * 15).astype("uint8"))
        image.save(folder / str(digit) / f"{place}.png")
    return folder


with TemporaryDirectory() as made:
    folder = sys.argv[1] if len(sys.argv) > 1 else write_digits(Path(made))
    size = PreparationOptions(image_size=16)  # photographs: leave it out, and see docs/images.md
    task = prepare(open_source(str(folder)), seed=0, options=size).task
    backbone = backbone_for(default_backbone(task.kind, task.shape))
    recipe = UserRecipe(epochs=40)
    plain = fit(erm(backbone)(task, 0), task, recipe, seed=0)
    ours = fit(with_memory(backbone, VoteConfig())(task, 0), task, recipe, seed=0)
    print(f"plain backbone: {plain.tests['test']['alone']['accuracy']:.3f}")
    print(f"test accuracy {ours.tests['test']['alone']['accuracy']:.3f}")
