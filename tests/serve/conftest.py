"""A small run of a table behind the endpoints."""

import shutil

import numpy as np
import pandas
import pytest
from starlette.testclient import TestClient

from hma.runs import Run, RunOptions, train
from hma.serve.app import app_of
from hma.serve.service import Service
from hma.training import Recipe, SilentProgress

HERE = "http://127.0.0.1"


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of two classes, and rows to ask about: of both, and of a third."""
    folder = tmp_path_factory.mktemp("served")
    draw = np.random.default_rng(0)
    kinds = np.arange(78) % 3
    frame = pandas.DataFrame(draw.normal(size=(78, 3)) + 4 * np.eye(3)[kinds], columns=[*"abc"])
    towns = np.array(["Oslo", "Rome", None])[draw.integers(3, size=78)]
    frame = frame.round(3).assign(town=towns, kind=np.array(["up", "down", "odd"])[kinds])
    frame[frame.kind != "odd"].to_csv(folder / "rows.csv", index=False)
    frame[:12].drop(columns="kind").to_csv(folder / "asked.csv", index=False)
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("kind",),
        backbone="mlp",
        recipe=Recipe(epochs=1, batch_size=16),
    )
    train(options, folder / "run", progress=SilentProgress())
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def service(folder):
    return Service(Run.open(folder))


@pytest.fixture
def client(service):
    with TestClient(app_of(service), base_url=HERE, raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture
def rows(trained):
    """Rows as JSON has them."""
    frame = pandas.read_csv(trained / "asked.csv")
    return [
        {name: None if pandas.isna(cell) else cell for name, cell in row.items()}
        for row in frame.to_dict("records")
    ]
