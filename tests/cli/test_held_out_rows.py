"""A memory that is taught validation or test rows of its run: what is asked, said and claimed."""

import json
import shutil

import numpy as np
import pandas
import pytest

from hma.runs import Run, RunOptions, train
from hma.runs.audits import read_audits
from hma.runs.source import prepared_from
from hma.training import Recipe, SilentProgress, all_logits

ROWS, TESTED = 200, 90
CENTRES = np.random.default_rng(0).normal(scale=1.6, size=(24, 6))


def table(seed, rows):
    """Many small clouds in a few classes, which take neighbours to tell."""
    draw = np.random.default_rng(seed)
    clouds = draw.integers(len(CENTRES), size=rows)
    near = CENTRES[clouds] + draw.normal(size=(rows, CENTRES.shape[1]))
    frame = pandas.DataFrame(near.round(4), columns=[*"abcdef"])
    return frame.assign(kind=np.array(["up", "down", "odd", "even"])[clouds % 4])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with a test file of its own, whose memory alone answers."""
    folder = tmp_path_factory.mktemp("held-out")
    table(0, ROWS).to_csv(folder / "rows.csv", index=False)
    table(1, TESTED).to_csv(folder / "test.csv", index=False)
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("kind",),
        test=str(folder / "test.csv"),
        validation=0.25,
        backbone="mlp",
        refit="no",  # or the memory would hold the validation rows already
        recipe=Recipe(epochs=2, batch_size=32),
    )
    train(options, folder / "run", deploy="memory", progress=SilentProgress())
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path


def plain(text):
    return " ".join(text.split())


def write(folder, frame):
    frame.to_csv(folder / "taught.csv", index=False)
    return folder / "taught.csv"


def verdict_in(ended):
    assert ended.code == 0, ended.err
    return next(line for line in ended.out.splitlines() if line.startswith("verdict: "))


def test_test_rows_are_taught_only_when_that_is_meant(run_hma, refuses, trained, folder):
    run = folder / "run"
    said = refuses("remember", run, trained / "test.csv")
    assert "test.csv holds 90 test rows of this run" in said
    assert said.endswith("pass --yes to do it")
    assert not (run / "memory/current.json").exists()
    assert not (run / "memory/versions/1").exists()
    ended = run_hma("remember", run, trained / "test.csv", "--yes")
    assert ended.code == 0, ended.err
    assert "taught 90 test rows of this run" in plain(ended.out)
    version = json.loads((run / "memory/versions/1/version.json").read_text())
    assert version["held_out"] == {"test": [*range(TESTED)]}


def test_labels_do_not_hide_a_test_row_and_new_rows_need_no_yes(run_hma, refuses, trained, folder):
    frame = pandas.read_csv(trained / "test.csv")
    turned = frame[:7].assign(kind=np.where(frame.kind[:7] == "up", "odd", "up"))
    mixed = pandas.concat([turned, table(5, 4)])
    assert "holds 7 test rows of this run" in refuses(
        "remember", folder / "run", write(folder, mixed)
    )
    ended = run_hma("remember", folder / "run", write(folder, table(5, 4)))
    assert ended.code == 0, ended.err
    assert Run.open(folder / "run").versions.version(1).held_out == {}


def test_nothing_is_claimed_of_a_memory_that_was_taught_all_test_rows(run_hma, trained, folder):
    run = folder / "run"
    assert run_hma("remember", run, trained / "test.csv", "--yes").code == 0
    assert verdict_in(run_hma("report", run)) == "verdict: Nothing is claimed"
    page = (run / "report.html").read_text()
    assert "The memory was taught all test rows, so nothing is claimed of it" in page
    assert "The memory was taught 90 test rows, which are left out here." in page
    assert "beyond chance</h2>" not in page
    audited = run_hma("audit", run)
    assert audited.code == 0, audited.err
    assert set(read_audits(Run.open(run))) == {"validation"}


def test_pages_and_audits_leave_out_the_test_rows_that_were_taught(run_hma, trained, folder):
    run = folder / "run"
    taught = pandas.read_csv(trained / "test.csv")[10:40]
    assert run_hma("remember", run, write(folder, taught), "--yes").code == 0
    assert run_hma("report", run).code == 0
    page = (run / "report.html").read_text()
    assert "The memory was taught 30 test rows, which are left out here." in page
    assert "They are not of the same weights" not in page
    assert run_hma("audit", run).code == 0
    opened = Run.open(run)
    audit = read_audits(opened)["test"]
    split, rest = prepared_from(opened.options).task.tests["test"], np.r_[0:10, 40:TESTED]
    said = all_logits(opened.learner("memory"), split, batch_size=64).argmax(dim=1).numpy()
    right = said == split.labels.numpy()
    assert audit.rows == 60
    assert f"{100 * right[rest].mean():.1f}%" in page


def test_a_forgotten_test_row_judges_again(run_hma, trained, folder):
    run = folder / "run"
    assert run_hma("remember", run, trained / "test.csv", "--yes").code == 0
    ids = Run.open(run).living.rows.ids.tolist()
    assert run_hma("forget", run, "--ids", ",".join(map(str, ids))).code == 0
    assert verdict_in(run_hma("report", run)) != "verdict: Nothing is claimed"


def test_a_memory_that_was_taught_the_training_file_promises_nothing(
    run_hma, refuses, trained, folder
):
    run, out = folder / "run", folder / "out.csv"
    asked = ("predict", run, trained / "test.csv", "-o", out, "--coverage", 0.9)
    before = run_hma(*asked)
    assert before.code == 0, before.err
    assert "by 50 validation rows" in before.out
    out.unlink()
    assert "holds 50 validation rows" in refuses("remember", run, trained / "rows.csv")
    ended = run_hma("remember", run, trained / "rows.csv", "--yes")
    assert ended.code == 0, ended.err
    assert "not scored: the memory was taught all 50 validation rows" in plain(
        Run.open(run).versions.version(1).scores[0].how
    )
    said = refuses(*asked)
    assert "needs at least 9 validation rows that do not vote, and of 50 the memory was" in said
    assert not out.exists()
    assert run_hma("report", run).code == 0
    page = (run / "report.html").read_text()
    assert "No coverage is promised: the memory was taught 50 of 50 validation rows" in page
    assert 'id="coverage"' not in page


def test_validation_rows_that_vote_calibrate_nothing(run_hma, trained, folder):
    run, out = folder / "run", folder / "out.csv"
    places = Run.open(run).places["validation"]
    taught = pandas.read_csv(trained / "rows.csv").iloc[places[:20]]
    assert run_hma("remember", run, write(folder, taught), "--yes").code == 0
    (score, *_) = Run.open(run).versions.version(1).scores
    assert (score.rows, score.count) == ("validation rows", 30)
    new = write(folder, table(7, 400))
    ended = run_hma("predict", run, new, "-o", out, "--coverage", 0.9)
    assert "coverage 0.9, by 30 validation rows" in ended.out
    unknown = (pandas.read_csv(out)["unknown"] == "yes").mean()
    assert unknown < 0.2  # a tenth is promised


def test_the_whole_run_taught_says_that_nothing_can_be_reported(run_hma, refuses, trained, folder):
    run = folder / "run"
    both = pandas.concat([pandas.read_csv(trained / name) for name in ("rows.csv", "test.csv")])
    assert run_hma("remember", run, write(folder, both), "--yes").code == 0
    assert "was taught all of its test and validation rows" in refuses("report", run)
    assert "neither test nor validation rows that its memory was not taught" in refuses(
        "audit", run
    )
    scored = run_hma("evaluate", run, trained / "test.csv")
    assert "90 of these rows were trained on or taught" in plain(scored.out)
