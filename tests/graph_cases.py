"""Small graphs, sparse ones and dense ones, whose node features are degrees."""

import torch

from hma.backbones import GIN
from hma.data import Graphs, GraphStore, Task
from hma.data.graph.store import DegreeFeatures, Packed

WIDTH = 9
"""Of the one-hot degree; some graphs have larger ones."""


def laid_split(graphs, labels, features=None) -> Graphs:
    """Return graphs given as ``(number of nodes, undirected edges)`` each."""
    features = features or DegreeFeatures(width=WIDTH)
    nodes = torch.tensor([size for size, _ in graphs])
    both = [[*pairs, *((b, a) for a, b in pairs)] for _, pairs in graphs]
    edges = torch.tensor([pair for pairs in both for pair in sorted(pairs)]).long().view(-1, 2).T
    counts = torch.tensor([len(pairs) for pairs in both])
    before = torch.repeat_interleave(nodes.cumsum(0) - nodes, counts)
    degrees = torch.bincount(edges[0] + before, minlength=int(nodes.sum()))
    keys = {
        "edge_index": Packed(edges, counts, beside=True, step=nodes),
        "x": Packed(features.of(degrees), nodes),
    }
    store = GraphStore(nodes, keys, degree_features=features)
    return Graphs(store, torch.arange(len(nodes)), torch.as_tensor(labels))


def random_graph(generator, chance):
    size = int(torch.randint(6, 15, (), generator=generator))
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    kept = torch.rand(len(pairs), generator=generator) < chance
    return size, [pair for pair, keep in zip(pairs, kept.tolist(), strict=True) if keep]


def random_split(count, seed, classes=2) -> Graphs:
    generator = torch.Generator().manual_seed(seed)
    labels = [place % classes for place in range(count)]
    graphs = [random_graph(generator, (0.25, 0.6, 0.9)[label]) for label in labels]
    return laid_split(graphs, labels)


def graph_task(rows=60, classes=2, **changes) -> Task:
    parts = {
        "name": "blobs",
        "kind": "graph",
        "classes": ("sparse", "dense", "full")[:classes],
        "shape": (WIDTH,),
        "train": random_split(rows, seed=1, classes=classes),
        "validation": random_split(20, seed=2, classes=classes),
        "tests": {"test": random_split(20, seed=3, classes=classes)},
    }
    return Task(**parts | changes)


def gin(task):
    return GIN(task.shape[0], width=8, num_layers=2, dropout=0.2)
