"""Spurious motifs: graphs whose motif is the label, on a base that betrays it in training only.

DIR's data (Wu et al., "Discovering Invariant Rationales for Graph Neural Networks"), made in
memory. Nothing to download.
"""

import torch
from torch import Tensor

from hma.data.graph.motifs import BASES, FEATURES, MOTIFS, MotifGraphs
from hma.data.graph.preparation import GraphPreparation
from hma.data.graph.store import Graphs, GraphStore, Laid
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.task import Task
from hma.data.task_from_source import Prepared
from hma.errors import UserError

UNBIASED = 1 / 3
GRAPHS = {"train": 3000, "validation": 600, "unbiased": 600, "larger": 600}
"""Graphs of each split unless others are asked for, a third of each motif."""


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
    motif = Laid(source.is_motif, source.edges_before.diff())
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


def _prepared(asked: Asked) -> Prepared:
    asked.expect_no_options()
    return spurious_motif(asked.seed, float(asked.found["bias"] or 0.9))


SET = NamedSet(("spmotif", "spmotif:0.9"), r"spmotif(:(?P<bias>\d{1,3}(\.\d{1,6})?))?", _prepared)
