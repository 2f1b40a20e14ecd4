"""Built-in data that is fetched when asked for, and only then."""

import zipfile

import pytest

import hma.data.sets.tu
from hma.training import Record

QUICK = ["--epochs", "2", "--memory-size", "16", "--slots-per-class", "2", "--no-report"]


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder that stands for the internet, with forty graphs: paths and rings of four."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    edges, graph_of = [], []
    for graph in range(40):
        first = 4 * graph + 1
        pairs = [(first + i, first + i + 1) for i in range(3)]
        pairs += [(first + 3, first)] if graph % 2 else []
        edges += [pair for a, b in pairs for pair in ((a, b), (b, a))]
        graph_of += [graph + 1] * 4
    with zipfile.ZipFile(folder / "RINGS.zip", "w") as file:
        file.writestr("RINGS/RINGS_A.txt", "".join(f"{a}, {b}\n" for a, b in edges))
        file.writestr("RINGS/RINGS_graph_indicator.txt", "".join(f"{g}\n" for g in graph_of))
        file.writestr("RINGS/RINGS_graph_labels.txt", "".join(f"{g % 2}\n" for g in range(40)))
    monkeypatch.setattr(hma.data.sets.tu, "ADDRESS", f"{folder.as_uri()}/")
    return folder


def test_built_in_data_is_fetched_when_asked_for(shelf, run_hma, refuses, tmp_path):
    command = ["train", "tu:RINGS", *QUICK, "--data-root", tmp_path / "data", "-o", tmp_path / "r"]
    said = refuses(*command)
    assert "tu:RINGS is missing" in said
    assert "pass --download to hma train" in said
    ended = run_hma(*command, "--download")
    assert ended.code == 0, ended.err
    (shelf / "RINGS.zip").unlink()
    assert run_hma(*command).code == 0  # fetching is no part of what a run is
    record = Record.read(tmp_path / "r" / "memory" / "record.json")
    assert record.setup["task"]["rows"] == {"train": 28, "validation": 4, "test": 8}


def test_a_file_of_ones_own_cannot_be_fetched(refuses, tmp_path):
    said = refuses("train", tmp_path / "mine.npz", "--download", *QUICK, "-o", tmp_path / "run")
    assert "download is for built-in data such as mnist or tu:PROTEINS" in said
    assert "mine.npz" in said
