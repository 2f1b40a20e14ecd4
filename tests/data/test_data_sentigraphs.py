"""Archives of DIG against the way DIG reads them; their pickles are never opened."""

import json
import pickle
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from hma.data import builtin, open_source
from hma.errors import UserError

NAME = "Graph-Twitter"
SIZES = [3, 1, 4] * 8
ARCS = {3: [(0, 1), (1, 2)], 1: [], 4: [(1, 0), (1, 2), (2, 3)]}


def archive(root, ending=".npy", **parts):
    """Write graphs of three, one and four words as DIG's archive has them."""
    folder = root / NAME / "raw"
    folder.mkdir(parents=True)
    starts = np.cumsum([0, *SIZES])
    features = np.random.default_rng(0).normal(size=(starts[-1], 5)).astype(np.float32)
    edges = [(a + s, b + s) for n, s in zip(SIZES, starts, strict=False) for a, b in ARCS[n]]
    texts = {
        "edge_index": "".join(f"{a} {b}\n" for a, b in edges),
        "node_indicator": "".join(f"{g + 1}\n" * size for g, size in enumerate(SIZES)),
        "graph_labels": "".join(f"{g % 2}\n" for g in range(len(SIZES))),
        "split_indices": "".join(f"{g * 3 // len(SIZES)}\n" for g in range(len(SIZES))),
        **parts,
    }
    for part, text in texts.items():
        if text is not None:
            (folder / f"{NAME}_{part}.txt").write_text(text)
    tokens = {str(g): ["so"] * size for g, size in enumerate(SIZES)}
    (folder / f"{NAME}_sentence_tokens.json").write_text(json.dumps(tokens))
    file = folder / f"{NAME}_node_features{ending}"
    if ending == ".npy":
        np.save(file, features)
    elif ending == ".npz":
        np.savez(file, features)
    elif ending == ".safetensors":
        save_file({"x": features}, file)
    else:
        file.write_bytes(pickle.dumps(features))
    return features


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
def test_graphs_are_those_that_dig_reads(tmp_path, ending):
    features = archive(tmp_path, ending)
    prepared = builtin("graph-twitter", seed=0, data_root=tmp_path)
    first = 0
    rows = {place: n for n, place in enumerate(prepared.places["train"])}
    for place, size in enumerate(SIZES[: len(rows)]):
        batch = prepared.task.train.batch(torch.tensor([rows[place]])).x
        # every arc reversed, then every arc as it is listed
        both = [(b, a) for a, b in ARCS[size]] + ARCS[size]
        assert [tuple(edge) for edge in batch.edge_index.T.tolist()] == both
        np.testing.assert_array_equal(batch.x.numpy(), features[first : first + size])
        first += size
    assert {name: len(rows) for name, rows in prepared.places.items()} == {
        "train": 8, "validation": 8, "test": 8
    }  # fmt: skip
    assert prepared.source.describe(0) == "so so so"
    assert prepared.task.facts["node features"] == "of the archive Graph-Twitter, 5 wide"


def test_a_pickle_is_refused_with_the_command_that_converts_it(tmp_path):
    features = archive(tmp_path, ".pkl")
    with pytest.raises(UserError, match="is a pickle, which could run any code") as raised:
        builtin("graph-twitter", seed=0, data_root=tmp_path)
    found = re.search(r"convert it once in (.*): (python -c .*)$", str(raised.value))
    command = [sys.executable, *shlex.split(found[2])[1:]]
    subprocess.run(command, cwd=found[1], check=True)
    source = open_source("graph-twitter", data_root=tmp_path)
    np.testing.assert_array_equal(source.node_vectors.numpy(), features)


def test_an_archive_without_splits_is_divided_by_seed(tmp_path):
    archive(tmp_path, split_indices=None)
    prepared = builtin("graph-twitter", seed=0, data_root=tmp_path)
    assert sum(map(len, prepared.places.values())) == len(SIZES)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"edge_index": "0 1\n0 99\n"}, "must name nodes from 0 to 63, got 0 to 99"),
        ({"edge_index": "0 1\n0 3\n"}, "joins nodes of two graphs in line 2"),
        ({"edge_index": "0 1 2\n"}, "must have 2 numbers a line, got 3"),
        ({"edge_index": "a b\n"}, "cannot be read as numbers"),
        ({"node_indicator": "1\n" * 64, "graph_labels": ""}, "a line for each of 1 graphs, got 0"),
        ({"node_indicator": "2\n1\n"}, "must name the graph of each node from 1 on, in order"),
        ({"split_indices": "0\n7\n"}, "must have 0, 1 or 2 for each of 24 graphs"),
        ({"node_indicator": None}, "node_indicator.txt does not exist"),
    ],
)
def test_a_damaged_archive_is_named(tmp_path, parts, said):
    archive(tmp_path, **parts)
    with pytest.raises(UserError, match=said):
        builtin("graph-twitter", seed=0, data_root=tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (np.zeros((3, 5), np.float32), r"floats of shape \(64, \*\), a row for each node, got"),
        (np.zeros((64, 5), np.int64), "got torch.int64 of shape"),
        (np.array([{}] * 64, dtype=object), "cannot be read as an array"),
        (None, "cannot be read as an array"),
    ],
)
def test_features_that_do_not_fit_are_refused(tmp_path, content, said):
    archive(tmp_path)
    file = tmp_path / NAME / "raw" / f"{NAME}_node_features.npy"
    if content is None:
        file.write_bytes(file.read_bytes()[:200])
    else:
        np.save(file, content, allow_pickle=True)
    with pytest.raises(UserError, match=said):
        builtin("graph-twitter", seed=0, data_root=tmp_path)
