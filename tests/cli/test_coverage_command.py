"""``hma predict --coverage``: what it writes beside each answer, and what it refuses."""

import numpy as np
import pandas
import pytest

from hma.runs import RunOptions, train
from hma.training import Recipe, SilentProgress
from hma.vote.config import VoteConfig

FAR = 1000.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of three clear classes, and rows to ask about: three like them, one far from all."""
    folder = tmp_path_factory.mktemp("coverage")
    draw = np.random.default_rng(0)
    y = np.arange(120) % 3
    frame = pandas.DataFrame(6 * np.eye(3)[y] + draw.normal(size=(120, 3)), columns=[*"abc"])
    frame.assign(y=np.array(["red", "green", "blue"])[y]).to_csv(folder / "rows.csv", index=False)
    asked = np.concatenate([6 * np.eye(3), [[FAR, FAR, -FAR]]])
    pandas.DataFrame(asked, columns=[*"abc"]).to_csv(folder / "new.csv", index=False)
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("y",),
        backbone="mlp",
        recipe=Recipe(epochs=20, lr=1e-2),
        config=VoteConfig(),
    )
    train(options, folder / "run", compare=False, progress=SilentProgress())
    return folder


def test_rows_like_those_of_training_get_sets_and_one_far_away_is_unknown(
    folder, run_hma, tmp_path
):
    output = tmp_path / "out.csv"
    ended = run_hma("predict", folder / "run", folder / "new.csv", "-o", output, "--coverage", 0.8)
    assert ended.code == 0, ended.err
    said = pandas.read_csv(output)
    assert said["label"].tolist()[-1] == "unknown"
    assert said["unknown"].tolist()[-1] in (True, "yes", 1)
    for name, one in zip(("red", "green", "blue"), said["labels"], strict=False):
        assert name in one.split(" | ")


def test_a_coverage_that_no_rows_could_promise_is_refused_in_one_line(folder, refuses, tmp_path):
    asked = ("predict", folder / "run", folder / "new.csv", "-o", tmp_path / "out.csv")
    assert "validation rows" in refuses(*asked, "--coverage", 0.9999)
    assert "coverage" in refuses(*asked, "--coverage", 1.5)
    assert not (tmp_path / "out.csv").exists()
