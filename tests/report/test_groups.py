"""Numbers and yes/no labels on the page of a run, against scikit-learn and loops by hand."""

import re

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, roc_auc_score
from torch import nn

from hma import HMA, HMAConfig
from hma.report.page import render
from hma.report.run_facts import RunFacts, TrainingRows
from hma.report.run_report import MEMORY
from hma.report.scoring import Answers
from hma.report.summary import summarise
from hma.report.svg import SHAPES
from hma.report.verdict import verdict
from hma.targets import Classes, Number, SoftClasses, YesNo


def run_of(target, names, y, metric):
    """Return the report of a model of noise, whose answers are better than the plain ones."""
    config = HMAConfig(queue_size=12, slots_per_class=2, label_dim=4, num_heads=2)
    model = HMA(nn.Linear(5, 8), target=target, config=config, feature_dim=8).eval()
    x = torch.randn(60, 5)
    model.remember(x[:20], y[:20], ids=torch.arange(20))
    truth = (y[20:] - 10.0)[:, None] / 2 if y.dim() == 1 else 4 * (y[20:].nan_to_num() - 0.5)
    noise = torch.randn(2, *truth.shape)
    with torch.no_grad():
        features = model.backbone(x[20:])
    answers = Answers(
        labels=y[20:],
        memory={"batch": truth + 0.5 * noise[0], "alone": truth + noise[0]},
        plain={"alone": truth + 3 * noise[1]},
        features=features,
    )
    rows = TrainingRows(
        describe=lambda place: f"row {place}", features=lambda ids: model.backbone(x[ids])
    )
    facts = RunFacts(
        title="t", kind="table", classes=names, target=target, metric=metric,
        splits={"test": y[20:]}, model=model, tests={"test": answers}, records={MEMORY: {}},
        training_rows=rows, resamples=50,
    )  # fmt: skip
    return answers, summarise(facts)


@pytest.fixture(scope="module")
def number():
    torch.manual_seed(0)
    return run_of(Number(10.0, 2.0), ("price",), 10 + 2 * torch.randn(60), "rmse")


@pytest.fixture(scope="module")
def labels():
    torch.manual_seed(0)
    y = (torch.rand(60, 3) > 0.5).float()
    y[torch.rand(60, 3) < 0.3] = float("nan")
    return run_of(YesNo(3), ("toxic", "soluble", "<b>"), y, "auroc")


def test_scores_of_a_number_are_scikit_learns(number):
    answers, report = number
    for result in report.tests[0].results:
        said = (answers.plain if result.method != "memory" else answers.memory)[result.context]
        value, truth = (2 * said[:, 0].double() + 10).numpy(), answers.labels.double().numpy()
        np.testing.assert_allclose(result.said, value)
        rmse = float(np.sqrt(((value - truth) ** 2).mean()))
        assert result.scores["rmse"].value == pytest.approx(rmse)
        assert result.scores["mae"].value == pytest.approx(mean_absolute_error(truth, value))
        assert result.scores["r2"].value == pytest.approx(r2_score(truth, value))
        assert result.scores["rmse"].low < rmse < result.scores["rmse"].high


def test_a_smaller_error_is_better_and_no_rows_are_called_right(number):
    _, report = number
    (found, _) = report.tests[0].comparisons
    assert found.differences["rmse"].high < 0
    assert found.p_value is None
    said = verdict(report, report.tests[0])
    assert said.outcome == "better"
    assert "McNemar" not in said.sentence
    assert re.search(r"The memory reaches an RMSE of [\d.]+ on 40 test rows", said.sentence)


def test_the_page_of_a_number_draws_every_row_against_the_truth(number):
    _, report = number
    page = render(report)
    assert page.count('aria-label="Predicted against true"') == len(report.tests[0].results)
    drawing = page.split('aria-label="Predicted against true"')[1].split("</svg>")[0]
    assert drawing.count(SHAPES[0]) == report.tests[0].rows
    assert "Always answering the mean would have an RMSE of" in page
    for absent in ("Confusion", "calibration", "McNemar"):
        assert absent not in page


def test_each_label_has_scikit_learns_area_over_the_rows_that_have_it(labels):
    answers, report = labels
    y = answers.labels.numpy()
    for result in report.tests[0].results:
        said = (answers.plain if result.method != "memory" else answers.memory)[result.context]
        known = [~np.isnan(y[:, t]) for t in range(3)]
        areas = [roc_auc_score(y[k, t], said[k, t]) for t, k in enumerate(known)]
        assert [found.value for found in result.auroc] == pytest.approx(areas)
        assert result.scores["auroc"].value == pytest.approx(np.mean(areas))
        assert (result.yes + result.no).tolist() == [int(k.sum()) for k in known]


def test_the_page_of_labels_names_each_with_its_missing_rows(labels):
    answers, report = labels
    page = render(report)
    assert "&lt;b&gt;" in page
    table = page[page.index("Label by label") :]
    rows = re.findall(r"<tr><th scope=.row.>.*?</tr>", table[: table.index("</table>")], re.S)
    assert len(rows) == 4  # three labels and their mean
    missing = answers.labels.isnan().sum(dim=0).tolist()
    for row, count in zip(rows, missing, strict=False):
        assert f"<td>{count}</td>" in row


def test_rows_are_counted_by_what_the_slots_stand_for(number, labels):
    for _, report in (number, labels):
        memory = report.parts["memory"]
        assert len(report.groups) == len(memory.queue.per_class) == len(memory.slots.distinct)
    answers, report = labels
    counts = [int((answers.labels[:, t] == v).sum()) for t in range(3) for v in (0, 1)]
    assert report.splits["test"].tolist() == counts
    assert report.rows == {"test": 40}


def test_names_of_groups_and_labels_are_those_of_the_target():
    assert Classes(2).group_names(["a", "b"]) == ("a", "b")
    assert Classes(2).label_text(["a", "b"], -1) == ""
    assert Number().label_text(["price"], 12.5) == "12.5"
    assert Classes(3).given_membership(torch.tensor([2, -1])).tolist() == [[0, 0, 1], [0, 0, 0]]


def test_soft_labels_are_shown_by_their_likeliest_class():
    torch.manual_seed(0)
    y = torch.softmax(torch.randn(60, 3), dim=1)
    _, report = run_of(SoftClasses(3), ("a", "b", "c"), y, metric="accuracy")
    likeliest = torch.bincount(y[20:].argmax(dim=1), minlength=3).tolist()
    assert report.splits["test"].tolist() == likeliest
    assert report.tests[0].results[0].confusion.sum(axis=1).tolist() == likeliest
    assert "What is mistaken for what" in render(report)
    assert SoftClasses(2).label_text(["a", "b"], [0.25, 0.75]) == "a 25%, b 75%"
