"""Graphs divided by size or degree against a loop over the graphs."""

import numpy as np
import pytest
import torch

from hma.data import builtin, open_source, prepare
from hma.data.graph.graph_source import GraphSource
from hma.data.graph.store import starts_of
from hma.errors import UserError

PUBLISHED = {  # train and validation together, test: graphs in the papers on size shift
    "PROTEINS": (511, 56, 112),
    "NCI1": (1942, 215, 412),
    "NCI109": (1872, 207, 421),
    "DD": (533, 59, 118),
}


class Paths(GraphSource):
    """Undirected paths: as many nodes as said, and every edge in both directions."""

    def __init__(self, sizes, labels):
        self.name = "paths"
        self.labels = list(labels)
        self.nodes_before = starts_of(torch.tensor(sizes))
        ends = [torch.arange(size - 1) for size in sizes]
        edges = [torch.stack([torch.cat([e, e + 1]), torch.cat([e + 1, e])]) for e in ends]
        self.edges = torch.cat(edges, dim=1)
        self.edges_before = starts_of(torch.tensor([one.shape[1] for one in edges]))

    def fingerprint(self):
        return "paths"


def paths(count=200, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    return Paths(rng.integers(1, 30, count).tolist(), [f"c{i % classes}" for i in range(count)])


def by_loop(source, shift):
    """Return the graphs of train and validation together, of test, and of those between."""
    sizes = [int(n) for n in source.nodes_before.diff()]
    edges = [int(n) for n in source.edges_before.diff()]
    values = sizes if shift == "size" else [e / n for e, n in zip(edges, sizes, strict=True)]
    cut = {p: np.percentile(values, p) for p in (20, 50, 80, 90)}
    parts = {"learned": set(), "between": set(), "test": set()}
    for place, value in enumerate(values):
        if shift == "size":
            name = "learned" if value <= cut[50] else "test" if value >= cut[90] else None
        elif edges[place] <= 2:
            name = None
        elif shift == "degree":
            name = "learned" if value <= cut[50] else "test" if value > cut[80] else "between"
        else:
            name = "learned" if value > cut[50] else "test" if value <= cut[20] else "between"
        if name:
            parts[name].add(place)
    return parts


@pytest.mark.parametrize("shift", ["size", "degree", "degree-reversed"])
def test_every_graph_lands_where_a_loop_puts_it(shift):
    source = paths(201)  # an odd number, so that some graph lies right at the median
    prepared = prepare(source, seed=3, shift=shift)
    oracle, places = by_loop(source, shift), {n: set(p) for n, p in prepared.places.items()}
    assert list(prepared.task.tests) == ["test"]
    assert places["test"] == oracle["test"]
    if shift == "size":
        assert places["train"] | places["validation"] == oracle["learned"]
        assert len(places["validation"]) == len(oracle["learned"]) // 10
    else:
        assert places["train"] == oracle["learned"]
        assert places["validation"] <= oracle["between"]
        assert len(places["validation"]) == min(20, len(oracle["between"]))
    assert not places["train"] & places["validation"]


def test_validation_has_the_classes_of_what_it_is_drawn_from_and_hangs_on_the_seed():
    source = paths(400)
    drawn = [prepare(source, seed=seed, shift="size").places for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert drawn[0]["validation"] != drawn[2]["validation"]
    assert drawn[0]["test"] == drawn[2]["test"]
    learned = [*drawn[0]["train"], *drawn[0]["validation"]]
    share = np.mean([source.labels[place] == "c0" for place in learned])
    found = sum(source.labels[place] == "c0" for place in drawn[0]["validation"])
    assert abs(found - share * len(drawn[0]["validation"])) <= 1


def test_facts_say_where_the_cuts_lie_and_what_each_part_holds():
    source = paths()
    prepared = prepare(source, seed=0, shift="size")
    shift = prepared.task.facts["shift"]
    sizes = source.nodes_before.diff().numpy()
    assert shift["cuts"] == np.percentile(sizes, [50, 90]).tolist()
    for name, places in prepared.places.items():
        held = [source.labels[place] for place in places]
        assert shift["graphs"][name] == {"c0": held.count("c0"), "c1": held.count("c1")}
    assert shift["in no split"] == len(source) - sum(map(len, prepared.places.values()))


def test_degree_features_are_those_of_the_training_graphs():
    sizes = [2, 3, 4, 5, 6, 7, 8, 9] * 4
    prepared = prepare(Paths(sizes, "ab" * 16), seed=0, shift="degree")
    assert prepared.preparation.degrees == 3  # ends and inner nodes: degree 1 and 2


@pytest.mark.parametrize(
    ("sizes", "labels", "shift", "said"),
    [
        ([3, 4, 5, 6, 7, 8, 9, 10], "aaaabbbb", "size",
         "no training graph of 'b' of paths, graphs by class are: train 'a' 4, 'b' 0; test 'a' 0, "
         "'b' 1"),
        ([5] * 8, "abababab", "degree", "no graph for validation"),
        ([2] * 8, "abababab", "degree", "no graph for train"),
        ([5] * 8, "abababab", "weight", "shift must be one of 'size', 'degree', 'degree-reversed'"),
    ],
)  # fmt: skip
def test_a_division_that_cannot_be_learned_from_is_refused_with_counts(sizes, labels, shift, said):
    with pytest.raises(UserError, match=said) as raised:
        prepare(Paths(sizes, labels), seed=0, shift=shift)
    assert "\n" not in str(raised.value)


def test_a_shift_is_for_graphs_and_decides_all_splits(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(40, 3)), y=[0, 1] * 20)
    table = open_source(tmp_path / "a.npz")
    with pytest.raises(UserError, match="shift is for graphs, got 'size' with a"):
        prepare(table, seed=0, shift="size")
    with pytest.raises(UserError, match="shift decides validation and test together"):
        prepare(paths(), seed=0, shift="size", test=paths())
    with pytest.raises(UserError, match="by time or by shift, not by both"):
        prepare(paths(), seed=0, shift="size", time="day")


@pytest.mark.data
@pytest.mark.parametrize("name", PUBLISHED)
def test_size_shift_has_the_published_counts(data_root, name):
    prepared = builtin(f"tu:{name}", seed=1, data_root=data_root, shift="size")
    found = tuple(len(prepared.places[part]) for part in ("train", "validation", "test"))
    assert found == PUBLISHED[name]
