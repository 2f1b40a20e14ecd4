"""Rows of a table's data as one looks at them: pictures, graphs, texts."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hma.data import Task
from hma.data.task import limited
from hma.paper.table import Table


class ExampleRow(NamedTuple):
    """A row of the data.

    Args:
        label: Name of its class.
        image: ``(channels, height, width)`` from 0 to 1, where it is one.
        edges: Between its nodes, ``(2, E)``, where it is a graph.
        nodes: How many those are.
        text: Where it is one.
    """

    label: str
    image: Tensor | None = None
    edges: Tensor | None = None
    nodes: int = 0
    text: str = ""


def example_rows(
    table: Table, budget: str, task: str, seed: int, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], ExampleRow]:
    """Return rows by split and place, as the cells of a budget count them.

    Args:
        table: Whose data it is.
        budget: Decides which rows there are.
        task: Name of the column.
        seed: Of the cell.
        places: Split (``train``, ``validation`` or a test split) and place of each row.
    """
    problem = table.problem(task, budget)
    whole = (problem.shown or problem.task)(seed)
    data = limited(whole, table.budget(budget).rows, seed=seed)
    splits = {"train": data.train, "validation": data.validation, **data.tests}
    found = {}
    for name, place in places:
        batch = splits[name].batch(torch.tensor([place]))
        found[name, place] = _row(data, batch.x, int(batch.y[0]))
    return found


def _row(task: Task, x: Any, label: int) -> ExampleRow:
    name = str(task.classes[label])
    if task.kind == "image":
        image = x[0].detach().float()
        low, high = image.amin(), image.amax()
        return ExampleRow(name, image=(image - low) / (high - low).clamp(min=1e-6))
    if task.kind == "graph":
        return ExampleRow(name, edges=x.edge_index.detach().cpu(), nodes=int(x.num_nodes))
    if task.kind == "text" and isinstance(x, list | tuple) and isinstance(x[0], str):
        return ExampleRow(name, text=x[0])
    return ExampleRow(name)
