"""Graphs against PyG: parsing, features, batches."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hma.data import PreparationOptions, builtin, open_source, preparation_from_json, prepare
from hma.data.graph.preparation import LARGEST_ONE_HOT_DEGREE, GraphPreparation
from hma.data.preparation import Selection
from hma.errors import UserError
from hma.extras import needed
from hma.targets import Classes

geometric = needed("torch_geometric.data", "graphs")
loader = needed("torch_geometric.loader", "graphs")
tu_io = needed("torch_geometric.io", "graphs")
COUNTS = {
    "MUTAG": (188, {"-1": 63, "1": 125}, 7),
    "PROTEINS": (1113, {"1": 663, "2": 450}, 3),
    "IMDB-BINARY": (1000, {"0": 500, "1": 500}, None),
    "IMDB-MULTI": (1500, {"1": 500, "2": 500, "3": 500}, None),
    "NCI1": (4110, {"0": 2053, "1": 2057}, 37),
    "NCI109": (4127, {"0": 2048, "1": 2079}, 38),
    "DD": (1178, {"1": 691, "2": 487}, 82),
    "REDDIT-BINARY": (2000, {"-1": 1000, "1": 1000}, None),
}


def written(folder, name="TOY", *, raw=True, labels=("u", "v"), **parts):
    """Write two graphs: a path of three nodes with an edge listed twice and a loop, and a pair."""
    inside = folder / name / "raw" if raw else folder / name
    inside.mkdir(parents=True)
    files = {
        "A": "1, 2\n2, 1\n1, 2\n2, 3\n3, 2\n3, 3\n4, 5\n5, 4\n",
        "graph_indicator": "1\n1\n1\n2\n2\n",
        "graph_labels": "".join(f"{label}\n" for label in labels) if labels else None,
        **parts,
    }
    for part, text in files.items():
        if text is not None:
            (inside / f"{name}_{part}.txt").write_text(text)
    return folder / name


@pytest.mark.data
@pytest.mark.parametrize("name", COUNTS)
def test_real_data_has_the_published_counts(data_root, name):
    source = open_source(data_root / "TU" / name)
    graphs, classes, node_labels = COUNTS[name]
    assert len(source) == graphs
    assert {label: source.labels.count(label) for label in set(source.labels)} == classes
    found = None if source.node_labels is None else len(source.node_labels.unique())
    assert found == node_labels


@pytest.mark.data
@pytest.mark.parametrize("name", ["MUTAG", "PROTEINS", "IMDB-BINARY"])
def test_every_graph_is_what_pyg_parses(data_root, name):
    data, slices, _ = tu_io.read_tu_data(str(data_root / "TU" / name / "raw"), name)
    source = open_source(data_root / "TU" / name / "raw")
    preparation = GraphPreparation.fit(
        Selection(source, range(len(source))), ("a",), Classes(1), PreparationOptions()
    )
    store = preparation.store(source)
    for place in range(len(source)):
        first, last = slices["edge_index"][place : place + 2].tolist()
        found = store.cut(torch.tensor([place]))
        torch.testing.assert_close(found.edge_index, data.edge_index[:, first:last], rtol=0, atol=0)
        if data.x is not None:
            first, last = slices["x"][place : place + 2].tolist()
            torch.testing.assert_close(found.x, data.x[first:last], rtol=0, atol=0)


@pytest.mark.data
def test_a_batch_is_what_the_loader_of_pyg_collates(data_root):
    split = builtin("tu:MUTAG", seed=0, data_root=data_root).task.train
    alone = [split.batch(torch.tensor([place])).x for place in range(len(split))]
    data = [geometric.Data(x=one.x, edge_index=one.edge_index) for one in alone]
    first = 0
    for expected in loader.DataLoader(data, batch_size=32):
        places = torch.arange(first, first + expected.num_graphs)
        found = split.batch(places)
        assert type(found.x) is type(expected)
        assert found.x.num_graphs == expected.num_graphs
        for part in ("x", "edge_index", "batch", "ptr"):
            torch.testing.assert_close(found.x[part], expected[part], rtol=0, atol=0)
        assert found.to("cpu").x.num_graphs == expected.num_graphs
        first += expected.num_graphs
    assert first == len(split)


def fitted(source, places, **options):
    return GraphPreparation.fit(
        Selection(source, places), ("u", "v"), Classes(2), PreparationOptions(**options)
    )


graph_sizes = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@settings(deadline=None, max_examples=40)
@given(sizes=graph_sizes, seed=st.integers(0, 1000), data=st.data())
def test_any_choice_of_graphs_is_cut_as_pyg_would_collate_it(tmp_path_factory, sizes, seed, data):
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *sizes])
    edges = [
        (start + rng.integers(1, size + 1), start + rng.integers(1, size + 1))
        for start, size in zip(starts, sizes, strict=False)
        for _ in range(rng.integers(0, 8))
    ]
    folder = written(
        tmp_path_factory.mktemp("graphs"),
        labels=["uv"[place % 2] for place in range(len(sizes))],
        A="".join(f"{a}, {b}\n" for a, b in edges),
        graph_indicator="".join(f"{g}\n" * size for g, size in enumerate(sizes, start=1)),
        node_labels="".join(f"{label}\n" for label in rng.integers(3, 6, starts[-1])),
    )
    source = open_source(folder)
    preparation = fitted(source, range(len(source)))
    split = preparation.split(source)
    places = data.draw(st.lists(st.sampled_from(range(len(sizes))), max_size=8))
    found = split.batch(torch.tensor(places, dtype=torch.long))
    kinds = sorted(set(source.node_labels.flatten().tolist()))
    expected = []
    for place in places:
        start, size = starts[place], sizes[place]
        inside = sorted({(a - 1 - start, b - 1 - start) for a, b in edges
                         if start < a <= start + size and a != b})  # fmt: skip
        nodes = source.node_labels[start : start + size, 0].tolist()
        expected.append(
            geometric.Data(
                x=torch.eye(len(kinds))[[kinds.index(node) for node in nodes]],
                edge_index=torch.tensor(inside, dtype=torch.long).view(-1, 2).T,
            )
        )
    assert found.ids.tolist() == places
    assert found.x.num_graphs == len(places)
    if places:
        whole = geometric.Batch.from_data_list(expected)
        for part in ("x", "edge_index", "batch", "ptr"):
            torch.testing.assert_close(found.x[part], whole[part], rtol=0, atol=0)


@pytest.mark.parametrize("raw", [True, False])
def test_edges_are_listed_once_and_loops_dropped(tmp_path, raw):
    source = open_source(written(tmp_path, raw=raw))
    assert (source.name, len(source), source.labels) == ("TOY", 2, ["u", "v"])
    assert source.edges.tolist() == [[0, 1, 1, 2, 0, 1], [1, 0, 2, 1, 1, 0]]
    assert source.describe(0) == "graph 0 (3 nodes, 4 edges)"
    assert source.out_degrees().tolist() == [1, 2, 1, 1, 1]
    assert source.thumbnail(0) is None


def test_nodes_of_a_graph_need_not_stand_together(tmp_path):
    mixed = open_source(
        written(
            tmp_path,
            A="1, 3\n3, 1\n3, 5\n5, 3\n2, 4\n4, 2\n",
            graph_indicator="1\n2\n1\n2\n1\n",
            node_labels="7\n8\n9\n8\n7\n",
        )
    )
    assert mixed.edges.tolist() == [[0, 1, 1, 2, 0, 1], [1, 0, 2, 1, 1, 0]]
    assert mixed.node_labels.flatten().tolist() == [7, 9, 7, 8, 8]


def test_degrees_are_one_hot_with_the_width_of_training(tmp_path):
    source = open_source(written(tmp_path))
    whole = fitted(source, [0, 1])
    assert whole.shape == (3,)
    assert whole.split(source, [0]).batch(torch.tensor([0])).x.x.argmax(1).tolist() == [1, 2, 1]
    pair = fitted(source, [1])
    assert pair.shape == (2,)  # the largest degree in training is 1 and stands for all above it
    assert pair.split(source, [0]).batch(torch.tensor([0])).x.x.tolist() == [[0, 1]] * 3


def test_degrees_too_large_for_one_hot_are_standardised(tmp_path):
    leaves = LARGEST_ONE_HOT_DEGREE
    star = "".join(f"1, {leaf}\n{leaf}, 1\n" for leaf in range(2, leaves + 2))
    indicator = "1\n" * (leaves + 1) + "2\n"
    source = open_source(written(tmp_path, A=star, graph_indicator=indicator))
    preparation = fitted(source, [0])
    assert preparation.shape == (1,)
    degrees = np.array([leaves] + [1] * leaves, dtype=np.float64)
    expected = (degrees - degrees.mean()) / degrees.std()
    found = preparation.split(source, [0]).batch(torch.tensor([0])).x.x[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    again = preparation_from_json(json.loads(json.dumps(preparation.to_json())))
    assert again == preparation
    lonely = again.split(source, [1]).batch(torch.tensor([0])).x
    np.testing.assert_allclose(lonely.x.item(), -degrees.mean() / degrees.std(), rtol=1e-5)
    assert lonely.edge_index.shape == (2, 0)


def test_an_unseen_node_label_is_all_zeros(tmp_path):
    source = open_source(written(tmp_path, node_labels="4\n4\n9\n6\n4\n"))
    preparation = fitted(source, [0])
    assert preparation.node_labels == ((4, 9),)
    found = preparation.split(source, [1, 0]).batch(torch.tensor([0, 1])).x.x
    assert found.tolist() == [[0, 0], [1, 0], [1, 0], [1, 0], [0, 1]]


def test_several_labels_and_attributes_stand_side_by_side(tmp_path):
    parts = {
        "node_labels": "0, 5\n1, 5\n0, 6\n1, 6\n0, 7\n",
        "node_attributes": "1.0, 10\n2.0, 10\n3.0, 10\n7.5, 11\n0.5, 9\n",
    }
    source = open_source(written(tmp_path, **parts))
    plain = fitted(source, [0])
    assert plain.shape == (4,)  # with labels there, attributes are used only if asked for
    preparation = fitted(source, [0], node_attributes=True)
    found = preparation.split(source).batch(torch.tensor([0])).x.x
    scale = np.std([1, 2, 3])
    expected = [[1, 0, 1, 0, -1 / scale, 0], [0, 1, 1, 0, 0, 0], [1, 0, 0, 1, 1 / scale, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert preparation_from_json(json.loads(json.dumps(preparation.to_json()))) == preparation


def test_attributes_alone_are_used(tmp_path):
    source = open_source(written(tmp_path, node_attributes="1\n2\n3\n4\n5\n"))
    assert fitted(source, [0, 1]).shape == (1,)
    degrees = fitted(source, [0, 1], node_attributes=False)
    assert degrees.degrees == 3


def test_attributes_that_are_not_there_cannot_be_asked_for(tmp_path):
    with pytest.raises(UserError, match=r"TOY has no node attributes; leave node_attributes out"):
        GraphPreparation.fit(
            Selection(open_source(written(tmp_path)), [0]),
            ("u",),
            Classes(2),
            PreparationOptions(node_attributes=True),
        )


def test_without_labels_graphs_can_be_predicted(tmp_path):
    known = open_source(written(tmp_path, node_labels="1\n1\n2\n1\n2\n"))
    preparation = fitted(known, [0, 1])
    bare = open_source(written(tmp_path, "NEW", labels=None, node_labels="2\n2\n2\n1\n3\n"))
    assert bare.labels is None
    batches = list(preparation.stream(bare, 1))
    assert [batch.y.tolist() for batch in batches] == [[-1], [-1]]
    assert [batch.ids.tolist() for batch in batches] == [[0], [1]]
    with pytest.raises(UserError, match=r"NEW has no labels to learn from; add NAME_graph_labels"):
        prepare(bare, seed=0)
    unlabelled = open_source(written(tmp_path, "BARE", labels=None))
    with pytest.raises(UserError, match=r"BARE has 0 labels at a node, the training graphs had 1"):
        preparation.split(unlabelled)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"A": "1, 9\n"}, r"must name nodes from 1 to 5, got \[1, 9\] in line 1"),
        ({"A": "0, 1\n"}, r"must name nodes from 1 to 5"),
        ({"A": "1, 2\n3, 4\n"}, r"joins nodes of two graphs, \[3, 4\] in line 2"),
        ({"A": "1\n2\n"}, "must hold two node numbers a line, got 1"),
        ({"A": "a, b\n"}, "TOY_A.txt cannot be read as numbers"),
        ({"graph_indicator": None}, "TOY_graph_indicator.txt is missing or empty"),
        ({"graph_indicator": "0\n0\n0\n1\n1\n"}, "must count graphs from 1, got 0"),
        ({"node_labels": "1\n2\n"}, "TOY_node_labels.txt must have 5 lines.* got 2"),
        ({"graph_labels": "1\n"}, "a line for each of 2 graphs, got 1"),
        ({"graph_labels": "1\nNaN\n"}, "no label in 1 of 2 rows, first in row 1"),
        ({"node_attributes": "1\nnan\n1\n1\n1\n"}, "holds NaN or infinity"),
    ],
)
def test_a_damaged_folder_names_file_line_and_rule(tmp_path, parts, message):
    with pytest.raises(UserError, match=message):
        open_source(written(tmp_path, **parts))


def test_graphs_without_any_edge_are_graphs(tmp_path):
    source = open_source(written(tmp_path, A=""))
    assert source.edges.shape == (2, 0)
    preparation = fitted(source, [0, 1])
    assert preparation.split(source).batch(torch.tensor([1])).x.x.tolist() == [[1.0], [1.0]]


@pytest.mark.data
def test_splits_share_one_store(data_root):
    task = builtin("tu:MUTAG", seed=0, data_root=data_root).task
    assert task.train.store is task.validation.store is task.tests["test"].store
