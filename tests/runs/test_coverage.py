"""Sets, intervals and unknown rows of a run, against thresholds taken by hand."""

import math
import os
import shutil

import numpy as np
import pandas
import pytest
import torch

from hma.attention.config import HMAConfig
from hma.errors import UserError
from hma.questions.unfamiliar import unfamiliarity
from hma.report.page import render
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.answers import predict
from hma.runs.coverage import CALIBRATIONS, KEPT, Calibration, Covered, read_calibration
from hma.runs.living import LivingMemory
from hma.runs.page import report_of
from hma.runs.source import prepared_from, rows_for
from hma.training import Recipe, SilentProgress, all_logits
from hma.vote.config import VoteConfig

CORNERS = 4 * np.eye(4)
COVERAGE = 0.8


def table(kinds, seed):
    """Rows around a corner for each kind."""
    draw = np.random.default_rng(seed)
    frame = pandas.DataFrame(CORNERS[kinds] + draw.normal(size=(len(kinds), 4)), columns=[*"abcd"])
    return frame.round(3).assign(kind=[f"k{kind}" for kind in kinds])


def trained_on(folder, frame, target, *, config=None, **options):
    frame.to_csv(folder / "rows.csv", index=False)
    wanted = RunOptions(
        source=str(folder / "rows.csv"),
        target=target,
        recipe=Recipe(epochs=2, batch_size=16),
        config=config or VoteConfig(),
        **options,
    )
    return train(wanted, folder / "run", compare=False, progress=SilentProgress())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of three classes, and rows of these and of a fourth."""
    folder = tmp_path_factory.mktemp("covered")
    trained_on(folder, table(np.arange(120) % 3, 0), ("kind",))
    table(np.arange(24) % 4, 1).to_csv(folder / "new.csv", index=False)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    return Run.open(tmp_path / "run")


def predicted(run, source, tmp_path, coverage=COVERAGE):
    rows = rows_for(run, str(source), labelled=False)
    covered = Covered(run, coverage)
    out = tmp_path / "out.csv"
    for _ in predict(run, rows, out, covered=covered):
        pass
    return pandas.read_csv(out, keep_default_na=False), covered


def validation_of(run):
    """What the models of before they learned from validation rows say of these."""
    return answers_to(run.before, prepared_from(run.options).task.validation)


def answers_to(run, split):
    """Labels, answers and unfamiliarity of rows: to the memory that never saw validation rows."""
    said = all_logits(run.learner(run.deployed.which), split, batch_size=64)
    x = split.batch(torch.arange(len(split))).x
    far = unfamiliarity(run.before.learner(MEMORY).model, x)
    said = run.preparation.target.expected(said).double().numpy()
    return split.labels.numpy(), said, far.double().numpy()


def quantile(scores):
    level = math.ceil(round((len(scores) + 1) * COVERAGE, 9)) / len(scores)
    return np.quantile(scores, level, method="inverted_cdf")


def test_sets_and_unknown_rows_follow_thresholds_taken_by_hand(run, trained, tmp_path):
    assert run.refitted
    labels, said, far = validation_of(run)
    most_wrong = quantile(1 - said[np.arange(len(labels)), labels])
    found, covered = predicted(run, trained / "new.csv", tmp_path)
    names = run.preparation.classes
    for row in found.to_dict("records"):
        shares = [row[f"probability of {name}"] for name in names]
        wanted = {n for n, p in zip(names, shares, strict=True) if 1 - p <= most_wrong + 1e-6}
        assert set(row["labels"].split(" | ")) == wanted | {names[int(np.argmax(shares))]}
        strange = row["unfamiliarity"] > quantile(far) + 1e-5
        assert row["unknown"] == ("yes" if strange else "no")
        assert (row["label"] == "unknown") == strange
    assert covered.unknown == (found["unknown"] == "yes").sum() > 0
    assert covered.lines()[0].endswith(f"{covered.unknown} of 24 rows are unknown")


def test_training_keeps_the_thresholds_so_that_its_data_is_not_needed(run, trained, tmp_path):
    (path,) = (run.folder / CALIBRATIONS).iterdir()
    kept = path.read_bytes()
    path.unlink()
    again, _ = predicted(run, trained / "new.csv", tmp_path)
    assert path.read_bytes() == kept
    hidden = (trained / "rows.csv").rename(trained / "gone.csv")
    try:
        found, _ = predicted(run, trained / "new.csv", tmp_path)
    finally:
        hidden.rename(trained / "rows.csv")
    pandas.testing.assert_frame_equal(found, again)


def test_a_class_is_known_once_the_memory_was_taught_it(run, trained, tmp_path):
    before, _ = predicted(run, trained / "new.csv", tmp_path)
    table(np.full(12, 3), 5).to_csv(tmp_path / "taught.csv", index=False)
    memory = LivingMemory.open(run.folder)
    rows = rows_for(memory.run, str(tmp_path / "taught.csv"), labelled=True)
    memory.remember(rows, new_classes=True)
    after, _ = predicted(Run.open(run.folder), trained / "new.csv", tmp_path)
    fourth = np.arange(24) % 4 == 3
    assert (before["label"] == "unknown")[fourth].mean() > 0.5
    assert (after["label"] == "k3")[fourth].mean() > 0.5


def test_the_first_and_the_newest_calibrations_are_kept(tmp_path):
    made = [Calibration(rows=n, answers=torch.ones(1), unfamiliar=None) for n in range(KEPT + 5)]
    for one in made:
        one.write(tmp_path, f"key{one.rows}")
        os.utime(tmp_path / CALIBRATIONS / f"key{one.rows}.json", ns=(one.rows, one.rows))
    there = [n for n in range(len(made)) if read_calibration(tmp_path, f"key{n}") is not None]
    assert there == [0, *range(len(made) - KEPT + 1, len(made))]
    assert read_calibration(tmp_path, "key0").rows == 0


def test_too_few_validation_rows_say_how_many_are_needed(run):
    with pytest.raises(UserError, match=r"coverage 0.99 needs at least 99 validation rows, got 18"):
        Covered(run, 0.99)


def test_a_number_has_an_interval_of_its_absolute_errors(tmp_path):
    frame = table(np.arange(60) % 3, 2).assign(price=lambda f: 10 * f["a"] + f["b"])
    run = trained_on(tmp_path, frame.drop(columns="kind"), ("price",), task="regression")
    labels, said, _ = validation_of(run)
    off = quantile(np.abs(labels - said))
    found, covered = predicted(run, tmp_path / "rows.csv", tmp_path)
    np.testing.assert_allclose(found["price"] - off, found["price from"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["price"] + off, found["price to"], rtol=1e-4, atol=1e-4)
    assert {*found["unknown"]} <= {"yes", "no"}
    assert f"price is within {off:.4g}" in covered.lines()[0]
    page = render(report_of(run))
    assert "answers with an interval and calls rows unknown" in page
    assert "Sets are never empty" not in page


def test_yes_no_labels_of_a_memory_that_attends_have_neither_sets_nor_unknown_rows(tmp_path):
    frame = table(np.arange(60) % 3, 3).assign(hot=lambda f: (f["a"] > 2).astype(int))
    frame = frame.assign(wet=lambda f: (f["b"] > 2).astype(int)).drop(columns="kind")
    config = HMAConfig(queue_size=8, slots_per_class=2)
    run = trained_on(tmp_path, frame, ("hot", "wet"), config=config)
    found, covered = predicted(run, tmp_path / "rows.csv", tmp_path)
    assert [*found.columns] == ["row", "probability of hot", "probability of wet"]
    assert "have no sets or intervals" in covered.lines()[0]
    assert "needs a memory whose rows vote" in covered.lines()[1]


def test_the_page_shows_what_the_test_rows_come_to(run):
    labels, said, far = validation_of(run)
    tested_labels, tested, tested_far = answers_to(
        run, prepared_from(run.options).task.tests["test"]
    )
    report = report_of(run)
    found = next(level for level in report.parts["coverage"].levels if level.asked == COVERAGE)
    most = quantile(1 - said[np.arange(len(labels)), labels])
    sets = [
        {c for c, p in enumerate(row) if 1 - p <= most} | {int(np.argmax(row))} for row in tested
    ]
    inside = [label in one for label, one in zip(tested_labels.tolist(), sets, strict=True)]
    assert found.covered == pytest.approx(np.mean(inside))
    assert found.size == pytest.approx(np.mean([len(one) for one in sets]))
    assert found.unknown == pytest.approx((tested_far > quantile(far)).mean())
    assert [level.asked for level in report.parts["coverage"].levels] == [0.5, 0.6, 0.7, 0.8, 0.9]
    page = render(report)
    assert 'id="coverage"' in page
    assert "of 18 validation rows" in page
    assert "Sets are never empty" in page
