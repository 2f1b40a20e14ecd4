"""A store of graphs with every key they have, against PyG's own batches."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)

from torch_geometric.data import Batch, Data, InMemoryDataset

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
from hma.errors import UserError
from hma.targets import Classes


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
    whole = GraphPreparation.fit(source, range(len(source)), ("-1", "1"), Classes(2), options)
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
