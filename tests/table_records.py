"""Records of a made-up table: no model is trained, the numbers are drawn."""

import random
from collections.abc import Iterable
from typing import Any

from hma.backbones import mlp
from hma.methods import erm
from hma.paper.results import Results, definition
from hma.paper.table import Budget, Cell, Problem, Row, Table, memory_row
from hma.training import Recipe, Record

PUBLISHED = {
    "plain": {"left": (70.0, 1.5), "right": (60.0, 0.25)},
    "hma": {"left": (72.25, 0.5)},
}


def no_data(seed: int) -> Any:
    raise AssertionError("a report must not open data")


def made_up_table(**changes: Any) -> Table:
    """Return a table of two tasks and three rows, ten seeds, two test splits."""
    given: dict[str, Any] = {
        "key": "T9",
        "title": "Made up",
        "problems": {
            name: Problem(task=no_data, backbone=lambda task: mlp(2)) for name in ("left", "right")
        },
        "rows": {
            "plain": Row(build=erm, what="the backbone"),
            "rma": memory_row("rma"),
            "hma": memory_row("hma"),
        },
        "budgets": {
            name: Budget(what=f"{name} of it", recipe=Recipe(steps=1), seeds=10)
            for name in ("smoke", "small", "paper")
        },
        "baseline": "plain",
        "published": PUBLISHED,
        "notes": ("A note.",),
    }
    return Table(**(given | changes))


def record_of(table: Table, cell: Cell, **changes: Any) -> Record:
    """Return a record with drawn scores; rows that see their batch have three contexts."""
    draw = random.Random(f"{cell.task} {cell.method} {cell.seed}")
    own = ["batch", "batch-sorted", "alone"] if cell.method == "hma" else ["alone"]
    contexts = changes.pop("contexts", own)
    tests = {
        split: {
            context: {table.metric: round(draw.uniform(0.6, 0.8), 3), "nll": 1.0}
            for context in contexts
        }
        for split in ("first", "second")
    }
    values: dict[str, Any] = {
        "name": f"{cell.task}/{cell.method}",
        "seed": cell.seed,
        "setup": {"method": {"contexts": contexts}, "recipe": table.recipe(cell).to_json()},
        "resolved": definition(table, cell),
        "git_commit": "c0ffee",
        "versions": {"python": "3.11.7", "hma": "0.1.0"},
        "data_fingerprint": f"{cell.task} {cell.seed}",
        "epochs": [],
        "selected_epoch": 0,
        "selection_rule": "last epoch",
        "tests": tests,
        "weights_sha256": None,
        "seconds": draw.uniform(1, 100),
        "epoch_seconds": [],
        "peak_memory_bytes": draw.randrange(2**28, 2**29),
    }
    return Record(**(values | changes))


def records_of(table: Table, cells: Iterable[Cell] | None = None) -> dict[Cell, Record]:
    """Return records of cells, of the whole budget 'small' if not given."""
    return {cell: record_of(table, cell) for cell in cells or table.cells("small")}


def keep(results: Results, records: dict[Cell, Record]) -> Results:
    """Write records to a folder of results."""
    for cell, record in records.items():
        results.keep(cell, record)
    return results
