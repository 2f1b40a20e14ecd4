"""What rows cost: steps of the loop in turn, weights and bytes that can be counted by hand."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from hma.backbones import mlp
from hma.data import InMemory, Task
from hma.methods import erm
from hma.paper.cells import measure, work
from hma.paper.results import Results
from hma.paper.step_costs import STEP_COSTS, Side, step_costs
from hma.paper.table import Cell, Row
from hma.training import Recipe

WEIGHTS = (4 * 8 + 8) + (8 * 2 + 2)  # a hidden layer, and a head of two classes
SGD = Recipe(optimizer="sgd", lr=0.1, sgd_momentum=0.9, batch_size=6, eval_batch_size=5)


@pytest.fixture
def task():
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    rows = InMemory(x, torch.arange(20) % 2)
    return Task("toy", "table", ("a", "b"), (4,), rows, rows, {"test": rows})


def noting(calls, name):
    """Return the plain method whose learner notes its steps, and how many rows they have."""
    plain = erm(lambda task: mlp(4, hidden=(8,)))

    def method(task, seed):
        learner = plain(task, seed)
        learner.after_step = lambda batch: calls.append((name, len(batch.y)))
        return learner

    return method


def sides(calls, *names, **changes):
    return {name: Side(noting(calls, name), replace(SGD, **changes)) for name in names}


def test_rows_make_the_steps_of_the_loop_in_turn(task):
    calls = []
    found = step_costs(sides(calls, "a", "b"), task, seed=0, rounds=3)
    before = [(name, rows) for name in "ab" for rows in (4, 6)]  # a small step, and the peak
    assert calls == before + 3 * [("a", 6), ("b", 6)]
    assert {len(row[kind]) for row in found["rows"].values() for kind in ("step", "answer")} == {3}
    assert (found["batch"], found["answered"], found["training_rows"]) == (6, 5, 20)
    assert found["threads"] == 1


def test_weights_and_what_is_held_between_steps_are_counted(task):
    row = step_costs(sides([], "a"), task, seed=0, rounds=1)["rows"]["a"]
    assert row["parameters"] == row["trainable"] == WEIGHTS
    assert row["state_bytes"] == 4 * 2 * WEIGHTS  # each weight and its momentum
    assert row["peak_bytes"] >= row["state_bytes"] + 4 * WEIGHTS  # and its gradient


def test_adam_holds_two_numbers_for_each_weight_and_its_steps(task):
    row = step_costs(sides([], "a", optimizer="adam"), task, seed=0, rounds=1)["rows"]["a"]
    tensors = 4
    assert row["state_bytes"] == 4 * (3 * WEIGHTS + tensors)


def test_weights_that_do_not_train_are_no_trainable_ones(task):
    def frozen_first(task):
        backbone = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), mlp(4, hidden=(8,)))
        backbone.feature_dim = 8
        return backbone

    found = step_costs({"a": Side(erm(frozen_first), SGD)}, task, seed=0, rounds=1)
    row = found["rows"]["a"]
    assert (row["parameters"], row["trainable"]) == (WEIGHTS + 20, WEIGHTS)


def test_measuring_draws_nothing_from_the_callers_random_numbers(task):
    before = torch.get_rng_state()
    step_costs(sides([], "a"), task, seed=0, rounds=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_cell_of_costs_has_a_record_without_scores(toy, results: Results):
    from hma.paper.step_costs import cost_record

    def compare(job):
        data = job.problem.task(job.cell.seed)
        side = Side(erm(job.problem.backbone), job.recipe)
        return cost_record(job, {"plain": side}, data, threads=1)

    rows = {"in-turn": Row(work=compare, what="in turn")}
    budgets = {
        name: replace(one, rows=None, methods=("*",), recipe=Recipe(steps=2, batch_size=4))
        for name, one in toy.budgets.items()
    }
    table = replace(toy, rows=rows, baseline="in-turn", budgets=budgets, published={}, ladders=())
    cell = Cell("TOY", "smoke", "easy", "in-turn", 0)
    work(table, cell, results)
    record = results.record(table, cell)
    assert record.tests == {}
    assert len(record.measures[STEP_COSTS]["rows"]["plain"]["step"]) == 2
    again = measure(table, cell, None)
    assert again.data_fingerprint == record.data_fingerprint
