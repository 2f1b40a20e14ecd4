"""Clocks, slopes and what each benchmark claims about the model it measures."""

import time
from dataclasses import replace

import pytest
import torch

from benchmarks import frozen_backbone, learned_memory, serving
from benchmarks.scaling import loglog_slope
from benchmarks.shapes import GRAPH_SHAPE
from hma.attention.hma import HMA
from hma.backbones import mlp
from hma.errors import UserError
from hma.training import Recipe
from hma.training.cost import interleave, using_threads


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_slope_is_the_exponent_of_a_power_law(exponent):
    sizes = [128, 256, 512, 1024]
    seconds = [3e-4 * size**exponent for size in sizes]
    assert loglog_slope(sizes, seconds) == pytest.approx(exponent, abs=1e-9)


def test_slope_of_a_line_with_a_fixed_part_lies_below_one():
    sizes = [1024, 2048, 4096]
    slope = loglog_slope(sizes, [2.0 + 0.01 * size for size in sizes])
    assert 0.8 < slope < 1


def test_slope_needs_two_points():
    with pytest.raises(ValueError, match="sizes must hold at least 2 values, got 1"):
        loglog_slope([1], [1])


def test_sides_are_measured_in_turn_after_one_round_that_does_not_count():
    order = []
    taken = interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=3)
    assert "".join(order) == "ab" + "ababab"
    assert [len(timing.seconds) for timing in taken.values()] == [3, 3]


def test_a_side_that_waits_takes_time_on_the_clock_and_none_on_the_processor():
    (taken,) = interleave({"waiting": lambda: time.sleep(0.05)}, repeats=2).values()
    assert taken.median >= 0.05 > 2 * taken.processor_median


def test_threads_are_given_back():
    before = torch.get_num_threads()
    with using_threads(1) as used:
        assert used == torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_no_threads_is_an_error():
    with (
        pytest.raises(ValueError, match="threads must be at least 1 or None, got 0"),
        using_threads(0),
    ):
        pass


def test_cached_serving_projects_nothing_and_a_change_projects_once_each_time(monkeypatch):
    monkeypatch.setattr(serving, "SHAPE", replace(GRAPH_SHAPE, queue=8))
    cached, changing = serving.frozen_model(), serving.build_head(serving.SHAPE).model.eval()
    calls, project = [], HMA._project
    monkeypatch.setattr(
        HMA, "_project", lambda model, *given: calls.append(model) or project(model, *given)
    )
    features = torch.randn(3, GRAPH_SHAPE.features)
    with torch.no_grad():
        for _ in range(3):
            cached.classify(features)
        assert calls == []
        for _ in range(3):
            serving.classify_after_change(changing, features)
    assert calls == [changing] * 3


def test_serving_says_why_it_was_skipped(monkeypatch):
    def absent():
        raise ImportError("timm is not installed")

    monkeypatch.setattr(serving, "_vision_transformer", absent)
    section = serving.serving(quick=True)
    assert section.rows == ()
    assert section.table().note == "skipped: timm is not installed"


@pytest.mark.parametrize("setup", frozen_backbone.SETUPS, ids=lambda setup: setup.name)
def test_forwards_and_copies_of_each_setup(setup):
    model = frozen_backbone.build_model(setup)
    inputs = torch.randn(2, frozen_backbone.INPUTS)
    calls = frozen_backbone.count_forwards(model, setup, inputs, torch.tensor([0, 1]))
    again = not setup.handed
    assert calls == {"backbone": 1 + (again and not setup.copied), "copy": int(setup.copied)}
    assert (model.momentum_encoder is not None) == setup.copied
    assert len(model.memory_state().labels) == 2


def test_both_sides_of_a_training_train_the_same_backbone_and_head():
    task = learned_memory.synthetic_table(rows=40)
    methods = learned_memory.sides(lambda task: mlp(task.shape[0], hidden=(8,)))
    recipe = Recipe(epochs=2)
    without, beside = (learned_memory.trained(one, task, recipe) for one in methods.values())
    plain, both = without.module, beside.module
    for mine, other in ((plain.backbone, both.backbone.backbone), (plain.head, both.head)):
        torch.testing.assert_close(other.state_dict(), mine.state_dict())
    assert len(beside.module.memory_state().labels) == 40


def test_images_are_skipped_with_a_reason_where_there_are_no_weights(monkeypatch):
    def absent():
        raise UserError("the weights are not installed")

    monkeypatch.setattr(learned_memory, "_efficientnet", absent)
    section = learned_memory.frozen_images(quick=True)
    assert section.rows == ()
    assert section.table().note == "skipped: the weights are not installed"
