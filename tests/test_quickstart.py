"""The tasks of the first table, and what it leaves out where a package is missing."""

import pytest

from hma import quickstart
from hma.methods import erm
from hma.training import Recipe


def test_every_method_runs_on_every_task_once_a_seed(monkeypatch):
    monkeypatch.setattr(quickstart, "has_graphs", lambda: True)
    assert len(set(quickstart.cells(2))) == 2 * 3 * len(quickstart.METHODS)
    monkeypatch.setattr(quickstart, "has_graphs", lambda: False)
    assert quickstart.GRAPHS not in {task for task, _, _ in quickstart.cells(1)}


def test_graphs_are_tested_with_bases_of_both_sizes(monkeypatch):
    pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)
    monkeypatch.setattr(
        quickstart, "TASKS", {quickstart.GRAPHS: quickstart.TASKS[quickstart.GRAPHS]}
    )
    monkeypatch.setattr(quickstart, "METHODS", {"backbone": erm(quickstart._backbone)})
    monkeypatch.setattr(quickstart, "RECIPE", Recipe(steps=2, batch_size=64))
    (lines,) = quickstart.run(seeds=1)
    assert {line.test for line in lines} == {"unbiased", "larger"}
    assert all(0 <= line.mean <= 1 and line.task == "spurious motifs" for line in lines)
