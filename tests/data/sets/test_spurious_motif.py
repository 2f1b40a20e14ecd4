"""Spurious motifs: shapes against networkx, the bias against its number, edges by brute force."""

import networkx
import pytest
import torch

from hma.data import builtin, open_source, preparation_from_json
from hma.data.sets.spurious_motif import (
    BASES,
    LARGE,
    MOTIF_EDGES,
    MOTIF_NODES,
    SMALL,
    base_shape,
    spurious_motif,
)
from hma.errors import UserError

NETWORKX = {
    "tree": networkx.balanced_tree,
    "ladder": networkx.ladder_graph,
    "wheel": networkx.wheel_graph,
}


@pytest.fixture(scope="module")
def prepared():
    return spurious_motif(3, 0.9, train=600, validation=90, test=90)


@pytest.mark.parametrize("kind", BASES)
def test_bases_are_those_of_networkx(kind):
    for size in (*SMALL[BASES.index(kind)], *LARGE[BASES.index(kind)][:3]):
        nodes, edges = base_shape(kind, size)
        expected = NETWORKX[kind](*size)
        assert nodes == len(expected)
        made = networkx.Graph(edges.T.tolist())
        assert made.number_of_edges() == edges.shape[1] == expected.number_of_edges()
        assert networkx.is_isomorphic(made, expected)


def test_motifs_are_a_ring_a_house_and_a_crane():
    cycle, house, crane = (networkx.Graph(MOTIF_EDGES[name]) for name in MOTIF_EDGES)
    assert networkx.is_isomorphic(cycle, networkx.cycle_graph(MOTIF_NODES))
    assert networkx.is_isomorphic(house, networkx.house_graph())
    assert networkx.is_isomorphic(crane, networkx.complete_bipartite_graph(2, 3))


def test_every_graph_is_its_base_its_motif_a_joint_and_some_random_edges(prepared):
    source = prepared.source
    for place in range(0, len(source), 7):
        start, end = source.edges_before[place : place + 2].tolist()
        nodes = int(source.nodes_before[place + 1] - source.nodes_before[place])
        edges, marks = source.edges[:, start:end], source.is_motif[start:end]
        directed = set(map(tuple, edges.T.tolist()))
        assert len(directed) == end - start  # each once
        assert {(v, u) for u, v in directed} == directed
        assert all(u != v for u, v in directed)
        graph = networkx.Graph(list(directed))
        assert sorted(graph) == list(range(nodes))
        assert networkx.is_connected(graph)
        inside = [edge for edge in directed if min(edge) >= nodes - MOTIF_NODES]
        marked = [tuple(edge) for edge in edges[:, marks].T.tolist()]
        assert sorted(inside) == sorted(marked)
        expected = networkx.Graph(MOTIF_EDGES[source.labels[place]])
        assert networkx.is_isomorphic(networkx.Graph(marked), expected)
        joints = [edge for edge in graph.edges if len({n >= nodes - MOTIF_NODES for n in edge}) > 1]
        assert joints


def test_the_base_agrees_with_the_motif_as_often_as_asked_for():
    for bias in (0.0, 0.5, 1.0):
        task = spurious_motif(0, bias, train=1500, validation=300, test=300).task
        agrees = task.facts["base agrees"]
        assert agrees["train"] == pytest.approx(bias, abs=0.05)
        for split in ("validation", "unbiased", "larger"):
            assert agrees[split] == pytest.approx(1 / 3, abs=0.09)


def test_every_motif_is_as_frequent_and_larger_bases_have_more_nodes(prepared):
    task = prepared.task
    for split in (task.train, task.validation, *task.tests.values()):
        counts = torch.bincount(split.labels)
        assert counts.tolist() == [len(split) // 3] * 3
    nodes = {name: split.store.nodes[split.rows] for name, split in task.tests.items()}
    assert nodes["unbiased"].max() <= 40 + MOTIF_NODES
    assert nodes["larger"].float().mean() > 2 * nodes["unbiased"].float().mean()


def test_a_batch_says_which_edges_are_the_motifs(prepared):
    task, source = prepared.task, prepared.source
    batch = task.tests["larger"].batch(torch.tensor([4, 1])).x
    first, second = (prepared.places["larger"][place] for place in (4, 1))
    parts = [source.is_motif[source.edges_before[p] : source.edges_before[p + 1]] for p in
             (first, second)]  # fmt: skip
    assert batch.motif.tolist() == torch.cat(parts).tolist()
    assert 0 <= batch.x.min() < batch.x.max() <= 1


def test_the_name_gives_the_same_graphs_again():
    prepared = builtin("spmotif:0.7", seed=2)
    source = open_source("spmotif:0.7", seed=2)
    assert source.fingerprint() == prepared.task.facts["fingerprint"]
    assert source.fingerprint() != builtin("spmotif:0.7", seed=3).task.facts["fingerprint"]
    again = preparation_from_json(prepared.preparation.to_json())
    rebuilt = again.split(source, prepared.places["validation"]).batch(torch.arange(5))
    own = prepared.task.validation.batch(torch.arange(5))
    assert torch.equal(rebuilt.x.x, own.x.x)
    assert torch.equal(rebuilt.x.edge_index, own.x.edge_index)
    assert rebuilt.y.tolist() == own.y.tolist()


def test_what_cannot_be_made_is_said():
    with pytest.raises(UserError, match="bias must be a probability, from 0 to 1, got 9"):
        builtin("spmotif:9", seed=0)
    with pytest.raises(UserError, match="train must be at least 3 graphs, got 2"):
        spurious_motif(0, train=2)
