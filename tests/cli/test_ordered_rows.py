"""Predicting rows that see each other and come in an order: one line says so."""

import numpy as np
import pytest

from hma import HMAConfig, load
from hma.runs import Run, RunOptions, train
from hma.training import SilentProgress, UserRecipe

pytestmark = pytest.mark.filterwarnings("default::hma.questions.row_order.OrderedRowsWarning")


def write_rows(path, order):
    draw = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = draw.normal(size=(120, 3)) + 4 * y[:, None]
    rows = [(*x[place], y[place]) for place in order(y)]
    path.write_text("\n".join(["a,b,c,label", *(",".join(map(str, row)) for row in rows)]))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ordered")
    options = RunOptions(
        source=str(write_rows(folder / "rows.csv", lambda y: np.arange(len(y)))),
        target=("label",),
        config=HMAConfig(queue_size=8, slots_per_class=2, label_dim=8),
        recipe=UserRecipe(epochs=3).fixed(),
    )
    train(options, folder / "run", compare=False, progress=SilentProgress())
    return folder / "run"


def shuffled(y):
    return np.random.default_rng(1).permutation(len(y))


@pytest.mark.parametrize("context", ["batch", None])
@pytest.mark.parametrize("order", [np.argsort, shuffled])
def test_only_rows_in_an_order_that_see_each_other_are_warned_of(
    run, run_hma, tmp_path, context, order
):
    rows = write_rows(tmp_path / "rows.csv", order)
    how = [] if context is None else ["--context", context]
    ended = run_hma("predict", run, rows, "-o", tmp_path / "said.csv", "--with", "memory", *how)
    assert ended.code == 0, ended.err
    said = [line for line in ended.err.splitlines() if "come in an order" in line]
    if context == "batch" and order is np.argsort:
        (line,) = said
        assert line.startswith("hma: context 'batch' lets rows see those beside them")
        assert line.endswith("over 120 rows, by chance by less than 0.37; use context 'alone', or "
                             "shuffle the rows")  # fmt: skip
    else:
        assert said == []
    assert len((tmp_path / "said.csv").read_text().splitlines()) == 121


def test_a_model_that_was_trained_for_use_answers_each_row_by_itself(run):
    found = Run.open(run)
    model = load(run / "memory" / "model", found.learner("memory").module.backbone)
    assert model.sees_batch
    assert model.context == "alone"
