"""Candidates over seeds: scores by scikit-learn, pairs by the single run's bootstrap, verdicts."""

import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import torch
from browser import needs_chromium, opened
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, root_mean_squared_error

from hma.cli.show import Terminal, seed_tables
from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.page import render, write_page
from hma.report.run_report import DEPLOYED, MEMORY, PLAIN
from hma.report.scoring import Answers, best_simple, compare
from hma.report.seeds import compare_seeds, seeds_verdict, sheets
from hma.targets import Classes, Number

LOGISTIC, NEIGHBOURS = "logistic regression", "nearest neighbours"


def answers(seed, rates, rows=40, classes=3):
    """Return made-up answers: each candidate is right on about its share of the rows."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=draw)
    said = {}
    for candidate, rate in rates.items():
        right = torch.rand(rows, generator=draw) < rate
        chosen = torch.where(right, labels, (labels + 1) % classes)
        noise = 0.1 * torch.randn(rows, classes, generator=draw)
        said[candidate] = 2 * torch.nn.functional.one_hot(chosen, classes) + noise
    places = list(range(100 * seed, 100 * seed + rows))
    return {"test": answers_by(said, labels=labels, places=places)}


def answers_by(said, **given):
    """Return answers of candidates by their names."""
    others = {name: logits for name, logits in said.items() if name not in (PLAIN, MEMORY)}
    networks = [{"alone": said[name]} if name in said else {} for name in (MEMORY, PLAIN)]
    return Answers(memory=networks[0], plain=networks[1], others=others, **given)


def compared(rates, seeds=4, **options):
    found = {seed: answers(seed, rates, **options) for seed in range(seeds)}
    return found, compare_seeds("made up", found, "accuracy", Classes(3), resamples=300)


def to(trial, method, base):
    """Return a method's differences to another, by metric."""
    return trial.comparison(method, base).differences


ALL = {PLAIN: 0.6, MEMORY: 0.7, LOGISTIC: 0.75, NEIGHBOURS: 0.5, DEPLOYED: 0.8}


def test_scores_are_those_of_scikit_learn():
    found, report = compared(ALL)
    assert report.metrics == ("accuracy", "nll")
    (trial,) = report.tests
    for candidate, result in zip(ALL, trial.results, strict=True):
        assert result.method == candidate
        for seed, one in found.items():
            logits, labels = one["test"].own[candidate], one["test"].labels
            accuracy = accuracy_score(labels, logits.argmax(dim=1))
            loss = log_loss(labels, logits.double().softmax(dim=1), labels=[0, 1, 2])
            assert result.by_seed["accuracy"][seed] == pytest.approx(accuracy)
            assert result.by_seed["nll"][seed] == pytest.approx(loss)
        values = result.by_seed["accuracy"]
        assert result.scores["accuracy"].value == pytest.approx(np.mean(values))
        line = next(line for line in sheets(report, trial)[0].lines if line.name == candidate)
        assert line.deviation == f"{100 * np.std(values, ddof=1):.1f}"


def test_numbers_have_their_own_metrics_and_each_seed_its_own_scale():
    generator = torch.Generator().manual_seed(0)
    found = {}
    for seed, scale in enumerate([2.0, 5.0]):
        labels = 10 + torch.randn(30, generator=generator)
        said = {c: torch.randn(30, 1, generator=generator) for c in (PLAIN, MEMORY)}
        target = Number(centre=10.0, scale=scale)
        found[seed] = {"test": answers_by(said, labels=labels, target=target)}
    report = compare_seeds("made up", found, "rmse", target, resamples=50)
    assert report.metrics == ("rmse", "mae")
    for seed, tests in found.items():
        one = tests["test"]
        said = one.target.expected(one.own[MEMORY])
        scores = report.tests[0].result(MEMORY).by_seed
        assert scores["rmse"][seed] == pytest.approx(
            root_mean_squared_error(one.labels, said), rel=1e-5
        )
        assert scores["mae"][seed] == pytest.approx(mean_absolute_error(one.labels, said), rel=1e-5)


def test_with_one_seed_a_difference_is_that_of_the_runs_own_page():
    found, report = compared(ALL, seeds=1)
    given = {"target": Classes(3), "resamples": 300, "seed": 0}
    trial = compare("test", [found[0]["test"]], ["accuracy", "nll"], **given)
    for metric in ("accuracy", "nll"):
        assert to(report.tests[0], MEMORY, PLAIN)[metric] == to(trial, MEMORY, PLAIN)[metric]
    assert report.tests[0].comparison(MEMORY).p_over_seeds is None
    assert {line.deviation for line in sheets(report, report.tests[0])[0].lines} == {"—"}


def test_differences_are_paired_by_seed_and_to_the_best_simple_row():
    _, report = compared(ALL)
    (trial,) = report.tests
    assert best_simple("accuracy", trial.simple)[0] == LOGISTIC
    for base in (PLAIN, LOGISTIC):
        scores = [trial.result(name).by_seed["accuracy"] for name in (MEMORY, base)]
        ends = to(trial, MEMORY, base)["accuracy"]
        assert ends.value == pytest.approx(np.subtract(*scores).mean())
        assert ends.low <= ends.value <= ends.high
        assert trial.comparison(base, base) is None
    assert to(trial, MEMORY, PLAIN)["accuracy"].value > 0
    assert to(trial, MEMORY, LOGISTIC)["accuracy"].value < 0


def test_the_same_report_comes_out_again():
    assert compared(ALL)[1] == compared(ALL)[1]
    assert render(compared(ALL)[1]) == render(compared(ALL)[1])


def test_a_candidate_that_a_seed_lacks_is_not_compared():
    found = {0: answers(0, ALL), 1: answers(1, {PLAIN: 0.5, MEMORY: 0.5, DEPLOYED: 0.5})}
    report = compare_seeds("x", found, "accuracy", Classes(3))
    names = [one.method for one in report.tests[0].results]
    assert names == ["plain backbone", "memory", "deployed"]


# ---------------------------------------------------------------------------------- verdicts


def headline(rates, **options):
    _, report = compared(rates, **options)
    return seeds_verdict(report, report.tests[0])


def test_better_beyond_chance_is_said_of_many_seeds_that_agree():
    found = headline({PLAIN: 0.4, MEMORY: 0.5, LOGISTIC: 0.6, DEPLOYED: 0.9}, seeds=5)
    assert found.outcome == "better"
    assert found.headline == "What is deployed is better, beyond chance (5 seeds)"
    assert "paired t-test over seeds, p < 0.001" in found.sentence


def test_nobody_is_better_where_a_simple_row_is():
    found = headline({PLAIN: 0.4, MEMORY: 0.8, LOGISTIC: 0.95, DEPLOYED: 0.8}, seeds=5)
    assert found.outcome == "simple"
    assert found.headline == (
        "Logistic regression scores better than what is deployed and the plain backbone (5 seeds)"
    )


def test_what_is_deployed_is_held_to_both_and_the_memory_to_the_plain_backbone():
    _, report = compared(ALL)
    (trial,) = report.tests
    said = seeds_verdict(report, trial).sentence
    for ends in (
        to(trial, DEPLOYED, LOGISTIC)["accuracy"],
        to(trial, MEMORY, PLAIN)["accuracy"],
    ):
        low, high = (f"{100 * end:+.1f}".replace("-", "\u2212") for end in (ends.low, ends.high))
        assert f"{100 * ends.value:+.1f} points ({low} to {high})" in said


def test_where_the_plain_backbone_is_deployed_it_is_about_the_memory():
    found = {}
    for seed in range(5):
        one = answers(seed, {PLAIN: 0.5, MEMORY: 0.9})["test"]
        found[seed] = {"test": replace(one, others={DEPLOYED: one.own[PLAIN]})}
    report = compare_seeds("made up", found, "accuracy", Classes(3), resamples=200)
    said = seeds_verdict(report, report.tests[0])
    assert said.headline == "The memory is better, beyond chance (5 seeds)"


def test_a_difference_that_hangs_on_one_seed_could_be_chance():
    found = {
        s: answers(s, {PLAIN: 0.5, DEPLOYED: 0.95 if s else 0.55, MEMORY: 0.5}, rows=400)
        for s in (0, 1)
    }
    report = compare_seeds("made up", found, "accuracy", Classes(3), resamples=500)
    ends = to(report.tests[0], DEPLOYED, PLAIN)["accuracy"]
    assert ends.low > 0, "two seeds alone leave 0 out of the interval"
    said = seeds_verdict(report, report.tests[0])
    assert said.outcome == "chance"
    assert said.headline.startswith("What is deployed looks better, but")


def test_one_seed_decides_nothing():
    found = headline({PLAIN: 0.3, MEMORY: 0.9, DEPLOYED: 0.9}, seeds=1)
    assert (found.outcome, found.headline) == (
        "alone",
        "One seed is finished, and one decides nothing",
    )


def test_without_a_plain_backbone_nothing_is_compared():
    found = headline({MEMORY: 0.9, DEPLOYED: 0.9})
    assert found.headline == "No plain backbone to compare with"
    assert found.sentence.startswith("Memory ")


# ------------------------------------------------------------------------ terminal and page


def test_the_tables_fit_into_80_columns_and_tell_all_numbers():
    _, report = compared(ALL)
    terminal = Terminal(width=80, file=StringIO())
    for table in seed_tables(report):
        terminal.print(table)
    text = terminal.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "Accuracy over 4 seeds (40 rows, drawn anew with each seed)" in text
    memory = report.tests[0].result(MEMORY)
    for line in (
        "plain backbone",
        "memory",
        "logistic regression",
        "nearest neighbours",
        "deployed",
    ):
        assert f" {line} " in text
    assert f"{100 * memory.scores['accuracy'].value:.1f}%" in text
    ends = to(report.tests[0], MEMORY, PLAIN)["accuracy"]
    for value in (ends.value, ends.low, ends.high):
        assert f"{100 * value:+.1f}".replace("-", "\u2212") in text


def test_small_differences_have_no_more_decimals_than_the_scores():
    _, report = compared(ALL)
    (trial,) = report.tests
    near = {m: Interval(1e-5, -1e-4, 0.02) for m in METRICS}
    small = replace(trial.comparison(MEMORY), differences=near)
    shown = sheets(report, replace(trial, comparisons=(small,)))
    assert shown[0].lines[1].to_plain == ("0.0", "0.0 to +2.0")
    assert shown[1].lines[1].to_plain == ("0.000", "0.000 to +0.020")


def test_the_page_has_a_dot_for_each_seed_and_links_to_its_page():
    _, report = compared(ALL)
    page = render(replace(report, pages={0: "seed-0/report.html", 2: "seed-2/report.html"}))
    assert page.count('class="seed"') == 2 * 4 * len(ALL), "two metrics, four seeds"
    assert page.count('class="mean"') == 2 * len(ALL)
    assert re.findall(r'<a href="(seed-[^"]*)">(seed \d)</a>', page) == [
        ("seed-0/report.html", "seed 0"),
        ("seed-2/report.html", "seed 2"),
    ]
    assert seeds_verdict(report, report.tests[0]).headline in page


@needs_chromium
def test_the_page_opens_without_a_console_message_and_shows_names_as_text(tmp_path):
    strange = "<script>document.title='owned'</script>"
    found, _ = compared(ALL | {strange: 0.5})
    report = compare_seeds("</style><b>", found, "accuracy", Classes(3), resamples=50)
    write_page(report, tmp_path / "report.html")
    document, console = opened(tmp_path / "report.html")
    assert console == []
    assert "<title>&lt;/style&gt;&lt;b&gt; · hma report</title>" in document
    assert "<script" not in document
