"""Answers kept in records: a report can compute the scores of the record from them."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import matthews_corrcoef, roc_auc_score
from torch import nn

from hma.data import InMemory, Task
from hma.methods import erm
from hma.paper.cells import measure
from hma.paper.row_answers import kept_answers, row_answers
from hma.paper.table import Budget, Cell, Problem, Row, Table
from hma.targets import Classes, YesNo
from hma.training import Recipe


class Linear(nn.Module):
    feature_dim = 3

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x)


def data(seed, *, target):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(90, 3, generator=draw)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.8).long() * (target.outputs > 2)
    if isinstance(target, YesNo):
        y = y[:, None].float()
    parts = [InMemory(x[i : i + 30], y[i : i + 30]) for i in (0, 30, 60)]
    names = tuple("abc"[: target.outputs])
    return Task("toy", "table", names, (3,), *parts[:2], {"test": parts[2]}, target=target)


def table_of(target, **rows):
    recipe = Recipe(epochs=2, batch_size=10, eval_batch_size=10)
    budgets = dict.fromkeys(("smoke", "small", "full"), Budget(what="all", recipe=recipe, seeds=1))
    problem = Problem(task=partial(data, target=target), backbone=lambda task: Linear())
    return Table(
        key="toy", title="toy", problems={"toy": problem}, rows=rows, budgets=budgets,
        baseline=next(iter(rows)), metric="auroc" if isinstance(target, YesNo) else "accuracy",
    )  # fmt: skip


def record_of(target):
    row = Row(build=erm, measure=partial(row_answers, batch_size=10))
    found = measure(table_of(target, ERM=row), Cell("toy", "small", "toy", "ERM", 0), None)
    return replace(found, measures=json.loads(json.dumps(found.measures)))


def test_scores_of_two_classes_are_recomputed_from_kept_answers():
    record = record_of(Classes(2))
    answers = kept_answers(record)["test"]
    ids, logits = answers.labels.numpy(), answers.logits["alone"].numpy()
    scores = record.tests["test"]["alone"]
    assert matthews_corrcoef(ids, logits.argmax(1)) == pytest.approx(scores["matthews"])
    assert roc_auc_score(ids, logits[:, 1] - logits[:, 0]) == pytest.approx(scores["auroc"])
    assert answers.target == Classes(2)
    assert len(record.measures["answers"]["test"]["said"]["alone"]) == 30


def test_of_three_classes_the_one_that_was_said_is_kept():
    record = record_of(Classes(3))
    answers = kept_answers(record)["test"]
    said = record.measures["answers"]["test"]["said"]["alone"]
    assert answers.logits["alone"].argmax(1).tolist() == said
    right = np.mean(np.array(said) == answers.labels.numpy())
    assert right == pytest.approx(record.tests["test"]["alone"]["accuracy"])


def test_of_a_yes_or_no_its_logit_is_kept():
    record = record_of(YesNo(1))
    answers = kept_answers(record)["test"]
    assert answers.target == YesNo(1)
    area = roc_auc_score(answers.labels[:, 0].numpy(), answers.logits["alone"][:, 0].numpy())
    assert area == pytest.approx(record.tests["test"]["alone"]["auroc"])


def test_a_label_that_is_missing_is_missing_again():
    record = record_of(YesNo(1))
    whole = kept_answers(record)["test"].labels.numpy()
    record.measures["answers"]["test"]["labels"][3] = [None]
    labels = kept_answers(record)["test"].labels.numpy()
    assert np.isnan(labels[3, 0])
    assert (np.delete(labels, 3) == np.delete(whole, 3)).all()


def test_a_record_without_answers_has_none():
    record = record_of(Classes(2))
    assert kept_answers(replace(record, measures={})) == {}


def test_a_row_may_have_a_view_of_its_own_of_the_data():
    def on_test(task, seed):
        return replace(task, validation=task.tests["test"], facts={"validation": f"test {seed}"})

    table = table_of(Classes(2), ERM=Row(build=erm), oracle=Row(build=erm, task=on_test))
    own, plain = (measure(table, Cell("toy", "small", "toy", name, 0), None)
                  for name in ("oracle", "ERM"))  # fmt: skip
    kept = own.epochs[own.selected_epoch]["validation"]["alone"]["accuracy"]
    assert kept == own.tests["test"]["alone"]["accuracy"]
    assert own.setup["task"]["facts"] == {"validation": "test 0"}
    assert plain.setup["task"]["facts"] == {}
