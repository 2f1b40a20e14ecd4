"""The whole way of the image tables: a folder, random parts, a tuned Transformer, with memory."""

import importlib.util

import numpy as np
import pytest
import torch
from PIL import Image

import hma
from hma.backbones import vit
from hma.data import PreparationOptions, open_source, prepare
from hma.methods import erm, with_memory
from hma.training import Recipe, fit

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="needs the vision extra"
)
SMALL = {"patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 3}
RECIPE = Recipe(steps=6, batch_size=16, optimizer="sgd", lr=3e-2, schedule="cosine", warmup_steps=2)
CONFIG = hma.HMAConfig(label_dim=8, queue_size=32, slots_per_class=2, momentum=0)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """Two textures that differ in colour: broad stripes, red or blue."""
    folder = tmp_path_factory.mktemp("textures")
    for channel, name in ((0, "red"), (2, "blue")):
        (folder / name).mkdir()
        for number in range(40):
            noise = np.random.default_rng(100 * channel + number)
            pixels = noise.integers(0, 120, (36, 48, 3), np.uint8)
            pixels[:, :, channel] += (100 + 30 * (np.arange(48) // 6 % 2)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    options = PreparationOptions(transform="vit", augment=True, image_size=16)
    return prepare(open_source(folder), seed=0, options=options).task


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize(
    ("tuning", "prompts", "trained"),
    [
        ("full", "first", None),
        ("part", None, {"model.cls_token"}),
        ("part", "first", {"model.cls_token", "prompts.tokens"}),
        ("part", "deep", {"model.cls_token", "prompts.tokens"}),
        ("none", None, set()),
    ],
)
def test_every_way_of_tuning_changes_what_it_may_and_nothing_else(
    task, tuning, prompts, trained, memory
):
    def backbone(task):
        return vit(
            "vit_tiny_patch16_224", task.shape, tuning=tuning, prompts=prompts, settings=SMALL
        )

    method = with_memory(backbone, CONFIG) if memory else erm(backbone)
    learner = method(task, 0)
    before = {n: v.clone() for n, v in learner.module.backbone.state_dict().items()}
    record = fit(learner, task, RECIPE, seed=0)
    after = learner.module.backbone.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == (set(before) if trained is None else trained)
    rows = task.tests["test"].batch(torch.arange(len(task.tests["test"])))
    scored = record.tests["test"][learner.contexts[-1]]["accuracy"]
    learner.use(learner.contexts[-1])
    with torch.no_grad():
        right = learner.predict(rows).argmax(dim=1) == rows.y
    assert scored == pytest.approx(float(right.float().mean()))


def test_the_same_seed_sees_the_same_parts_and_ends_with_the_same_weights(task):
    def backbone(task):
        return vit("vit_tiny_patch16_224", task.shape, tuning="part", settings=SMALL)

    ends = []
    for seed in (1, 1, 2):
        learner = erm(backbone)(task, 1)
        fit(learner, task, Recipe(steps=4, batch_size=16), seed=seed)
        ends.append(learner.module.backbone.model.cls_token.detach())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])
