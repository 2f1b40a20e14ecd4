"""An epoch of training on graphs: the loop of ``fit`` against loops written with PyG."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.report import Row, Section
from benchmarks.training_loop import synthetic_graphs
from hma.backbones import gin
from hma.data import Task, builtin
from hma.data.storage import data_folder
from hma.extras import needed
from hma.methods import erm
from hma.training import Recipe, fabric_for
from hma.training.cost import Timing, interleave, using_threads
from hma.training.loop import Training

SEED, REPEATS = 0, 5
DATA = ("IMDB-BINARY", "REDDIT-BINARY")
"""Under ``$HMA_DATA/TU``; those that are absent are left out."""
AIM_BY_HAND, AIM_LOADER = 1.05, 1.0
RECIPE = Recipe(epochs=1000, batch_size=128, lr=0.01, weight_decay=5e-4)
METHOD = (
    "g-mixup's GIN (5 layers of 64), batch 128, fused Adam, one thread; an epoch of each side in "
    "turn; medians. By hand: PyG's GINConv over batches that Batch.from_data_list made once, "
    "before the clock ran; every epoch their order is shuffled, so that making batches costs this "
    "side nothing. Loader: the same over PyG's DataLoader, which shuffles the graphs and collates "
    "them anew. Ours shuffles the graphs and cuts each batch from the store. All times are of the "
    f"processor, which other processes lengthen less; aims: at most {AIM_BY_HAND:g} times the loop "
    f"by hand, less than {AIM_LOADER:g} times the loader."
)


def graph_steps(quick: bool) -> Section:
    """Compare on graphs with many edges and on graphs with many nodes."""
    about = partial(
        Section, name="graphs", title="Training steps of a GIN against PyG", method=METHOD
    )
    try:
        needed("torch_geometric", "graphs", extra="graph")
    except ImportError as error:
        return about(skipped=str(error))
    tasks = [synthetic_graphs(64)] if quick else [*_tasks()]
    with using_threads(1):
        return about(rows=tuple(_row(task, quick) for task in tasks))


def _tasks() -> list[Task]:
    present = [name for name in DATA if (data_folder() / "TU" / name).is_dir()]
    named = [builtin(f"tu:{name}", seed=SEED).task for name in present]
    return [replace(task, name=name) for task, name in zip(named, present, strict=True)] or [
        synthetic_graphs()
    ]


class ByHand(nn.Module):
    """g-mixup's network as anybody would write it with PyG.

    Args:
        in_features: Width of the node features.
        classes: Number of classes.
        width: Of every layer.
        layers: How many.
    """

    def __init__(self, in_features: int, classes: int, width: int = 64, layers: int = 5) -> None:
        super().__init__()
        pyg = needed("torch_geometric.nn", "graphs", extra="graph")
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for into in [in_features] + [width] * (layers - 1):
            inner = nn.Sequential(nn.Linear(into, width), nn.ReLU(), nn.Linear(width, width))
            self.convolutions.append(pyg.GINConv(inner))
            self.norms.append(nn.BatchNorm1d(width))
        self.pool: Callable[[Tensor, Tensor], Tensor] = pyg.global_mean_pool
        self.hidden, self.head = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, batch: Any) -> Tensor:
        """Return the logits of the graphs."""
        nodes = batch.x
        for convolve, norm in zip(self.convolutions, self.norms, strict=True):
            nodes = norm(convolve(nodes, batch.edge_index).relu())
        logits: Tensor = self.head(self.hidden(self.pool(nodes, batch.batch)).relu())
        return logits


def graphs_of(task: Task) -> list[Any]:
    """Return the training graphs of a task one by one, as PyG has them."""
    data = needed("torch_geometric.data", "graphs", extra="graph")
    batches = (task.train.batch(torch.tensor([place])) for place in range(len(task.train)))
    return [data.Data(one.x.x, one.x.edge_index, y=one.y) for one in batches]


def sides(task: Task) -> dict[str, Callable[[], object]]:
    """Return an epoch of each side."""
    pyg_data = needed("torch_geometric.data", "graphs", extra="graph")
    loader = needed("torch_geometric.loader", "graphs", extra="graph").DataLoader
    graphs, size = graphs_of(task), RECIPE.batch_size
    made = [
        pyg_data.Batch.from_data_list(graphs[start : start + size])
        for start in range(0, len(graphs), size)
    ]
    without_validation = replace(task, validation=_Nothing(task.train.labels[:0]))
    learner = erm(gin("g-mixup"))(task, SEED)
    training = Training(learner, without_validation, RECIPE, SEED, fabric_for(RECIPE))
    return {
        "ours": training.run_epoch,
        "by hand": _epoch(task, lambda: [made[place] for place in torch.randperm(len(made))]),
        "loader": _epoch(task, partial(loader, graphs, batch_size=size, shuffle=True)),
    }


class _Nothing:
    """A split without rows."""

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return 0

    def batch(self, places: Tensor, epoch: int | None = None) -> Any:
        raise AssertionError("there are no rows to ask for")


def _epoch(task: Task, batches: Callable[[], Any]) -> Callable[[], float]:
    """Return a loop written by hand over the batches of an epoch."""
    torch.manual_seed(SEED)
    model = ByHand(task.shape[0], len(task.classes))
    optimizer = torch.optim.Adam(
        model.parameters(), lr=RECIPE.lr, weight_decay=RECIPE.weight_decay, fused=True
    )

    def run() -> float:
        model.train()
        total = torch.zeros(())
        for batch in batches():
            loss = cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.detach() * len(batch.y)
        return float(total)

    return run


def _row(task: Task, quick: bool) -> Row:
    taken = interleave(sides(task), repeats=1 if quick else REPEATS)
    steps = -(-len(task.train) // RECIPE.batch_size)
    to_hand, to_loader = (_ratio(taken["ours"], taken[side]) for side in ("by hand", "loader"))
    return {
        "data": task.name,
        "graphs": len(task.train),
        **{f"{name.replace(' ', '_')}_ms": _step(one, steps) for name, one in taken.items()},
        "to_by_hand_times": to_hand,
        "to_loader_times": to_loader,
        "meets_aim": None if quick else to_hand <= AIM_BY_HAND and to_loader < AIM_LOADER,
        "repeats": len(taken["ours"].seconds),
    }


def _ratio(ours: Timing, theirs: Timing) -> float:
    return ours.processor_median / theirs.processor_median


def _step(timing: Timing, steps: int) -> float:
    return 1000 * timing.processor_median / steps
