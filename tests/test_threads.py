"""Several threads on one model: what one asks for never reaches the answer of another."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn

from hma import HMA, HMAConfig, explain
from hma.momentum import evaluating

CONFIG = HMAConfig.paper(label_dim=4, queue_size=6, slots_per_class=2, num_heads=2)
X = torch.sin(torch.arange(20.0).view(4, 5))


def filled():
    model = HMA(nn.Linear(5, 8), 3, CONFIG, feature_dim=8)
    model.remember(X, torch.tensor([0, 1, 2, 0]))
    model.set_anchors(X * 2)
    return model.eval()


def test_a_context_may_be_given_with_the_call():
    model = filled()
    for context in ("alone", "anchors", "batch"):
        expected = model(X, context=context)
        model.context = context
        assert torch.equal(model(X), expected)
    assert not torch.equal(model(X, context="alone"), model(X, context="batch"))
    with pytest.raises(ValueError, match="did you mean 'alone'"):
        model(X, context="alnoe")


@torch.no_grad()
def test_a_context_set_while_another_prediction_runs_does_not_change_it():
    """The other thread sets the context at the worst moment: while the memory is projected."""
    model = filled()
    expected = {context: model(X, context=context) for context in ("batch", "anchors")}
    model.context = "anchors"
    project = model.synthetic.project

    def interrupted(*arguments):
        model._context = "batch"  # as an assignment of another thread would
        return project(*arguments)

    model.synthetic.project = interrupted
    model.reproject()
    assert torch.equal(model(X), expected["anchors"])
    model.synthetic.project = project
    assert torch.equal(model(X), expected["batch"])
    model.context = "anchors"
    assert torch.equal(model(X), expected["anchors"])


def test_the_last_of_several_who_evaluate_gives_the_training_mode_back():
    model = filled().train()
    first, second = evaluating(model), evaluating(model.backbone)
    first.__enter__()
    second.__enter__()
    assert not model.training
    first.__exit__(None, None, None)
    assert model.training
    assert not model.backbone.training  # the second still needs it
    second.__exit__(None, None, None)
    assert model.backbone.training


def test_explaining_in_two_threads_leaves_a_training_model_in_training_mode():
    model, together = filled().train(), Barrier(2)

    def ask(_):
        together.wait()
        return explain(model, X).logits

    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            left, right = pool.map(ask, range(2))
            assert torch.equal(left, right)
            assert all(part.training for part in (model, model.real, model.backbone))
