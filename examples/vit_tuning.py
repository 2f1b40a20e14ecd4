"""Tune a Vision Transformer in part: it learns digits, then washed-out ones from few labels.

The second time only its CLS token, five prompts per block, the memory and the head train. Any
plain Vision Transformer of timm works alike, with a local file of pretrained weights:

    vit("vit_base_patch32_224", (3, 224, 224), tuning="part", prompts="deep", weights=FILE)
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import save_file

import hma
from hma.backbones import vit
from hma.data import InMemory, Task
from hma.data.sets.digits import DIGITS, digit_images, digit_places
from hma.methods import erm, with_memory
from hma.training import Recipe, fit

SMALL = {"patch_size": 2, "depth": 3, "embed_dim": 48, "num_heads": 4}
images, labels = digit_images()


def digits(per_class, black, white):
    """Digits in 60/20/20 splits, with ``per_class`` labels of each class to learn from."""
    shown = black + (white - black) * images
    split = {
        name: InMemory(shown[rows] * 2 - 1, labels[rows])
        for name, rows in digit_places(labels, seed=0, per_class=per_class).items()
    }
    tests = {"test": split["test"]}
    return Task("digits", "image", DIGITS, (1, 8, 8), split["train"], split["validation"], tests)


def backbone(**choices):
    """A builder of small Vision Transformers."""
    return lambda task: vit("vit_tiny_patch16_224", task.shape, settings=SMALL, **choices)


with TemporaryDirectory() as folder:
    weights = Path(folder) / "vit.safetensors"
    clear = digits(per_class=None, black=0.0, white=1.0)
    learner = erm(backbone())(clear, 0)
    fit(learner, clear, Recipe(epochs=25, batch_size=64, schedule="cosine"), seed=0)
    save_file(learner.module.backbone.model.state_dict(), weights)

    # the momentum encoder is off: nearly all of the backbone stays as it is
    config = hma.HMAConfig(label_dim=16, queue_size=50, slots_per_class=4, momentum=0)
    washed_out = digits(per_class=5, black=0.5, white=0.8)
    recipe = Recipe(epochs=40, batch_size=50, lr=3e-3, evaluate_every=10)
    for tuning, prompts in [("none", None), ("part", None), ("part", "deep")]:
        tuned = backbone(tuning=tuning, prompts=prompts, weights=weights)
        learner = with_memory(tuned, config)(washed_out, 0)
        trained = sum(p.numel() for p in learner.model.backbone.parameters() if p.requires_grad)
        record = fit(learner, washed_out, recipe, seed=0)
        accuracy = record.tests["test"]["batch"]["accuracy"]
        print(f"tuning {tuning}, prompts {prompts}: {accuracy:.3f}, {trained} backbone weights")
print(f"test accuracy {accuracy:.3f}")
