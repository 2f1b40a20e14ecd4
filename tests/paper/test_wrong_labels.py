"""Labels that are changed on purpose: how many, to what, and what a record says of finding them."""

from types import SimpleNamespace

import pytest
import torch
from cleanlab.filter import find_label_issues
from sklearn.metrics import roc_auc_score
from table_records import made_up_table
from table_records import record_of as made_up_record

from experiments.wrong_labels import TABLE, changed_rows, record_of, with_changes
from hma.data import InMemory, Task
from hma.paper.cells import measure
from hma.paper.table import Cell, Problem
from hma.training.identity import data_fingerprint

ROWS, CLASSES, SEED = 60, 3, 4


def toy(seed):
    """Return three clear classes with wrong labels among the rows to learn and to select by."""
    torch.manual_seed(seed)
    y = torch.arange(ROWS) % CLASSES
    x = 4 * torch.eye(CLASSES)[y] + torch.randn(ROWS, CLASSES)
    train, held = (with_changes(InMemory(x, y), CLASSES, seed) for _ in range(2))
    return Task("toy", "table", ("a", "b", "c"), (CLASSES,), train, held, {"test": InMemory(x, y)})


@pytest.mark.parametrize("rows", [1, 19, 60, 1000])
def test_one_label_in_twenty_is_changed_and_always_to_another_class(rows):
    y = torch.arange(rows) % CLASSES
    changed = with_changes(InMemory(torch.zeros(rows, 1), y), CLASSES, SEED).labels
    assert torch.equal(changed != y, changed_rows(rows, SEED))
    assert (changed != y).sum() == max(1, round(rows / 20))
    assert set(changed.tolist()) <= set(range(CLASSES))


def test_a_record_says_how_well_the_probability_of_the_label_finds_the_changed_ones():
    task = toy(SEED)
    torch.manual_seed(1)
    chances = torch.rand(ROWS, CLASSES).softmax(dim=1)
    wrong, own = changed_rows(ROWS, SEED), chances[torch.arange(ROWS), task.train.labels]
    job = SimpleNamespace(cell=Cell("suspects", "smoke", "toy", "vote", SEED))
    table = made_up_table()
    cells = [Cell("T9", "smoke", "left", "plain", seed) for seed in range(2)]
    trained = [made_up_record(table, cell) for cell in cells]
    found = record_of(job, task, chances, trained, ranking=2.0)
    scores = found.tests["changed labels"]["alone"]
    assert scores["auroc"] == pytest.approx(roc_auc_score(wrong, -own))
    first = own.argsort()[: int(wrong.sum())]
    assert scores["r-precision"] == pytest.approx(float(wrong[first].double().mean()))
    issues = torch.from_numpy(find_label_issues(task.train.labels.numpy(), chances.numpy()))
    assert found.measures == {
        "trainings": 2,
        "rows": ROWS,
        "wrong": 3,
        "taken for wrong": int(issues.sum()),
        "of them wrong": int((issues & wrong).sum()),
    }
    assert found.data_fingerprint == data_fingerprint(task)  # however much of it was trained on
    assert found.seconds == pytest.approx(2.0 + sum(one.seconds for one in trained))


@pytest.mark.parametrize(("row", "trainings"), [("vote", 1), ("cleanlab-logistic", 5)])
def test_every_row_ranks_all_training_rows(row, trainings, monkeypatch):
    (name,) = TABLE.budget("smoke").tasks
    problem = Problem(task=toy, backbone=TABLE.problems[name].backbone)
    monkeypatch.setitem(TABLE.problems, name, problem)
    found = measure(TABLE, Cell("suspects", "smoke", name, row, 0), folder=None)
    assert (found.measures["trainings"], found.measures["rows"]) == (trainings, ROWS)
    assert found.tests["changed labels"]["alone"]["auroc"] > 0.5
