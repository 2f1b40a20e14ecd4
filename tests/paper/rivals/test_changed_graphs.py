"""DropEdge, DropNode and Subgraph: what is left of a graph, and that runs resume and compose."""

import heapq
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)

from graph_cases import gin, graph_task, laid_split, random_split
from scipy.stats import binom
from training_cases import EVERYTHING, MEMORY, interrupted_at, quietly, small_task

from hma.data.draws import mixed, words_of
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.paper.rivals import drop_edge, drop_node, random_environments, subgraph, vrex
from hma.paper.rivals.changed_graphs import growth_times, numbers_of_nodes
from hma.training import Interrupted
from hma.training.identity import identity

METHODS = {"drop_edge": drop_edge, "drop_node": drop_node, "subgraph": subgraph}
PLAIN, MEMORIES = erm(gin), with_memory(gin, MEMORY)
SHORT = replace(EVERYTHING, epochs=3, patience=None, balance="none")
RING = (12, [(node, (node + 1) % 12) for node in range(12)])


def changed(name, split, share=0.2, seed=0):
    learner = METHODS[name](PLAIN, share=share)(graph_task(train=split), 0)
    return learner.training_split(split, seed)


def graphs_of(batch):
    """Return nodes and directed edges of each graph of a batch, numbered from 0 in each."""
    graph = batch.batch[batch.edge_index[0]]
    counts = torch.bincount(graph, minlength=batch.num_graphs).tolist()
    edges = torch.split((batch.edge_index - batch.ptr[graph]).T, counts)
    sizes = batch.ptr.diff().tolist()
    return [(n, set(map(tuple, each.tolist()))) for n, each in zip(sizes, edges, strict=True)]


@pytest.mark.parametrize("share", [0.2, 0.55])
def test_drop_edge_drops_the_asked_share_of_undirected_edges_both_directions_together(share):
    split = random_split(400, seed=5)
    places = torch.arange(400)
    before = graphs_of(split.batch(places).x)
    after = graphs_of(changed("drop_edge", split, share).batch(places, epoch=0).x)
    total = sum(len(edges) for _, edges in before) // 2
    left = sum(len(edges) for _, edges in after) // 2
    low, high = binom.interval(0.9999, total, 1 - share)
    assert low <= left <= high
    for (size, edges), (size_after, edges_after) in zip(before, after, strict=True):
        assert size_after == size
        assert edges_after <= edges
        assert edges_after == {(b, a) for a, b in edges_after}


def test_drop_edge_counts_degrees_again_or_keeps_those_of_the_whole_graph():
    split, places = random_split(30, seed=5), torch.arange(30)
    whole = split.batch(places).x
    task = graph_task(train=split)
    renewed, kept = (
        drop_edge(PLAIN, share=0.4, degrees=degrees)(task, 0)
        .training_split(split, 0)
        .batch(places, epoch=0)
        .x
        for degrees in ("renewed", "kept")
    )
    assert torch.equal(kept.edge_index, renewed.edge_index)
    assert kept.edge_index.shape[1] < whole.edge_index.shape[1]
    assert torch.equal(kept.x, whole.x)
    counted = torch.bincount(renewed.edge_index[0], minlength=len(renewed.x))
    widest = renewed.x.shape[1] - 1
    assert torch.equal(renewed.x.argmax(dim=1), counted.clamp(max=widest))
    with pytest.raises(UserError, match=r"degrees must be one of .*renewed.*kept"):
        drop_edge(PLAIN, degrees="dropped")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_drop_node_drops_the_share_of_each_graph_rounded_down_each_node_as_likely(share):
    split = random_split(30, seed=6)
    lots = changed("drop_node", split, share)
    for epoch in range(3):
        sizes = lots.batch(torch.arange(30), epoch).x.ptr.diff()
        nodes = split.batch(torch.arange(30)).x.ptr.diff()
        assert sizes.tolist() == [n - math.floor(share * n) for n in nodes.tolist()]
    star = laid_split([(5, [(0, 1), (0, 2), (0, 3), (0, 4)])] * 2000, [0] * 2000)
    found = changed("drop_node", star, 0.2).batch(torch.arange(2000), epoch=0).x
    without_centre = sum(not edges for _, edges in graphs_of(found))
    low, high = binom.interval(0.9999, 2000, 1 / 5)
    assert low <= without_centre <= high


def reached_first(size, edges, start, waits, count):
    """Grow from a node with a heap, node by node."""
    times, heap = {start: 0.0}, [(0.0, start)]
    order = []
    while heap:
        time, node = heapq.heappop(heap)
        if node in order:
            continue
        order.append(node)
        for a, b in edges:
            later = time + waits[b]
            if a == node and later < times.get(b, math.inf):
                times[b] = later
                heapq.heappush(heap, (later, b))
    return set(order[:count]), times


def test_a_subgraph_is_what_a_growth_from_one_node_reaches_first():
    split = random_split(40, seed=7)
    places = torch.arange(40)
    words = words_of(places, 0, 0)
    batch = split.batch(places).x
    starts, waiting = numbers_of_nodes(batch, words), numbers_of_nodes(batch, mixed(words))
    times = growth_times(batch, starts, waiting)
    for (size, edges), first in zip(graphs_of(batch), batch.ptr[:-1].tolist(), strict=True):
        mine = slice(first, first + size)
        waits = [-math.log(1 - value) for value in waiting[mine].tolist()]
        start = int(starts[mine].argmin())
        _, expected = reached_first(size, edges, start, waits, size)
        for node, time in enumerate(times[mine].tolist()):
            assert time == pytest.approx(expected.get(node, math.inf))


def test_a_subgraph_hangs_together_and_has_the_asked_size():
    split = laid_split([RING, (4, [(0, 1), (1, 2), (0, 2)]), (9, [])], [0, 1, 0])
    lots = changed("subgraph", split, 0.3)
    for epoch in range(20):
        ring, apart, empty = graphs_of(lots.batch(torch.arange(3), epoch).x)
        assert ring[0] == 12 - 3
        assert len(ring[1]) == 2 * (ring[0] - 1), "a part of a ring is a path"
        assert (apart[0], len(apart[1])) in {(3, 6), (1, 0)}, "the triangle, or the node beside it"
        assert empty == (1, set())


def test_every_node_beside_those_reached_is_as_likely_to_be_the_next():
    # from the middle of 0 - 1 - 2, 1 - 3: GraphCL adds 0, 2 or 3; from an end 1, then one of two
    split = laid_split([(4, [(0, 1), (1, 2), (1, 3), (0, 2)])] * 3000, [0] * 3000)
    found = changed("subgraph", split, 0.25).batch(torch.arange(3000), epoch=0).x
    shapes = Counter(len(edges) for _, edges in graphs_of(found))
    # the triangle 0 1 2 is left by: 0 then 1|2 then 2|(2,3): start 0: 1/2 + 1/2 * 1/2 = 3/4;
    # the same from 2; from 1: two of {0, 2, 3} without 3, 1/3; from 3: 1, then two of {0, 2}: 0
    chance = (3 / 4 + 3 / 4 + 1 / 3 + 0) / 4
    low, high = binom.interval(0.9999, 3000, chance)
    assert low <= shapes[6] <= high


@pytest.mark.parametrize("name", METHODS)
def test_a_graph_depends_on_place_seed_and_epoch_alone(name):
    split = random_split(30, seed=8)
    lots = changed(name, split)
    whole = graphs_of(lots.batch(torch.arange(30), epoch=3).x)
    some = torch.tensor([17, 4, 29])
    assert graphs_of(lots.batch(some, epoch=3).x) == [whole[place] for place in some]
    assert graphs_of(changed(name, split, seed=1).batch(some, epoch=3).x) != graphs_of(
        lots.batch(some, epoch=3).x
    )
    assert graphs_of(lots.batch(some, epoch=4).x) != graphs_of(lots.batch(some, epoch=3).x)


@pytest.mark.parametrize("name", METHODS)
def test_rows_as_they_are_are_not_changed(name):
    split = random_split(9, seed=8)
    places = torch.arange(9)
    plain, found = (one.batch(places).x for one in (split, changed(name, split)))
    assert torch.equal(plain.edge_index, found.edge_index)
    assert torch.equal(plain.x, found.x)


@pytest.mark.parametrize("name", METHODS)
def test_one_node_and_no_edges_are_graphs_too(name):
    split = laid_split([(1, []), (5, []), RING], [0, 1, 0])
    batch = changed(name, split, 0.9).batch(torch.arange(3), epoch=0)
    sizes = batch.x.ptr.diff().tolist()
    assert sizes[0] == 1
    assert min(sizes) >= 1
    assert len(batch.x.x) == sum(sizes)
    assert batch.x.edge_index.numel() == 0 or int(batch.x.edge_index.max()) < sum(sizes)


def test_two_changes_of_one_kind_draw_numbers_of_their_own():
    split = random_split(200, seed=5)
    learner = drop_edge(drop_edge(PLAIN, share=0.5), share=0.5)(graph_task(train=split), 0)
    left = learner.training_split(split, 0).batch(torch.arange(200), epoch=0).x.num_edges
    total = split.batch(torch.arange(200)).x.num_edges
    low, high = binom.interval(0.9999, total // 2, 0.25)
    assert low <= left // 2 <= high


@pytest.mark.parametrize("inner", [PLAIN, MEMORIES], ids=["erm", "hma"])
@pytest.mark.parametrize("name", METHODS)
def test_a_share_of_nothing_is_the_method_inside_bit_for_bit(name, inner):
    task = graph_task()
    expected, found = (
        quietly(method(task, 0), task, SHORT) for method in (inner, METHODS[name](inner, share=0.0))
    )
    assert found.epochs == expected.epochs
    assert found.tests == expected.tests


@pytest.mark.parametrize("inner", [PLAIN, MEMORIES], ids=["erm", "hma"])
@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_run_ends_the_same(tmp_path, name, inner):
    task = graph_task()
    method = METHODS[name](inner, share=0.4)
    expected = quietly(method(task, 0), task, SHORT, folder=tmp_path / "whole")
    with pytest.raises(Interrupted):
        quietly(interrupted_at(method(task, 0), 5), task, SHORT, folder=tmp_path / "parts")
    found = quietly(method(task, 7), task, SHORT, folder=tmp_path / "parts")
    assert found.repeatable() == expected.repeatable()
    plain = quietly(inner(task, 0), task, SHORT)
    assert plain.epochs != expected.epochs, "the change must matter"


def test_a_memory_is_given_the_graphs_as_the_step_saw_them():
    task = graph_task()
    learner = drop_node(MEMORIES, share=0.5)(task, 0)
    seen = []
    remember = learner.inner.model.remember

    def counted(x, y, **options):
        seen.append((x.num_nodes, options["ignore"]))
        remember(x, y, **options)

    learner.inner.model.remember = counted
    split = learner.training_split(task.train, 0)
    batch = split.batch(torch.arange(10), epoch=0)
    learner.loss(batch).backward()
    learner.after_step(batch)
    assert seen == [(batch.x.num_nodes, None)]
    assert batch.x.num_nodes < task.train.batch(torch.arange(10)).x.num_nodes
    assert learner.inner.model.memory_state().ids[:10].tolist() == list(range(10))


def test_changes_go_around_and_inside_of_penalties():
    task = random_environments(graph_task())
    for method in (
        vrex(drop_edge(PLAIN), weight=1.0),
        drop_edge(vrex(PLAIN, weight=1.0)),
        subgraph(drop_node(MEMORIES)),
    ):
        record = quietly(method(task, 0), task, replace(SHORT, epochs=1))
        assert len(record.epochs) == 1


def test_another_share_or_change_is_another_run():
    task = graph_task()
    runs = [
        identity(method(task, 0), task, SHORT, 0, None)["method"]
        for method in (
            drop_edge(PLAIN),
            drop_edge(PLAIN, share=0.3),
            drop_edge(PLAIN, degrees="kept"),
            drop_node(PLAIN),
            subgraph(PLAIN),
        )
    ]
    assert len({run["architecture"] for run in runs}) == len(runs)
    assert [run["learner"] for run in runs] == [*["DropEdge"] * 3, "DropNode", "Subgraph"]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_outside_its_range_is_refused(name, share):
    with pytest.raises(UserError, match=rf"share must be at least 0 and below 1, got {share}"):
        METHODS[name](PLAIN, share=share)


def test_rows_that_are_no_graphs_are_refused():
    with pytest.raises(UserError, match=r"'clouds' must be graphs .*, got table; use the method"):
        drop_edge(PLAIN)(small_task(), 0)
