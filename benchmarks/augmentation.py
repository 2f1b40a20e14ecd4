"""What augmentations of graphs cost: graphons once, and a batch of changed graphs at every step."""

from collections.abc import Callable, Mapping

import torch

from benchmarks.report import Row, Section
from hma.backbones import GIN
from hma.data import Split, Task, builtin
from hma.errors import UserError
from hma.methods import Method, erm
from hma.paper.rivals import drop_edge, drop_node, g_mixup, subgraph
from hma.paper.rivals.g_mixup import class_graphons, laid_graphs
from hma.training.cost import interleave

DATA, QUICK_DATA = ("IMDB-BINARY", "REDDIT-BINARY"), ("IMDB-BINARY",)
"""TU data sets under ``$HMA_DATA/TU``."""
AIM_GRAPHONS = 5.0
BATCH, SEED = 128, 0
AROUND: Mapping[str, Callable[[Method], Method]] = {
    "drop_edge": drop_edge,
    "drop_node": drop_node,
    "subgraph": subgraph,
    "g_mixup": g_mixup,
}


def augmentation(quick: bool) -> Section:
    """Time the graphons of all classes, and batches as each method trains on them."""
    tasks, absent = [], None
    for name in QUICK_DATA if quick else DATA:
        try:
            tasks.append(builtin(f"tu:{name}", seed=SEED).task)
        except UserError as error:
            absent = str(error)
    return Section(
        name="augmentation",
        title="Graphons, and batches of changed graphs",
        method=(
            "Graphons of all classes from the training split, edges gathered and nodes sorted; a "
            f"batch of {BATCH} graphs, plain and with each method's default settings, in turn. "
            "Medians; of batches in processor time, which other processes lengthen less."
        ),
        rows=tuple(_row(task, repeats=3 if quick else 15) for task in tasks),
        skipped=None if tasks else absent,
    )


def _row(task: Task, repeats: int) -> Row:
    def estimate() -> dict[int, torch.Tensor]:
        return class_graphons(laid_graphs(task.train, task.name), task.train.labels)

    plain = erm(lambda task: GIN(task.shape[0]))
    splits = {"plain": task.train}
    for name, around in AROUND.items():
        splits[name] = around(plain)(task, SEED).training_split(task.train, SEED)
    sides = {name: lambda split=split: _batch(split) for name, split in splits.items()}
    taken = interleave({"graphons": estimate, **sides}, repeats)
    resolution = len(next(iter(estimate().values())))
    return {
        "data": task.name,
        "graphs": len(task.train),
        "resolution": resolution,
        "graphons_s": taken["graphons"].median,
        "aim_s": AIM_GRAPHONS,
        **{f"{name}_processor_ms": 1000 * taken[name].processor_median for name in splits},
    }


def _batch(split: Split) -> None:
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(SEED))
    split.batch(order[:BATCH], epoch=0)
