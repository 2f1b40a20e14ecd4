"""Formulas against what torch counts: multiply-adds, bytes of results, bytes between processes."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.against_naive import classify_naively
from benchmarks.counts import (
    forward_multiply_adds,
    forward_parts,
    naive_step_multiply_adds,
    step_multiply_adds,
)
from benchmarks.messages import messages
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


class ProductBytes(TorchDispatchMode):
    """Add up the bytes of the results of all matrix products."""

    PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
    total = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        if function.name().partition(".")[0] in self.PRODUCTS:
            self.total += result.numel() * result.element_size()
        return result


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bytes_of_the_parts_are_those_that_products_write(shape):
    head = build_head(shape)
    with torch.no_grad(), ProductBytes() as counter:
        head.model.classify(head.features)
    assert counter.total == sum(part.bytes for part in forward_parts(shape))


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_each_part_is_as_long_as_its_formula(shape):
    sizes = {"B": shape.batch, "D": shape.token, "M": shape.queue, "S": shape.slots}
    sizes["C"] = shape.classes
    for part in forward_parts(shape):
        written = part.grows.replace("D²", "D D").replace(" ", "*").replace("*+*", "+")
        assert eval(written, {}, sizes) == part.multiply_adds


class SameRowsEverywhere:
    """Stand in for processes that all hold the same rows, and add up what is handed over."""

    def __init__(self, monkeypatch, processes):
        self.total = 0
        self.processes = processes
        for module in ("distributed", "rows"):
            monkeypatch.setattr(f"hma.memory.{module}.world_size", lambda: processes)
        monkeypatch.setattr("hma.memory.distributed._all_gather", self.gather)
        monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
        monkeypatch.setattr("torch.distributed.all_reduce", self.reduce)

    def gather(self, tensor):
        self.total += tensor.numel() * tensor.element_size()
        return [tensor.clone() for _ in range(self.processes)]

    def reduce(self, tensor):
        self.total += tensor.numel() * tensor.element_size()
        tensor *= self.processes


@pytest.mark.parametrize("processes", [2, 8])
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_what_a_process_hands_over_is_counted(monkeypatch, shape, processes):
    head = build_head(shape)
    world = SameRowsEverywhere(monkeypatch, processes)
    training_step(head)
    told = messages("paper", shape, processes, trained=0)  # without gradients of the weights
    assert world.total == sum(one.size for one in told)


def test_a_process_that_is_alone_hands_nothing_over():
    assert messages("paper", SMALL, 1, trained=10) == []
