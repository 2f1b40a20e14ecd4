"""Data sets of the TU collection by name: PyG's loader as oracle, names, cache, bad files."""

import os
import warnings

import numpy as np
import pytest
import torch

from hma.backbones import GIN
from hma.data import PreparationOptions, builtin, open_source, prepare
from hma.data.graph import source as tu_folder
from hma.data.graph.preparation import GraphPreparation
from hma.data.preparation import Selection
from hma.data.sets.tu import tu_source
from hma.errors import UserError
from hma.extras import needed
from hma.targets import Classes

datasets = needed("torch_geometric.datasets", "graphs")
transforms = needed("torch_geometric.transforms", "graphs")
PATH = {"A": "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n", "graph_indicator": "1\n1\n2\n2\n2\n3\n",
        "graph_labels": "5\n7\n7\n"}  # fmt: skip


def written(folder, name="TOY", **parts):
    inside = folder / name / "raw"
    inside.mkdir(parents=True)
    for part, text in (PATH | parts).items():
        if text is not None:
            (inside / f"{name}_{part}.txt").write_text(text)
    return folder / name


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Keep what is read in a folder of its own, and small files too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tu_folder, "KEPT_FROM", 0)
    return tmp_path / "cache" / "hma" / "graphs"


@pytest.mark.data
@pytest.mark.parametrize("name", ["IMDB-MULTI", "NCI109", "MUTAG"])
def test_graphs_features_and_labels_are_those_of_pyg(data_root, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "raw").symlink_to(data_root / "TU" / name / "raw")
    source = open_source(data_root / "TU" / name)
    widest = None if source.node_labels is not None else int(source.out_degrees().max())
    one_hot = None if widest is None else transforms.OneHotDegree(widest)
    oracle = datasets.TUDataset(str(tmp_path), name, transform=one_hot)
    every = range(len(source))
    preparation = GraphPreparation.fit(
        Selection(source, every), ("a",), Classes(1), PreparationOptions()
    )
    store = preparation.store(source)
    classes = sorted(set(map(int, source.labels)))
    assert len(source) == len(oracle)
    for place, graph in enumerate(oracle):
        found = store.cut(torch.tensor([place]))
        assert torch.equal(found.edge_index, graph.edge_index)
        assert torch.equal(found.x, graph.x)
        assert classes.index(int(source.labels[place])) == int(graph.y)


@pytest.mark.data
def test_reddit_has_its_nodes_and_both_names(data_root):
    source = tu_source("REDD-B", data_root)
    assert source.name == "REDDIT-BINARY"
    assert int(source.nodes_before[-1]) == 859_254


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("REDD-M5", "tu:REDDIT-MULTI-5K is missing: looked for .*REDDIT-MULTI-5K.raw; put the data "
                    "of https://www.chrsmrrs.com/graphkerneldatasets/REDDIT-MULTI-5K.zip"),
        ("REDD-M12", "tu:REDDIT-MULTI-12K is missing: "),
        ("IMDB-B", "tu:IMDB-BINARY is missing: "),
        ("proteins", "did you mean 'PROTEINS'"),
        ("NCI108", "did you mean 'NCI109'"),
        ("REDDIT-MULTI5K", "did you mean 'REDDIT-MULTI-5K'"),
        ("TOYS", "did you mean 'TOY'"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_says_where_it_belongs_or_what_was_meant(tmp_path, name, said):
    written(tmp_path / "TU")
    with pytest.raises(UserError, match=said):
        builtin(f"tu:{name}", seed=0, data_root=tmp_path)


# --------------------------------------------------------------------------------- the cache


def same(one, other):
    parts = ("nodes_before", "edges_before", "edges", "node_labels", "edge_labels")
    return all(torch.equal(getattr(one, part), getattr(other, part)) for part in parts)


def with_labels(folder):
    return written(folder, node_labels="1\n2\n1\n2\n1\n2\n", edge_labels="0\n0\n1\n1\n0\n0\n")


def test_what_was_read_is_read_from_the_cache(tmp_path, cache, monkeypatch):
    folder = with_labels(tmp_path)
    before = open_source(folder)
    assert len(list(cache.glob("*.safetensors"))) == 1
    monkeypatch.setattr(tu_folder.GraphFolder, "_read_edges", None)  # never called again
    after = open_source(folder)
    assert same(before, after)
    assert (after.labels, after.fingerprint()) == (before.labels, before.fingerprint())


def test_a_file_that_changes_is_read_again(tmp_path, cache):
    folder = with_labels(tmp_path)
    assert open_source(folder).edges.shape == (2, 6)
    file = folder / "raw" / "TOY_A.txt"
    file.write_text("1, 2\n2, 1\n3, 4\n4, 3\n3, 5\n5, 3\n")
    os.utime(file, ns=(1, 1))
    assert open_source(folder).edges[:, 2:].tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b[:-4] + b"\1\1\1\1"])
def test_a_damaged_cache_is_made_again(tmp_path, cache, damage):
    folder = with_labels(tmp_path)
    before = open_source(folder)
    (file,) = cache.glob("*.safetensors")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(UserWarning, match="is damaged: .*its graphs are made again"):
        after = open_source(folder)
    assert same(before, after)
    assert same(before, open_source(folder))  # without a warning, which would be an error


def test_data_loads_where_nothing_can_be_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = written(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = open_source(folder)  # small files are not kept
    monkeypatch.setattr(tu_folder, "KEPT_FROM", 0)
    with pytest.warns(UserWarning, match="graphs are made again next time: cannot write"):
        after = open_source(folder)
    assert torch.equal(before.edges, after.edges)


# --------------------------------------------------------------------------------- bad input


def test_labels_need_not_begin_at_0_and_odd_graphs_are_graphs(tmp_path):
    """An isolated node, a graph of one node and one without edges pass a network."""
    many = "".join(f"{graph}\n" * (graph % 3 + 1) for graph in range(1, 13))
    labels = "".join(f"{5 + 2 * (graph % 2)}\n" for graph in range(1, 13))
    folder = written(tmp_path, A="1, 2\n2, 1\n", graph_indicator=many, graph_labels=labels)
    prepared = prepare(open_source(folder), seed=0)
    assert prepared.task.classes == ("5", "7")
    assert set(prepared.task.train.labels.tolist()) == {0, 1}
    source = prepared.source
    lonely = source.nodes_before.diff() == 1
    assert lonely.any()
    preparation = GraphPreparation.fit(
        Selection(source, range(len(source))), ("5", "7"), Classes(2), PreparationOptions()
    )
    found = preparation.split(source).batch(torch.arange(len(source))).x
    degrees = np.zeros(int(source.nodes_before[-1]), dtype=int)
    degrees[:2] = 1
    assert found.x.argmax(dim=1).tolist() == degrees.tolist()
    features = GIN(found.x.shape[1], width=4, num_layers=2).eval()(found)
    assert features.shape == (12, 4)
    assert features.isfinite().all()


@pytest.mark.parametrize("part", ["A", "graph_indicator", "graph_labels", "node_labels"])
def test_a_file_cut_anywhere_is_read_or_ends_with_one_line(tmp_path, part):
    whole = {**PATH, "node_labels": "10\n20\n10\n20\n10\n20\n"}[part]
    for end in range(len(whole)):
        parts = {"node_labels": "10\n20\n10\n20\n10\n20\n"} | {part: whole[:end]}
        folder = written(tmp_path / str(end), **parts)
        try:
            source = open_source(folder)
        except UserError as error:
            assert "TOY_" in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert len(source) == 3
            assert source.edges.shape[1] <= 6


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("A", "TOY holds no graphs: neither raw/NAME_A.txt nor NAME_A.txt|of no kind|no image"),
        ("graph_indicator", "TOY_graph_indicator.txt is missing or empty"),
        ("graph_labels", "TOY has no labels to learn from; add NAME_graph_labels.txt"),
    ],
)
def test_a_missing_file_is_named(tmp_path, part, said):
    with pytest.raises(UserError, match=said):
        prepare(open_source(written(tmp_path, **{part: None})), seed=0)
