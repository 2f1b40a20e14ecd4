"""What ``hma.training.fit`` costs over a loop written by hand, on a small GIN.

Both train the same network on the same batches, validate after every epoch and score the test
rows at the end. They take turns, so that whatever else the machine does hits both alike; the
ratio is that of the medians.

    python -m benchmarks.training_loop --data PROTEINS -o training_loop.json
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.machine import this_machine
from hma.backbones.gnn import GIN
from hma.data import Split, Task, builtin
from hma.data.graph.store import Graphs, GraphStore, Packed
from hma.methods import erm
from hma.methods.erm import Classifier
from hma.training import Recipe, SilentProgress, fit

BATCH, EVAL_BATCH, SEED = 64, 256, 0


def synthetic_graphs(count: int = 800, classes: int = 2) -> Task:
    """Rings and stars of 10 to 40 nodes with random node labels; for machines without the data."""
    generator = torch.Generator().manual_seed(SEED)
    nodes = torch.randint(10, 40, (count,), generator=generator)
    labels = torch.arange(count) % classes
    edges = []
    for size, label in zip(nodes.tolist(), labels.tolist(), strict=True):
        here = torch.arange(size)
        there = (here + 1) % size if label else torch.zeros_like(here)
        edges.append(torch.stack([torch.cat([here, there]), torch.cat([there, here])]))
    kinds = torch.randint(3, (int(nodes.sum()),), generator=generator)
    keys = {
        "x": Packed(torch.eye(3)[kinds], nodes),
        "edge_index": Packed(torch.cat(edges, dim=1), 2 * nodes, beside=True, step=nodes),
    }
    store = GraphStore(nodes, keys)
    order = torch.randperm(count, generator=generator)
    parts = torch.split(order, [count // 2, count // 4, count // 4])
    train, validation, test = (Graphs(store, rows, labels[rows]) for rows in parts)
    return Task("synthetic", "graph", ("star", "ring"), (3,), train, validation, {"test": test})


def open_task(name: str) -> Task:
    root = os.environ.get("HMA_DATA")
    if root is None or not (Path(root) / "TU" / name).is_dir():
        print(f"TU/{name} is not under $HMA_DATA; using synthetic graphs")
        return synthetic_graphs()
    return builtin(f"tu:{name}", seed=SEED).task


def network(task: Task) -> nn.Module:
    return GIN(task.shape[0], width=32, num_layers=3, dropout=0.1)


@torch.no_grad()
def accuracy(model: nn.Module, split: Split) -> float:
    model.eval()
    right = 0
    for places in torch.split(torch.arange(len(split)), EVAL_BATCH):
        batch = split.batch(places)
        right += int((model(batch.x).argmax(1) == batch.y).sum())
    return right / len(split)


def by_hand(task: Task, epochs: int, fused: bool | None = None) -> float:
    """The loop that everybody writes."""
    torch.manual_seed(SEED)
    model = Classifier(network(task), len(task.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)
    best, kept = -1.0, model.state_dict()
    for _ in range(epochs):
        model.train()
        total = 0.0
        for places in torch.split(torch.randperm(len(task.train)), BATCH):
            batch = task.train.batch(places)
            loss = cross_entropy(model(batch.x), batch.y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(places)
        score = accuracy(model, task.validation)
        if score > best:
            best, kept = score, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(kept)
    return accuracy(model, task.tests["test"])


def by_fit(task: Task, epochs: int, folder: Path | None = None) -> float:
    recipe = Recipe(epochs=epochs, batch_size=BATCH, eval_batch_size=EVAL_BATCH)
    learner = erm(network)(task, SEED)
    record = fit(learner, task, recipe, seed=SEED, folder=folder, progress=SilentProgress())
    return record.tests["test"]["alone"]["accuracy"]


def by_fit_into_folder(task: Task, epochs: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        return by_fit(task, epochs, Path(name) / "run")


def timed(run: Callable[[], float]) -> dict[str, float]:
    """Time on the clock, and time on the processor, which other processes lengthen less."""
    clock, processor = time.perf_counter(), time.process_time()
    run()
    return {
        "clock": time.perf_counter() - clock,
        "processor": time.process_time() - processor,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="PROTEINS", help="name of a TU data set")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of one run")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each loop")
    parser.add_argument("-o", "--output", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = open_task(options.data)
    loops: dict[str, Callable[[], float]] = {
        "by hand": lambda: by_hand(task, options.epochs),
        "by hand, fused Adam": lambda: by_hand(task, options.epochs, fused=True),
        "fit": lambda: by_fit(task, options.epochs),
        "fit, folder": lambda: by_fit_into_folder(task, options.epochs),
    }
    for loop in loops.values():
        loop()  # imports and first-time work
    times: dict[str, list[dict[str, float]]] = {name: [] for name in loops}
    for _ in range(options.rounds):
        for name, loop in loops.items():
            times[name].append(timed(loop))
    steps = options.epochs * -(-len(task.train) // BATCH)
    medians = {
        kind: {name: statistics.median(each[kind] for each in times[name]) for name in loops}
        for kind in ("clock", "processor")
    }
    ratios = {
        f"{kind}, against {base}": {name: found[name] / found[base] for name in loops}
        for kind, found in medians.items()
        for base in ("by hand", "by hand, fused Adam")
    }
    for kind, values in ratios.items():
        each = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
        print(f"ratio of {kind}: {each}")
    each = ", ".join(f"{name} {1e3 * s / steps:.2f}" for name, s in medians["clock"].items())
    print(f"milliseconds a step: {each}")
    if options.output:
        found = {
            "task": task.name,
            "epochs": options.epochs,
            "steps": steps,
            "seconds": times,
            "median_seconds": medians,
            "ratios": ratios,
            "machine": asdict(this_machine()),
        }
        options.output.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
