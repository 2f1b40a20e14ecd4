"""The verdict in words, and what to try next."""

import math
from dataclasses import replace

import numpy as np
import pytest
from report_parts import change_part

from hma.metrics.resampling import Interval
from hma.report.numbers import duration, probability, size
from hma.report.page import render
from hma.report.run_report import (
    MIXTURE,
    PLAIN,
    Candidate,
    ClassResult,
    Comparison,
    NumberResult,
    RunReport,
    Trial,
)
from hma.report.scoring import best_simple
from hma.report.sections.comparison import score_rows, tiles
from hma.report.statistics import Calibration
from hma.report.verdict import (
    advice,
    amount,
    change,
    interval,
    judge,
    verdict,
    weak_baselines,
)
from hma.targets import Classes


def trial(differences, p, only=(3, 15), plain=0.80, memory=0.86, wrong=False):
    """Return a test set of 200 rows with the given scores and difference."""

    def result(method, context, value):
        confusion = np.array([[150, 0], [0, 50]]) if not wrong else np.array([[0, 150], [50, 0]])
        nothing = Calibration(np.linspace(0, 1, 3), np.zeros(2, int), *np.full((2, 2), np.nan), 0.1)
        scores = {m: Interval(value, value - 0.05, value + 0.05) for m in ("accuracy", "auroc")}
        return ClassResult(method=method, context=context, scores=scores, confusion=confusion,
                      calibration=nothing)  # fmt: skip

    compared = Comparison(
        context="batch", differences=dict.fromkeys(("accuracy", "auroc"), Interval(*differences)),
        only_plain=only[0], only_other=only[1], p_value=p,
    )  # fmt: skip
    return Trial(
        name="test", rows=200, comparisons=(compared,),
        results=(result(PLAIN, "alone", plain), result("memory", "batch", memory)),
    )  # fmt: skip


def report_of(one, metric):
    names = ("a", "b")
    return RunReport(title="t", kind="table", target=Classes(2), classes=names, groups=names,
                     metric=metric, tests=(one,))  # fmt: skip


def said(metric="accuracy", **given):
    one = trial(**given)
    report = report_of(one, metric)
    return verdict(report, one)


def test_baselines_worse_than_not_looking_at_the_rows_are_named_with_both_numbers():
    weak = weak_baselines(trial((0.06, 0.02, 0.10), 0.0075, plain=0.70, memory=0.60))
    assert weak == [
        "On 200 test rows the plain backbone is right on 70.0%, while always answering the most "
        "frequent class would be right on 75.0%: to be better than this baseline says little."
    ]
    assert weak_baselines(trial((0.06, 0.02, 0.10), 0.0075, plain=0.75)) == []
    true = np.array([0.0, 2.0, 4.0, 6.0])
    number = NumberResult(
        method="kernel ridge", context="alone", true=true, said=true[::-1],
        scores={"rmse": Interval(4.47, 4.0, 5.0)},
    )  # fmt: skip
    (line,) = weak_baselines(Trial(name="test", rows=4, results=(number,), comparisons=()))
    assert "On 4 test rows kernel ridge has an RMSE of 4.470, while always answering" in line
    assert "an RMSE of 2.236" in line


def test_nothing_is_claimed_of_a_test_set_that_says_so():
    one = replace(trial((0.06, 0.02, 0.10), 0.0075), unclaimed="The memory was taught its rows.")
    found = verdict(report_of(one, "accuracy"), one)
    assert (found.headline, found.sentence) == ("Nothing is claimed", one.unclaimed)
    assert "beyond chance</h2>" not in render(report_of(one, "accuracy"))


def test_better_beyond_chance_is_said_with_its_numbers():
    found = said(differences=(0.06, 0.02, 0.10), p=0.0075)
    assert (found.outcome, found.headline) == ("better", "The memory is better, beyond chance")
    assert found.sentence == (
        "The memory reaches 86.0% accuracy on 200 test rows, the plain backbone 80.0%. The "
        "difference of +6.0 points (95% interval +2.0 to +10.0 points) is beyond chance: of the 18 "
        "rows that only one of the two gets right, the memory has 15 (McNemar's exact test on "
        "accuracy, p = 0.007)."
    )


@pytest.mark.parametrize(
    ("differences", "p", "metric", "outcome"),
    [
        ((0.06, 0.02, 0.10), 0.01, "accuracy", "better"),
        ((-0.06, -0.10, -0.02), 0.01, "accuracy", "worse"),
        ((0.06, -0.01, 0.10), 0.04, "accuracy", "chance"),  # the interval holds 0
        ((0.06, 0.001, 0.10), 0.06, "accuracy", "chance"),  # the test does not agree
        ((0.06, 0.001, 0.10), 0.06, "auroc", "better"),  # the test is not about this metric
        ((0.0, -0.02, 0.02), 1.0, "accuracy", "same"),
        ((math.nan, math.nan, math.nan), 1.0, "auroc", "same"),
    ],
)
def test_beyond_chance_needs_interval_and_test(differences, p, metric, outcome):
    assert said(metric=metric, differences=differences, p=p).outcome == outcome


def with_simple(metric="accuracy", simple=(), **given):
    one = trial(**given)
    rows = {name: {metric: value} for name, value in simple}
    one = replace(one, simple=rows)
    return verdict(report_of(one, metric), one)


@pytest.mark.parametrize("sign", [1, -1])
def test_nobody_has_won_whom_a_simple_row_beats(sign):
    """The false winner: 36 against 89 beyond chance, while a linear head reaches 94."""
    plain, memory = (0.36, 0.89)[::sign]
    differences = (0.53, 0.46, 0.60) if sign == 1 else (-0.53, -0.60, -0.46)
    simple = [("kNN", 0.90), ("logistic regression", 0.94)]
    found = with_simple(
        simple=simple, differences=differences, p=1e-9, plain=plain, memory=memory, only=(1, 107)
    )
    assert (found.outcome, found.headline) == (
        "simple",
        "Logistic regression scores better than both",
    )
    assert "beyond chance" not in found.headline + found.sentence
    assert "The best simple baseline, logistic regression, reaches 94.0%." in found.sentence


@pytest.mark.parametrize(
    ("value", "outcome"), [(0.859, "better"), (0.86, "simple"), (0.861, "simple")]
)
def test_a_winner_beats_the_best_simple_row(value, outcome):
    rows = [("PARAM", value), ("kNN", 0.1), ("broken", math.nan)]
    found = with_simple(simple=rows, differences=(0.06, 0.02, 0.10), p=0.007)
    assert found.outcome == outcome
    assert (
        found.headline
        == {
            0.859: "The memory is better, beyond chance",
            0.86: "PARAM scores as well as the better of both",
            0.861: "PARAM scores better than both",
        }[value]
    )


def mixed(simple, mixture=0.90, plain=0.80):
    """Return a report whose mixture is deployed and beats the plain backbone beyond chance."""
    one = trial(differences=(0.02, -0.01, 0.05), p=0.3, plain=plain, memory=0.82)
    scores = {m: Interval(mixture, 0.85, 0.95) for m in ("accuracy", "auroc")}
    own = replace(one.results[1], method=MIXTURE, context="alone", scores=scores)
    ends = Interval(mixture - plain, mixture - plain - 0.04, mixture - plain + 0.04)
    apart = dict.fromkeys(("accuracy", "auroc"), ends)
    against = Comparison(method=MIXTURE, context="alone", differences=apart, p_value=0.001,
                         only_plain=2, only_other=22)  # fmt: skip
    one = replace(one, results=(*one.results, own), comparisons=(*one.comparisons, against),
                  deployed=MIXTURE, simple={"boosting": {"accuracy": simple}})  # fmt: skip
    candidates = (
        Candidate(method=PLAIN, share=0.3, validation_loss=0.4),
        Candidate(method="memory", share=0.7, validation_loss=0.35),
        Candidate(method=MIXTURE, share=None, validation_loss=0.3),
    )
    report = replace(
        report_of(one, "accuracy"), deployed="deployed: a mixture", candidates=candidates
    )
    return report, one


def test_the_headline_is_about_what_is_deployed():
    report, one = mixed(simple=0.89)
    found = verdict(report, one)
    assert found.headline == "The mixture is better, beyond chance"
    assert found.sentence.startswith("The mixture reaches 90.0% accuracy on 200 test rows")
    assert "the mixture has 22 (McNemar's" in found.sentence
    memory = verdict(report, one, method="memory")
    assert memory.headline == "Boosting scores better than both"
    first, *rest = tiles(report, one)
    assert (first.name, first.value) == ("mixture, deployed", "90.0%")
    assert [tile.name for tile in rest] == ["plain backbone", "memory", "Difference"]
    assert rest[-1].value == "+10.0"


@pytest.mark.parametrize("simple", [0.90, 0.94])
def test_a_mixture_that_a_simple_row_reaches_is_not_called_better(simple):
    report, one = mixed(simple=simple)
    found = verdict(report, one)
    assert found.outcome == "simple"
    assert found.headline.startswith("Boosting scores ")
    assert found.headline.endswith("the mixture and the plain backbone")
    assert "beyond chance" not in found.headline + found.sentence
    shown = render(report)
    assert "is better, beyond chance" not in shown
    assert "is beyond chance" not in shown


def test_a_simple_row_that_is_deployed_is_not_held_against_itself():
    report, one = mixed(simple=0.94)
    row = replace(one.results[2], method="boosting")
    against = replace(one.comparisons[1], method="boosting")
    one = replace(one, results=(*one.results[:2], row), deployed="boosting",
                  comparisons=(one.comparisons[0], against))  # fmt: skip
    assert verdict(report, one).headline == "Boosting is better, beyond chance"


def test_where_the_plain_backbone_is_deployed_the_headline_is_about_the_memory():
    report, one = mixed(simple=0.5)
    one = replace(one, deployed=PLAIN)
    assert verdict(report, one).headline == "The memory looks better, but it could be chance"
    assert tiles(report, one)[0].name == "plain backbone, deployed"


def test_shares_and_validation_losses_stand_beside_the_scores():
    report, one = mixed(simple=0.89)
    rows = {row["name"]: (row["share"], row["loss"], row["deployed"]) for row in
            score_rows(report, one)}  # fmt: skip
    assert rows == {
        "plain backbone": ("30%", "0.400", False),
        "memory": ("70%", "0.350", False),
        "mixture": ("\u2014", "0.300", True),
        "boosting": ("", "", False),
    }


def test_the_best_simple_row_has_the_least_where_less_is_better():
    rows = {"kNN": {"nll": 0.9}, "logistic regression": {"nll": 0.4, "accuracy": 0.5}}
    assert best_simple("nll", rows) == ("logistic regression", 0.4)
    assert best_simple("auroc", rows) is None
    apart = Comparison(context="alone", differences={"nll": Interval(-0.2, -0.3, -0.1)})
    assert judge("nll", apart, 0.7, 0.5, ("logistic regression", 0.4))[0] == "simple"
    assert judge("nll", apart, 0.7, 0.3, ("logistic regression", 0.4))[0] == "better"


def test_simple_rows_stand_in_the_table_of_scores(report):
    (one,) = report.tests
    shown = replace(one, simple={"logistic regression": {"accuracy": 1.0, "nll": 0.01}})
    page = render(replace(report, tests=(shown,)))
    assert "Logistic regression scores better than both" in page
    assert "beyond chance:" not in page
    rows = {row["name"]: row for row in score_rows(report, shown)}
    cells = dict(zip(one.results[0].scores, rows["logistic regression"]["cells"], strict=True))
    assert cells["accuracy"] == ("100.0%", "", True)
    assert cells["macro F1"] == ("\u2014", "", False)
    assert all(not row["cells"][0][2] for name, row in rows.items() if name[0] != "l")


def test_no_difference_is_not_called_chance():
    found = said(differences=(0.0, -0.02, 0.02), p=1.0, only=(4, 4))
    assert "There is no difference (95% interval \u22122.0 to +2.0 points)" in found.sentence


def test_answers_worse_than_not_looking_come_with_a_warning():
    found = said(differences=(0.06, 0.02, 0.10), p=0.001, plain=0.1, memory=0.16, wrong=True)
    assert found.sentence.endswith(
        "Mind that always answering the most frequent class would be right on 75.0%."
    )


def test_without_a_plain_backbone_nothing_is_claimed():
    one = trial(differences=(0.1, 0.05, 0.15), p=0.001)
    alone = replace(one, results=one.results[1:], comparisons=())
    report = report_of(one, "accuracy")
    assert verdict(report, alone).outcome == "alone"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (amount("accuracy", 0.12345), "12.3%"),
        (amount("nll", 0.12345), "0.123"),
        (interval("auroc", Interval(0.5, 0.4, 0.6)), "0.400 to 0.600"),
        (interval("auroc", Interval(0.5, math.nan, math.nan)), "—"),
        (change("accuracy", -0.00001), "0.0"),
        (change("accuracy", -0.012), "\u22121.2"),
        (probability(0.05), "0.050"),
        (duration(None), "—"),
        (duration(59.99), "1 min 0 s"),
        (duration(3599.7), "1 h 0 min"),
        (size(2**20), "1 MiB"),
        (size(None), "—"),
    ],
)
def test_numbers_as_a_person_reads_them(found, text):
    assert found == text


@pytest.fixture
def healthy(report):
    """A report in which nothing stands out."""
    first = report.tests[0]
    right = np.eye(3, dtype=int) * 10
    results = tuple(replace(r, confusion=right) for r in first.results)
    same = tuple(
        replace(c, differences={m: replace(d, value=0.0) for m, d in c.differences.items()})
        for c in first.comparisons
    )
    fresh = replace(report.parts["memory"].queue, staleness=np.full(12, 0.01))
    slots = replace(report.parts["memory"].slots, used=np.array([3, 3, 3]))
    trial = replace(first, results=results, comparisons=same)
    found = change_part(replace(report, tests=(trial,)), "memory", queue=fresh, slots=slots)
    assert advice(found) == ()
    assert "What to try next" not in render(found)
    return found


def with_options(report, **options):
    return replace(
        report, options={"memory": {name.replace("__", "."): v for name, v in options.items()}}
    )


def without_recall(report, classes):
    confusion = np.eye(3, dtype=int) * 10
    for c in classes:
        confusion[c] = [0, 0, 0]
        confusion[c, (c + 1) % 3] = 10
    trial = report.tests[0]
    results = tuple(replace(r, confusion=confusion) for r in trial.results)
    return replace(report, tests=(replace(trial, results=results),))


def test_classes_that_are_never_found_are_named_with_the_balance_option(healthy):
    rare = replace(healthy, splits={"train": np.array([40, 40, 4])})
    (line,) = advice(without_recall(rare, [2]))
    assert line.startswith("1 class is never found in the test rows (recall 0%): eel.")
    assert "--balance sampler" in line
    balanced = with_options(without_recall(rare, [2]), recipe__balance="loss")
    assert "--balance" not in advice(balanced)[0]
    even = replace(healthy, splits={"train": np.array([40, 40, 39])})
    (line,) = advice(without_recall(even, [0, 2]))
    assert line.startswith("2 classes are never found in the test rows (recall 0%): cat, eel.")
    assert "--balance" not in line


def test_a_class_without_test_rows_is_not_called_lost(healthy):
    confusion = np.diag([10, 10, 0])
    trial = healthy.tests[0]
    results = tuple(replace(r, confusion=confusion) for r in trial.results)
    assert advice(replace(healthy, tests=(replace(trial, results=results),))) == ()


def test_a_stale_queue_is_told_of_the_momentum(healthy):
    old = replace(healthy.parts["memory"].queue, staleness=np.full(12, 0.8))
    stale = change_part(healthy, "memory", queue=old)
    (line,) = advice(with_options(stale, config__momentum="0.999"))
    assert line.startswith("The queue is stale: its rows are 0.80 of their length away")
    assert "--momentum (now 0.999)" in line


def test_unused_slots_are_counted(healthy):
    slots = replace(healthy.parts["memory"].slots, used=np.array([1, 2, 0]))
    idle = change_part(healthy, "memory", slots=slots)
    (line,) = advice(idle)
    assert line == "6 of 9 slots draw next to no attention: --slots-per-class 2 would do."


def test_images_without_weights_are_told_of_them(healthy):
    (line,) = advice(with_options(healthy, backbone="timm:resnet18", weights="none"))
    assert "--weights FILE" in line
    for options in ({"backbone": "timm:resnet18", "weights": "w.pth"}, {"backbone": "cnn"}):
        assert advice(with_options(healthy, **options)) == ()
    table = replace(healthy, kind="table")
    assert advice(with_options(table, backbone="timm:resnet18", weights="none")) == ()


def test_a_queue_that_was_never_written_is_told_of_remember(healthy):
    queue = replace(healthy.parts["memory"].queue, rows=0, staleness=None)
    empty = change_part(healthy, "memory", queue=queue)
    (line,) = advice(empty)
    assert "model.remember(x, y)" in line
    assert line in render(empty)


def test_a_memory_that_does_not_help_is_told_where_to_read_on(healthy):
    trial = replace(healthy.tests[0], simple={"kNN": {"accuracy": 1.0}})
    (line,) = advice(replace(healthy, tests=(trial,)))
    assert line.startswith("A simple baseline was not beaten")
    assert "When the memory does not help" in line


def test_a_memory_that_lost_is_told_so_whatever_is_deployed(healthy):
    trial = healthy.tests[0]
    (against,) = trial.comparisons[:1]
    lost = {m: Interval(-0.2, -0.3, -0.1) for m in against.differences}
    worse = replace(against, differences=lost, p_value=0.001)
    plain = replace(trial, comparisons=(worse, *trial.comparisons[1:]), deployed="plain backbone")
    (line,) = advice(replace(healthy, tests=(plain,)))
    assert line.startswith("The memory lost on these rows")
