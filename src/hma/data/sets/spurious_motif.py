"""Spurious motifs: graphs whose motif is the label, on a base that predicts it in training only.

DIR's data (Wu et al., "Discovering Invariant Rationales for Graph Neural Networks"), made in
memory. Nothing to download.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from hma.data.graph.preparation import GraphPreparation
from hma.data.graph.source import GraphSource
from hma.data.graph.store import Graphs, GraphStore, Packed, starts_of
from hma.data.prepared import Prepared
from hma.data.sets.named_set import NamedSet, SetRequest
from hma.data.source import array_fingerprint
from hma.data.task import Task
from hma.errors import UserError

MOTIFS = ("cycle", "house", "crane")
BASES = ("tree", "ladder", "wheel")
"""The base at a place is the one that goes with the motif there, where they agree."""
SMALL: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((2, 3), (3, 3)),
    tuple((width,) for width in range(8, 12)),
    tuple((nodes,) for nodes in range(15, 20)),
)
"""Sizes of each base, drawn alike: branches and height of a tree, rungs of a ladder, nodes of a
wheel; as DIR's authors have them for training."""
LARGE: tuple[tuple[tuple[int, ...], ...], ...] = (
    tuple((branches, height) for height in (3, 4, 5) for branches in (2, 3)),
    tuple((width,) for width in range(30, 50)),
    tuple((nodes,) for nodes in range(60, 80)),
)
"""The sizes that they have for testing."""
MOTIF_EDGES = {
    "cycle": ((0, 1), (1, 2), (2, 3), (3, 4), (0, 4)),
    "house": ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4), (1, 4)),
    "crane": ((0, 1), (0, 3), (1, 2), (2, 3), (3, 4), (1, 4)),
}
MOTIF_NODES = 5
MORE_EDGES = 0.05
"""Share of edges that are added at random."""
FEATURES = 4
UNBIASED = 1 / 3
GRAPHS = {"train": 3000, "validation": 600, "unbiased": 600, "larger": 600}
"""Graphs of each split unless others are asked for, a third of each motif."""


class MotifGraphs(GraphSource):
    """Graphs of a base and a motif joined by one edge, with a few more random edges.

    A random edge has an end in the base; one that is there already, or a loop, is left out, so the
    edges inside the motif are the motif's own. A node has four random numbers from 0 to 1.

    Args:
        motif: Which of ``MOTIFS`` each graph has, ``(G,)``.
        base: Which of ``BASES``, ``(G,)``.
        large: Whether the base has a size of ``LARGE``, rather than of ``SMALL``, ``(G,)``.
        generator: Decides sizes, edges and features.

    Shape:
        - ``is_motif``: ``(E,)`` of bool, which edges are the motif's.
    """

    name = "spmotif"

    def __init__(
        self, motif: Tensor, base: Tensor, large: Tensor, generator: torch.Generator
    ) -> None:
        self.labels = [MOTIFS[one] for one in motif.tolist()]
        self.motifs, self.bases = motif, base
        shapes = _draw_shapes(base, large, generator)
        in_base = torch.tensor([nodes for nodes, _ in shapes])
        nodes = in_base + MOTIF_NODES
        self.nodes_before = starts_of(nodes)
        self.node_attributes = torch.rand(int(nodes.sum()), FEATURES, generator=generator).double()
        graph, ends = _join([edges for _, edges in shapes], motif, in_base, generator)
        more = (torch.bincount(graph) * MORE_EDGES).long()  # (G,)
        extra = torch.repeat_interleave(more)
        drawn = torch.rand(2, len(extra), generator=generator, dtype=torch.double)
        drawn = (drawn * nodes[extra]).long()
        allowed = (drawn[0] != drawn[1]) & (drawn < in_base[extra]).any(dim=0)
        graph = torch.cat([graph, extra[allowed]])
        ends = torch.cat([ends, drawn[:, allowed]], dim=1)
        graph, self.edges = _both_ways(graph, ends, int(nodes.max()))
        self.edges_before = starts_of(torch.bincount(graph, minlength=len(nodes)))
        self.is_motif = (self.edges >= in_base[graph]).all(dim=0)

    def describe(self, place: int) -> str:
        """Return the number of the graph, its base and its size."""
        return f"{super().describe(place)} on a {BASES[int(self.bases[place])]}"

    def fingerprint(self) -> str:
        """Return the SHA-256 of nodes, edges and labels."""
        assert self.node_attributes is not None
        parts = (self.nodes_before, self.edges_before, self.edges, self.node_attributes)
        digests = "".join(array_fingerprint(part.numpy(), self.labels) for part in parts)
        return hashlib.sha256(digests.encode()).hexdigest()


def _draw_shapes(
    base: Tensor, large: Tensor, generator: torch.Generator
) -> list[tuple[int, Tensor]]:
    """Return the number of nodes and the edges of a base for each graph."""
    chance = torch.rand(len(base), generator=generator).tolist()
    shapes = []
    for kind, wide, drawn in zip(base.tolist(), large.tolist(), chance, strict=True):
        sizes = (LARGE if wide else SMALL)[kind]
        shapes.append(base_shape(BASES[kind], sizes[int(drawn * len(sizes))]))
    return shapes


def _join(
    bases: Sequence[Tensor], motif: Tensor, in_base: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the graph of each edge ``(E,)``, and its ends ``(2, E)``: bases, motifs, joints."""
    motifs = [torch.tensor(MOTIF_EDGES[MOTIFS[one]]).T for one in motif.tolist()]
    owner = torch.repeat_interleave(torch.tensor([one.shape[1] for one in motifs]))
    place = torch.rand(len(in_base), generator=generator, dtype=torch.double) * in_base
    joint = torch.stack([place.long(), in_base])  # any node of the base, the first of the motif
    graph = [
        torch.repeat_interleave(torch.tensor([one.shape[1] for one in bases])),
        owner,
        torch.arange(len(in_base)),
    ]
    ends = [torch.cat(list(bases), dim=1), torch.cat(motifs, dim=1) + in_base[owner], joint]
    return torch.cat(graph), torch.cat(ends, dim=1)


def _both_ways(graph: Tensor, ends: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Return graph and ends of every edge in both directions, each once, ordered by both."""
    both = torch.cat([ends, ends.flip(0)], dim=1)  # (2, 2E)
    keys = (graph.repeat(2) * largest + both[0]) * largest + both[1]
    once = torch.unique(keys)
    source = once // largest
    return source // largest, torch.stack([source % largest, once % largest])


@cache
def base_shape(kind: str, size: tuple[int, ...]) -> tuple[int, Tensor]:
    """Return the number of nodes of a base and its edges ``(2, E)``, each in one direction.

    Args:
        kind: One of ``BASES``.
        size: As ``SMALL`` has it for that kind.

    Example:
        >>> nodes, edges = base_shape("wheel", (5,))
        >>> nodes, edges.tolist()
        (5, [[0, 0, 0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 2, 3, 4, 1]])
    """
    if kind == "tree":
        branches, height = size
        nodes = sum(branches**level for level in range(height + 1))
        pairs = [((node - 1) // branches, node) for node in range(1, nodes)]
    elif kind == "ladder":
        nodes = 2 * size[0]
        sides = (range(size[0]), range(size[0], nodes))
        pairs = [pair for side in sides for pair in pairwise(side)]
        pairs += [(rung, rung + size[0]) for rung in range(size[0])]
    else:
        nodes = size[0]
        pairs = [(0, rim) for rim in range(1, nodes)]
        pairs += [*pairwise(range(1, nodes)), (nodes - 1, 1)]
    return nodes, torch.tensor(pairs).T


def spurious_motif(
    seed: int,
    bias: float = 0.9,
    *,
    train: int = GRAPHS["train"],
    validation: int = GRAPHS["validation"],
    test: int = GRAPHS["unbiased"],
) -> Prepared:
    """Return spurious-motif graphs with a base that agrees with the motif as often as ``bias``.

    In training the base is the motif's own with probability ``bias``, else one of the two others;
    in validation and in both tests all bases are as likely, and in the second test, ``larger``,
    they have more nodes. Batches say which edges are the motif's: ``batch.x.motif``, ``(E,)``.

    Args:
        seed: Decides everything that is left to chance.
        bias: From 0 to 1; a third is no bias.
        train, validation, test: Graphs of each split, of both tests alike.

    Example:
        >>> task = spurious_motif(seed=0, bias=0.9, train=9, validation=3, test=3).task
        >>> task.classes, task.shape, sorted(task.tests)
        (('cycle', 'house', 'crane'), (4,), ['larger', 'unbiased'])
    """
    _expect_sound(bias, train=train, validation=validation, test=test)
    counts = dict(zip(GRAPHS, (train, validation, test, test), strict=True))
    generator = torch.Generator().manual_seed(seed)
    source = _graphs(counts, bias, generator)
    preparation = GraphPreparation(MOTIFS, attributes=((0.0, 1.0),) * FEATURES)  # as they are
    made = preparation.store(source)
    motif = Packed(source.is_motif, source.edges_before.diff())
    store = GraphStore(made.nodes, {**made.keys, "motif": motif}, finish=made.finish)
    labels = preparation.labels_of(source)
    rows = dict(
        zip(counts, torch.split(torch.arange(len(source)), list(counts.values())), strict=True)
    )
    splits = {name: Graphs(store, part, labels[part]) for name, part in rows.items()}
    task = Task(
        name=f"spmotif, bias {bias:g}",
        kind="graph",
        classes=MOTIFS,
        shape=preparation.shape,
        train=splits.pop("train"),
        validation=splits.pop("validation"),
        tests=splits,
        facts=_facts(source, rows, bias, seed),
    )
    return Prepared(task, preparation, {name: part.tolist() for name, part in rows.items()}, source)


def _graphs(counts: dict[str, int], bias: float, generator: torch.Generator) -> MotifGraphs:
    """Return the graphs of all splits, one split after the other."""
    motif, base, large = [], [], []
    for name, count in counts.items():
        own = bias if name == "train" else UNBIASED
        turn = torch.multinomial(
            torch.tensor([own, (1 - own) / 2, (1 - own) / 2]), count, True, generator=generator
        )
        which = torch.arange(count)[torch.randperm(count, generator=generator)] % len(MOTIFS)
        motif.append(which)
        base.append((which + turn) % len(BASES))
        large.append(torch.full((count,), name == "larger"))
    return MotifGraphs(torch.cat(motif), torch.cat(base), torch.cat(large), generator)


def _facts(
    source: MotifGraphs, rows: dict[str, Tensor], bias: float, seed: int
) -> dict[str, object]:
    agrees = source.bases == source.motifs
    edges = torch.repeat_interleave(source.edges_before.diff())
    share = torch.zeros(len(source)).index_add(0, edges, source.is_motif.float())
    share = share / source.edges_before.diff()
    return {
        "split": "made for each; all bases alike in validation and tests, more nodes in 'larger'",
        "bias": bias,
        "seed": seed,
        "rows": {name: len(part) for name, part in rows.items()},
        "base agrees": {n: round(float(agrees[p].float().mean()), 4) for n, p in rows.items()},
        "motif's share of edges": {n: round(float(share[p].mean()), 4) for n, p in rows.items()},
        "node features": f"{FEATURES} random numbers from 0 to 1, as they are",
        "fingerprint": source.fingerprint(),
    }


def _expect_sound(bias: float, **counts: int) -> None:
    if not 0 <= bias <= 1:
        raise UserError(f"bias must be a probability, from 0 to 1, got {bias:g}")
    for name, count in counts.items():
        if count < len(MOTIFS):
            raise UserError(f"{name} must be at least {len(MOTIFS)} graphs, got {count}")


def _prepare(request: SetRequest) -> Prepared:
    request.expect_no_options()
    return spurious_motif(request.seed, float(request.groups["bias"] or 0.9))


SETS = (
    NamedSet(("spmotif", "spmotif:0.9"), r"spmotif(:(?P<bias>\d{1,3}(\.\d{1,6})?))?", _prepare),
)
