"""The model card of a run against its records."""

import re
import shutil

import numpy as np
import pytest

from hma.metrics import METRICS
from hma.questions.audit import score_text
from hma.runs import MEMORY, MIXTURE, Run, RunOptions, title, train, write_card
from hma.runs.audits import read_audits
from hma.training import SilentProgress, UserRecipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    draw = np.random.default_rng(0)
    y = draw.integers(2, size=120)
    x = draw.normal(size=(120, 3)) + 2 * y[:, None]
    lines = ["a,b,c,kind", *(f"{a},{b},{c},<{k}|" for (a, b, c), k in zip(x, y, strict=True))]
    (folder / "rows.csv").write_text("\n".join(lines))
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("kind",),
        backbone="mlp",
        recipe=UserRecipe(epochs=1).fixed(),
    )
    return train(options, folder / "flowers", progress=SilentProgress())


@pytest.fixture(scope="module")
def text(run):
    return write_card(run, run.folder / "README.md").read_text()


def test_scores_of_the_card_are_those_of_the_records(run, text):
    shown = {
        line.strip("| ").split(" | ")[0]: line.strip("| ").split(" | ")[1:]
        for line in text.splitlines()
        if line.startswith("| ")
    }
    metrics = shown["who answers"]
    names = {METRICS[name].title: name for name in METRICS}
    for which in run.candidates:
        scores = run.record(which).tests["test"]["alone"]
        cells = shown[title(which, run.preparation.target)]
        wanted = [score_text(METRICS[names[m]], scores[names[m]]) for m in metrics]
        assert cells == wanted, which
    mixed = run.deployed.tests["test"]
    wanted = [score_text(METRICS[names[m]], mixed[names[m]]) for m in metrics]
    assert shown["**the mixture** (deployed)"] == wanted
    assert run.deployed.which == MIXTURE


def test_the_card_says_what_the_run_was_given_and_what_its_audit_found(run, text):
    rows = ", ".join(f"{len(places)} {name}" for name, places in run.places.items())
    assert f"| rows | {rows} |" in text
    stored = len(run.places["train"] + run.places["validation"])  # all rows train
    assert f"| stored rows | {stored} (one for each sample)" in text
    assert f"| learned from | {stored} training and validation rows |" in text
    assert "| data | rows.csv (table) |" in text
    assert str(run.folder.parent) not in text, "where it was trained is nobody's business"
    assert read_audits(run)["test"].verdict in text


def test_labels_stay_in_their_cells(text):
    assert r"one of 2 classes: &lt;0\|, &lt;1\|" in text


def test_the_code_block_of_the_card_opens_the_run(run, text, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(run.folder.parent)
    found = {}
    exec(code, found)
    assert sorted(found["learner"].learners) == sorted(run.deployed.mixed)


def test_the_hub_reads_the_front_matter(text):
    hub = pytest.importorskip("huggingface_hub", reason="pip install 'hma-torch[hub]'")
    assert hub.ModelCard(text).data.library_name == "hma-torch"


def test_another_answer_is_named_as_deployed(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "copy")
    train(run.options, folder, deploy=MEMORY, progress=SilentProgress())
    text = write_card(Run.open(folder), tmp_path / "card.md").read_text()
    assert "**the memory** (deployed)" in text
    assert "| who answers | the memory 100% |" in text
