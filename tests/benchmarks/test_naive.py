"""The naive read computes the same function as ours, so their times may be compared."""

from dataclasses import replace

import pytest
import torch

from benchmarks.against_naive import classify_naively
from benchmarks.shapes import Head, Shape, build_head
from benchmarks.steps import training_step

SHAPE = Shape(batch=5, features=6, label=2, classes=3, queue=7, slots_per_class=2)


def gradients(head: Head, classify) -> dict[str, torch.Tensor]:
    training_step(head, classify)
    found = {name: parameter.grad for name, parameter in head.model.named_parameters()}
    return {**found, "features": head.features.grad}


def in_double(shape: Shape, filled: int) -> Head:
    head = build_head(shape, dropout=0.0, filled=filled)
    features = head.features.detach().double().requires_grad_()
    return Head(head.model.double(), features, head.labels)


@pytest.mark.parametrize("filled", [0, 4, 7, 10])
@pytest.mark.parametrize("batch_attention", [True, False])
def test_naive_and_ours_give_the_same_logits_and_gradients(filled, batch_attention):
    shape = replace(SHAPE, batch_attention=batch_attention)
    ours, naive = in_double(shape, filled), in_double(shape, filled)
    torch.testing.assert_close(
        classify_naively(naive.model, naive.features),
        ours.model.classify(ours.features),
        rtol=1e-10,
        atol=1e-12,
    )
    expected = gradients(ours, None)
    received = gradients(naive, lambda features: classify_naively(naive.model, features))
    assert None not in expected.values()
    torch.testing.assert_close(received, expected, rtol=1e-10, atol=1e-12)


def test_a_step_writes_its_batch_into_the_queue():
    head = build_head(SHAPE)
    training_step(head)
    state = head.model.memory_state()
    torch.testing.assert_close(state.features[-5:], head.features.detach())
    assert state.labels[-5:].tolist() == head.labels.tolist()


def test_the_same_shape_gives_the_same_head_and_leaves_the_generator_alone():
    before = torch.get_rng_state()
    first, second = build_head(SHAPE), build_head(SHAPE)
    torch.testing.assert_close(first.model.state_dict(), second.model.state_dict())
    assert torch.equal(torch.get_rng_state(), before)
