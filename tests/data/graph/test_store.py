"""Batches cut from a store against PyG's own collation, and graphs with parts taken out."""

import pytest
import torch
from graph_cases import WIDTH, laid_split, random_split

from hma.backbones import backbone_for
from hma.data import (
    Graphs,
    GraphStore,
    PreparationOptions,
    builtin,
    open_source,
    preparation_from_json,
)
from hma.data.graph.preparation import GraphPreparation
from hma.data.graph.store import DegreeFeatures, joined, with_edges, with_nodes
from hma.data.preparation import Selection
from hma.errors import UserError
from hma.extras import needed
from hma.targets import Classes

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)
geometric = needed("torch_geometric.data", "graphs")
Batch, Data, InMemoryDataset = geometric.Batch, geometric.Data, geometric.InMemoryDataset
OneHotDegree = needed("torch_geometric.transforms", "graphs").OneHotDegree
subgraph = needed("torch_geometric.utils", "graphs").subgraph


class Pairs(Data):
    """A graph that also names pairs of its own nodes, one pair a row."""

    def __inc__(self, key, value, *arguments, **options):
        if key == "pairs":
            return self.num_nodes
        return super().__inc__(key, value, *arguments, **options)


def graph(seed, kind=Data):
    generator = torch.Generator().manual_seed(seed)
    nodes, edges = 3 + seed % 4, 2 * (seed % 5)
    return kind(
        x=torch.rand(nodes, 4, generator=generator),
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        edge_attr=torch.rand(edges, 3, generator=generator),
        pos=torch.rand(nodes, 3, generator=generator),
        face=torch.randint(nodes, (3, seed % 3), generator=generator),
        pairs=torch.randint(nodes, (2, 2), generator=generator),
        y=torch.rand(1, 5, generator=generator),
        energy=torch.tensor(float(seed)),
        charge=seed,
        smiles=f"C{seed}",
    )


@pytest.mark.parametrize("kind", [Data, Pairs])
def test_a_batch_holds_every_key_as_pyg_collates_it(kind):
    graphs = [graph(seed, kind) for seed in range(9)]
    store = GraphStore.of(graphs)
    for places in ([0], [4, 2, 2, 8], list(range(9))):
        found = store.cut(torch.tensor(places))
        expected = Batch.from_data_list([graphs[place] for place in places])
        assert set(found.keys()) == set(expected.keys())
        assert found.num_graphs == expected.num_graphs
        for key in expected.keys():  # noqa: SIM118
            if isinstance(expected[key], torch.Tensor):
                torch.testing.assert_close(found[key], expected[key], rtol=0, atol=0)
            else:
                assert found[key] == expected[key]


def test_no_graphs_are_a_batch_of_none():
    found = GraphStore.of([graph(1)]).cut(torch.tensor([], dtype=torch.long))
    assert found.num_graphs == 0
    assert found.edge_index.shape == (2, 0)
    assert found.x.shape == (0, 4)


def test_a_data_set_of_pyg_is_a_split(tmp_path):
    class Toy(InMemoryDataset):
        def __init__(self):
            super().__init__(None)
            self.data, self.slices = self.collate([graph(seed) for seed in range(6)])

    split = Graphs.of(Toy())
    batch = split.batch(torch.tensor([5, 0]))
    assert split.labels.shape == (6, 5)  # several targets
    assert torch.equal(batch.y, torch.cat([graph(5).y, graph(0).y]))
    assert torch.equal(batch.x.edge_attr, torch.cat([graph(5).edge_attr, graph(0).edge_attr]))


def test_graphs_with_other_keys_or_no_labels_are_named():
    with pytest.raises(UserError, match=r"must all have the keys x, y, got x in graph 1"):
        GraphStore.of([Data(x=torch.ones(1, 1), y=1), Data(x=torch.ones(1, 1))])
    with pytest.raises(UserError, match="at least one graph"):
        GraphStore.of([])
    with pytest.raises(UserError, match="must have labels y"):
        Graphs.of([Data(x=torch.ones(1, 1))])


@pytest.mark.data
def test_edge_labels_of_mutag_are_those_pyg_reads(data_root):
    from torch_geometric.io import tu as tu_io

    data, slices, _ = tu_io.read_tu_data(str(data_root / "TU" / "MUTAG" / "raw"), "MUTAG")
    options = PreparationOptions(edge_labels=True)
    source = open_source("tu:MUTAG", data_root=data_root)
    whole = GraphPreparation.fit(
        Selection(source, range(len(source))), ("-1", "1"), Classes(2), options
    )
    assert whole.shape == (7, 4)
    store = whole.store(source)
    for place in range(len(source)):
        first, last = slices["edge_index"][place : place + 2].tolist()
        found = store.cut(torch.tensor([place]))
        assert torch.equal(found.edge_attr, data.edge_attr[first:last])
    assert preparation_from_json(whole.to_json()) == whole
    prepared = builtin("tu:MUTAG", seed=0, data_root=data_root, options=options)
    batch = prepared.task.train.batch(torch.arange(4)).x
    for name in ("gin", "gcn"):
        assert backbone_for(name)(prepared.task)(batch).shape == (4, 64)
    plain = builtin("tu:MUTAG", seed=0, data_root=data_root)
    assert plain.task.shape == prepared.task.shape[:1]
    assert "edge_attr" not in plain.task.train.batch(torch.arange(2)).x
    with pytest.raises(UserError, match="edge_labels is for data of kind 'graph'"):
        builtin("mnist", seed=0, data_root=data_root, options=options)


pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)


def some_graphs(count=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for place in range(count):
        nodes, edges = 2 + place, 3 * place
        graphs.append(
            Data(
                x=torch.rand(nodes, 4, generator=generator),
                edge_index=torch.randint(nodes, (2, edges), generator=generator),
                edge_attr=torch.rand(edges, 3, generator=generator),
                edge_weight=torch.rand(edges, generator=generator),
                motif=torch.arange(edges),
                pos=torch.rand(nodes, 2, generator=generator),
                y=torch.tensor([place]),
                name=f"graph {place}",
            )
        )
    return graphs


def test_nodes_are_taken_out_and_numbered_on_as_pyg_does():
    graphs = some_graphs()
    batch = GraphStore.of(graphs).cut(torch.arange(7))
    kept = torch.rand(batch.num_nodes) < 0.6
    found = with_nodes(batch, kept)
    edge_index, edges = subgraph(
        kept,
        batch.edge_index,
        torch.arange(batch.num_edges),
        relabel_nodes=True,
        num_nodes=batch.num_nodes,
    )
    assert torch.equal(found.edge_index, edge_index)
    for key in ("edge_attr", "edge_weight", "motif"):
        assert torch.equal(found[key], batch[key][edges])
    for key in ("x", "pos", "batch"):
        assert torch.equal(found[key], batch[key][kept])
    sizes = [int((batch.batch[kept] == graph).sum()) for graph in range(7)]
    assert found.ptr.diff().tolist() == sizes
    assert torch.equal(found.y, batch.y)
    assert found.name == batch.name
    assert torch.equal(batch.x, Batch.from_data_list(graphs).x), "the batch itself is as it was"


def test_edges_are_taken_out_with_what_they_have():
    batch = GraphStore.of(some_graphs()).cut(torch.arange(7))
    kept = torch.rand(batch.num_edges) < 0.5
    found = with_edges(batch, kept)
    assert torch.equal(found.edge_index, batch.edge_index[:, kept])
    assert torch.equal(found.edge_attr, batch.edge_attr[kept])
    assert torch.equal(found.edge_weight, batch.edge_weight[kept])
    assert torch.equal(found.motif, batch.motif[kept])
    assert torch.equal(found.x, batch.x)
    assert torch.equal(found.ptr, batch.ptr)


@pytest.mark.parametrize("of", ["nodes", "edges"])
def test_one_hot_degrees_are_those_of_the_graph_that_is_left(of):
    batch = random_split(12, seed=4).batch(torch.arange(12)).x
    kept = torch.rand(batch.num_nodes if of == "nodes" else batch.num_edges) < 0.7
    found = (with_nodes if of == "nodes" else with_edges)(batch, kept)
    plain = Data(edge_index=found.edge_index, num_nodes=len(found.x))
    expected = OneHotDegree(max_degree=40)(plain).x
    beyond = expected[:, WIDTH - 1 :].sum(dim=1, keepdim=True)  # the last column holds them all
    assert torch.equal(found.x, torch.cat([expected[:, : WIDTH - 1], beyond], dim=1))


def test_standardised_degrees_are_counted_again_and_what_follows_stays():
    features = DegreeFeatures(moments=(2.0, 4.0))
    split = laid_split([(3, [(0, 1), (1, 2)])], [0], features)
    batch = split.batch(torch.tensor([0])).x
    batch.x = torch.cat([batch.x, torch.tensor([[5.0], [6.0], [7.0]])], dim=1)
    found = with_edges(batch, torch.tensor([True, True, False, False]))  # of 0-1 and 1-2
    degrees = torch.bincount(found.edge_index[0], minlength=3)
    expected = torch.stack([(degrees - 2) / 4, torch.tensor([5.0, 6.0, 7.0])], dim=1)
    torch.testing.assert_close(found.x, expected)


def test_names_decide_where_there_are_as_many_nodes_as_edges():
    ring = Data(
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), x=torch.ones(3, 1), edge_kind=torch.ones(3)
    )
    batch = GraphStore.of([ring]).cut(torch.tensor([0, 0]))
    found = with_edges(batch, torch.tensor([True, False, False, True, True, True]))
    assert (len(found.x), len(found.edge_kind), found.edge_index.shape[1]) == (6, 4, 4)
    found = with_nodes(batch, torch.tensor([True, True, False, True, True, True]))
    assert (len(found.x), len(found.edge_kind)) == (5, 4)
    assert found.edge_index.tolist() == [[0, 2, 3, 4], [1, 3, 4, 2]]


def test_other_numbers_of_nodes_are_refused():
    graph = Data(
        edge_index=torch.tensor([[0], [1]]), x=torch.ones(2, 1), root_index=torch.tensor([1])
    )
    batch = GraphStore.of([graph]).cut(torch.tensor([0]))
    with pytest.raises(UserError, match=r"edge_index alone .* got 'root_index'; leave it out"):
        with_nodes(batch, torch.tensor([True, False]))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 1, 3, 0, 2], [3, 4, 0, 1, 2]])
def test_joined_graphs_are_those_of_both_in_the_order_asked_for(order):
    graphs = [
        (3, [(0, 1), (1, 2)]),
        (1, []),
        (4, [(0, 3), (1, 3), (2, 3)]),
        (2, [(0, 1)]),
        (5, [(0, 4), (1, 2)]),
    ]
    whole = laid_split(graphs, [0] * 5)
    first, second = (whole.batch(torch.tensor(places)).x for places in ([0, 1, 2], [3, 4]))
    found = joined(first, second, torch.tensor(order))
    expected = whole.batch(torch.tensor(order)).x
    for key in ("x", "edge_index", "batch", "ptr"):
        assert torch.equal(found[key], expected[key]), key
    assert found.num_graphs == 5


@pytest.mark.data
@pytest.mark.parametrize("name", ["IMDB-BINARY", "REDDIT-BINARY"])
def test_what_a_real_batch_carries_makes_its_degree_features_again(data_root, name):
    split = builtin(f"tu:{name}", seed=0, data_root=data_root).task.train
    batch = split.batch(torch.arange(40)).x
    assert batch.degree_features.columns == batch.x.shape[1]
    assert torch.equal(batch.degree_features.renew(batch.x, batch.edge_index), batch.x)


@pytest.mark.data
def test_a_batch_of_graphs_with_node_labels_carries_no_degrees(data_root):
    split = builtin("tu:MUTAG", seed=0, data_root=data_root).task.train
    assert "degree_features" not in split.batch(torch.arange(4)).x
