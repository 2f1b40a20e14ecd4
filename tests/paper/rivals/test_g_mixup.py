"""Graphons: against loops over dense matrices, and against block models that are known."""

import numpy as np
import pytest
import torch

from hma.paper.rivals.g_mixup import (
    LaidGraphs,
    Settings,
    class_graphons,
    draw_graphs,
    join_graphs,
    new_graphs,
)

BLOCKS = {
    0: ((50, 100), ((0.8, 0.2), (0.2, 0.3))),
    1: ((75, 75), ((0.6, 0.1), (0.1, 0.15))),
}
"""Two stochastic block models: sizes of the blocks, chances within and between them."""
ERROR = 0.05
"""Mean absolute error of a chance, with 40 graphs of 150 nodes."""


def block_model(sizes, chances):
    block = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return torch.tensor(chances, dtype=torch.double)[block][:, block]


def models_and_graphs(count=40):
    truth = {label: block_model(*blocks) for label, blocks in BLOCKS.items()}
    generator = torch.Generator().manual_seed(0)
    parts = [draw_graphs(chances, count, generator) for chances in truth.values()]
    return truth, join_graphs(parts), torch.arange(2).repeat_interleave(count)


def adjacencies(graphs: LaidGraphs):
    edges = torch.split(graphs.edge_index, graphs.edges.tolist(), dim=1)
    for size, (source, target) in zip(graphs.nodes.tolist(), edges, strict=True):
        dense = np.zeros((size, size))
        dense[source.numpy(), target.numpy()] = 1
        yield dense


def naive_graphon(matrices, resolution, threshold=0.2):
    total = np.zeros((resolution, resolution))
    for dense in matrices:
        order = sorted(range(len(dense)), key=lambda node: -dense[node].sum())  # stable
        for row, a in enumerate(order[:resolution]):
            for column, b in enumerate(order[:resolution]):
                total[row, column] += dense[a, b]
    left, values, right = np.linalg.svd(total / len(matrices))
    values[values < threshold * np.sqrt(resolution)] = 0
    return np.clip(left @ np.diag(values) @ right, 0, 1)


def test_a_graphon_is_that_of_a_loop_over_dense_matrices():
    generator = torch.Generator().manual_seed(3)
    sizes = [4, 9, 7, 1, 12, 7, 2]
    parts = [draw_graphs(torch.full((n, n), 0.5).double(), 2, generator) for n in sizes]
    graphs, labels = join_graphs(parts), torch.arange(14) % 2
    found = class_graphons(graphs, labels)
    dense = list(adjacencies(graphs))
    resolution = int(np.median([len(one) for one in dense]))
    for label in (0, 1):
        expected = naive_graphon(dense[label::2], resolution)
        np.testing.assert_allclose(found[label].numpy(), expected, atol=1e-10)


def test_graphons_of_block_models_are_near_the_truth():
    truth, graphs, labels = models_and_graphs()
    found = class_graphons(graphs, labels)
    for label, chances in truth.items():
        assert found[label].shape == chances.shape
        assert float((found[label] - chances).abs().mean()) < ERROR
        assert float((found[label] - truth[1 - label]).abs().mean()) > 3 * ERROR


def test_drawn_graphs_have_the_edges_that_the_chances_say():
    truth = block_model(*BLOCKS[0])
    graphs = draw_graphs(truth, 30, torch.Generator().manual_seed(1))
    assert graphs.nodes.tolist() == [150] * 30  # nobody is without an edge here
    mean = sum(adjacencies(graphs)) / 30
    assert not np.diag(mean).any()
    assert (mean == mean.T).all()
    for rows, columns in ((slice(50), slice(50)), (slice(50), slice(50, 150))):
        inside = mean[rows, columns]
        inside = inside[~np.eye(*inside.shape, dtype=bool)] if rows == columns else inside
        assert inside.mean() == pytest.approx(float(truth[0, columns.stop - 1]), abs=0.01)


def test_nodes_without_edges_are_left_out_but_one():
    chances = torch.zeros(5, 5, dtype=torch.double)
    chances[1, 4] = 1.0
    pair = draw_graphs(chances, 2, torch.Generator())
    assert pair.nodes.tolist() == [2, 2]
    assert pair.edge_index.tolist() == [[0, 1, 0, 1], [1, 0, 1, 0]]
    none = draw_graphs(torch.zeros(5, 5), 3, torch.Generator())
    assert none.nodes.tolist() == [1, 1, 1]
    assert none.edge_index.shape == (2, 0)


@pytest.mark.parametrize(("share", "own"), [(1.0, "first"), (0.0, "second")])
def test_a_whole_share_gives_back_the_class_own(share, own):
    truth, graphs, labels = models_and_graphs()
    new = new_graphs(graphs, labels, Settings(1.0, 2, (share, share)), seed=0)
    assert new.share.unique().tolist() == [share]
    of_class = getattr(new, own)
    for label in of_class.unique().tolist():
        dense = [
            one for one, y in zip(adjacencies(new.graphs), of_class, strict=True) if y == label
        ]
        mean = np.mean([one.mean() for one in dense])
        assert mean == pytest.approx(float(truth[label].mean()), abs=0.02)


def test_new_graphs_come_in_lots_of_two_classes_and_one_mixture():
    _, graphs, labels = models_and_graphs()
    new = new_graphs(graphs, labels, Settings(0.3, 5, (0.1, 0.4)), seed=2)
    assert len(new.first) == 5 * int(80 * 0.3 / 5)
    lots = zip(*(torch.split(part, 4) for part in (new.first, new.second, new.share)), strict=True)
    shares = set()
    for first, second, share in lots:
        assert (
            len(set(first.tolist())) == len(set(second.tolist())) == len(set(share.tolist())) == 1
        )
        assert first[0] != second[0]
        shares.add(float(share[0]))
    assert len(shares) == 5
    assert min(shares) >= 0.1
    assert max(shares) <= 0.4
    again = new_graphs(graphs, labels, Settings(0.3, 5, (0.1, 0.4)), seed=2)
    assert torch.equal(again.graphs.edge_index, new.graphs.edge_index)


def test_few_graphs_make_fewer_lots():
    _, graphs, labels = models_and_graphs(count=10)
    assert len(new_graphs(graphs, labels, Settings(0.15, 10, (0.0, 1.0)), seed=0).first) == 3
