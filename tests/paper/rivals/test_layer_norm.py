"""A LayerNorm before the head, against its formula."""

import torch
from training_cases import Plain, plain_learner, quietly, small_task

from hma.paper.rivals import layer_norm
from hma.training import Recipe


def test_layer_norm_alone_is_the_head_on_normalised_features():
    task = small_task()
    learner = layer_norm(lambda task: Plain(task.shape[0]))(task, 0)
    quietly(learner, task, Recipe(epochs=3, batch_size=16))
    module = learner.module
    x = task.tests["near"].x
    with torch.no_grad():
        features = module.backbone.backbone(x)
        centred = features - features.mean(1, keepdim=True)
        norm = module.backbone.norm
        normed = centred / features.std(1, correction=0, keepdim=True) * norm.weight + norm.bias
        expected = normed @ module.head.weight.T + module.head.bias
    torch.testing.assert_close(module(x), expected)
    assert learner.contexts == ("alone",)
    count = sum(p.numel() for p in module.parameters())
    plain = plain_learner(task)
    assert count - sum(p.numel() for p in plain.module.parameters()) == 2 * 16
