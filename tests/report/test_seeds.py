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
from hma.report.scoring import Answers, compare
from hma.report.seeds import Candidate, SeedAnswers, compare_seeds, seeds_verdict, sheets
from hma.targets import Classes, Number

PLAIN, MEMORY = Candidate("plain backbone", "plain"), Candidate("memory", "memory")
LOGISTIC = Candidate("logistic regression", "simple")
NEIGHBOURS = Candidate("nearest neighbours", "simple")
DEPLOYED = Candidate("deployed", "deployed")


def answers(seed, rates, rows=40, classes=3):
    """Return made-up answers: each candidate is right on about its share of the rows."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=draw)
    said = {}
    for candidate, rate in rates.items():
        right = torch.rand(rows, generator=draw) < rate
        chosen = torch.where(right, labels, (labels + 1) % classes)
        noise = 0.1 * torch.randn(rows, classes, generator=draw)
        said[candidate] = {"test": 2 * torch.nn.functional.one_hot(chosen, classes) + noise}
    places = {"test": list(range(100 * seed, 100 * seed + rows))}
    return SeedAnswers(
        seed=seed, target=Classes(classes), labels={"test": labels}, places=places, said=said
    )


def compared(rates, seeds=4, **options):
    found = [answers(seed, rates, **options) for seed in range(seeds)]
    return found, compare_seeds("made up", found, "accuracy", resamples=300)


ALL = {PLAIN: 0.6, MEMORY: 0.7, LOGISTIC: 0.75, NEIGHBOURS: 0.5, DEPLOYED: 0.8}


def test_scores_are_those_of_scikit_learn():
    found, report = compared(ALL)
    assert report.metrics == ("accuracy", "nll")
    (trial,) = report.tests
    for candidate, standing in zip(ALL, trial.standings, strict=True):
        assert (standing.name, standing.kind) == (candidate.name, candidate.kind)
        for seed, one in enumerate(found):
            logits, labels = one.said[candidate]["test"], one.labels["test"]
            accuracy = accuracy_score(labels, logits.argmax(dim=1))
            loss = log_loss(labels, logits.double().softmax(dim=1), labels=[0, 1, 2])
            assert standing.scores["accuracy"][seed] == pytest.approx(accuracy)
            assert standing.scores["nll"][seed] == pytest.approx(loss)
        values = standing.scores["accuracy"]
        assert standing.mean("accuracy") == pytest.approx(np.mean(values))
        assert standing.deviation("accuracy") == pytest.approx(np.std(values, ddof=1))


def test_numbers_have_their_own_metrics_and_each_seed_its_own_scale():
    generator = torch.Generator().manual_seed(0)
    found = []
    for seed, scale in enumerate([2.0, 5.0]):
        labels = 10 + torch.randn(30, generator=generator)
        said = {c: {"test": torch.randn(30, 1, generator=generator)} for c in (PLAIN, MEMORY)}
        one = answers(seed, {})
        target = Number(centre=10.0, scale=scale)
        found.append(replace(one, target=target, labels={"test": labels}, said=said))
    report = compare_seeds("made up", found, "rmse", resamples=50)
    assert report.metrics == ("rmse", "mae")
    for seed, one in enumerate(found):
        said = one.target.expected(one.said[MEMORY]["test"])
        scores = report.tests[0].standings[1].scores
        assert scores["rmse"][seed] == pytest.approx(
            root_mean_squared_error(one.labels["test"], said), rel=1e-5
        )
        assert scores["mae"][seed] == pytest.approx(
            mean_absolute_error(one.labels["test"], said), rel=1e-5
        )


def test_with_one_seed_a_difference_is_that_of_the_runs_own_page():
    (one,), report = compared(ALL, seeds=1)
    said = Answers(
        labels=one.labels["test"],
        memory={"alone": one.said[MEMORY]["test"]},
        plain={"alone": one.said[PLAIN]["test"]},
    )
    trial = compare("test", said, "accuracy", target=one.target, resamples=300, seed=0)
    memory = report.tests[0].of("memory")
    for metric in ("accuracy", "nll"):
        assert memory.to_plain[metric] == trial.comparisons[0].differences[metric]
    assert memory.tested == {"accuracy": None, "nll": None}
    assert memory.deviation("accuracy") is None


def test_differences_are_paired_by_seed_and_to_the_best_simple_row():
    _, report = compared(ALL)
    (trial,) = report.tests
    assert trial.simple == "logistic regression"
    memory, plain, simple = trial.of("memory"), trial.of("plain"), trial.best_simple
    for name, other in (("to_plain", plain), ("to_simple", simple)):
        apart = np.subtract(memory.scores["accuracy"], other.scores["accuracy"])
        ends = getattr(memory, name)["accuracy"]
        assert ends.value == pytest.approx(apart.mean())
        assert ends.low <= ends.value <= ends.high
    assert plain.to_plain == {}
    assert simple.to_simple == {}
    assert memory.to_plain["accuracy"].value > 0 > memory.to_simple["accuracy"].value


def test_the_same_report_comes_out_again():
    assert compared(ALL)[1] == compared(ALL)[1]
    assert render(compared(ALL)[1]) == render(compared(ALL)[1])


def test_a_candidate_that_a_seed_lacks_is_not_compared():
    found = [answers(0, ALL), answers(1, {PLAIN: 0.5, MEMORY: 0.5, DEPLOYED: 0.5})]
    names = [one.name for one in compare_seeds("x", found, "accuracy").tests[0].standings]
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
        trial.of("deployed").to_simple["accuracy"],
        trial.of("memory").to_plain["accuracy"],
    ):
        low, high = (f"{100 * end:+.1f}".replace("-", "\u2212") for end in (ends.low, ends.high))
        assert f"{100 * ends.value:+.1f} points ({low} to {high})" in said


def test_where_the_plain_backbone_is_deployed_it_is_about_the_memory():
    found = [answers(seed, {PLAIN: 0.5, MEMORY: 0.9}) for seed in range(5)]
    found = [replace(one, said=one.said | {DEPLOYED: one.said[PLAIN]}) for one in found]
    report = compare_seeds("made up", found, "accuracy", resamples=200)
    said = seeds_verdict(report, report.tests[0])
    assert said.headline == "The memory is better, beyond chance (5 seeds)"


def test_a_difference_that_hangs_on_one_seed_could_be_chance():
    found = [answers(s, {PLAIN: 0.5, DEPLOYED: 0.95 if s else 0.55}, rows=400) for s in (0, 1)]
    report = compare_seeds("made up", found, "accuracy", resamples=500)
    ends = report.tests[0].of("deployed").to_plain["accuracy"]
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
    memory = report.tests[0].of("memory")
    for line in (
        "plain backbone",
        "memory",
        "logistic regression",
        "nearest neighbours",
        "deployed",
    ):
        assert f" {line} " in text
    assert f"{100 * memory.mean('accuracy'):.1f}%" in text
    ends = memory.to_plain["accuracy"]
    for value in (ends.value, ends.low, ends.high):
        assert f"{100 * value:+.1f}".replace("-", "\u2212") in text


def test_small_differences_have_no_more_decimals_than_the_scores():
    _, report = compared(ALL)
    (trial,) = report.tests
    near = replace(trial.standings[1], to_plain={m: Interval(1e-5, -1e-4, 0.02) for m in METRICS})
    shown = sheets(report, replace(trial, standings=(trial.standings[0], near)))
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
    strange = Candidate("<script>document.title='owned'</script>", "simple")
    found, _ = compared(ALL | {strange: 0.5})
    report = compare_seeds("</style><b>", found, "accuracy", resamples=50)
    write_page(report, tmp_path / "report.html")
    document, console = opened(tmp_path / "report.html")
    assert console == []
    assert "<title>&lt;/style&gt;&lt;b&gt; · hma report</title>" in document
    assert "<script" not in document
