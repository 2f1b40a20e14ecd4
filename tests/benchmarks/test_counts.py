"""The formula for multiply-adds against torch's own counter."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.against_naive import classify_naively
from benchmarks.counts import (
    forward_multiply_adds,
    naive_step_multiply_adds,
    step_multiply_adds,
)
from benchmarks.shapes import GRAPH_SHAPE, VIT_SHAPE, Shape, build_head
from benchmarks.steps import training_step

SMALL = Shape(batch=3, features=10, label=6, classes=4, queue=9, slots_per_class=2)
SHAPES = [
    SMALL,
    replace(SMALL, batch=11, heads=2, queue=5),
    replace(SMALL, batch_attention=False),
    GRAPH_SHAPE,
    replace(VIT_SHAPE, batch=4),
]


def counted(call) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    flops = counter.get_total_flops()
    assert flops % 2 == 0
    return flops // 2


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_formula_matches_the_counter(shape):
    head = build_head(shape)
    with torch.no_grad():
        assert counted(lambda: head.model.classify(head.features)) == forward_multiply_adds(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_step_formula_matches_the_counter(shape):
    assert counted(partial(training_step, build_head(shape))) == step_multiply_adds(shape)


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_naive_formula_matches_the_counter(shape):
    head = build_head(shape)
    step = partial(training_step, head, partial(classify_naively, head.model))
    assert counted(step) == naive_step_multiply_adds(shape)


def test_one_logit_has_slots_for_two_classes():
    shape = replace(SMALL, classes=1)
    head = build_head(shape)
    with torch.no_grad():
        assert counted(lambda: head.model.classify(head.features)) == forward_multiply_adds(shape)
