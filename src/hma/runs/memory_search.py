"""Looking into a run's memory: rows by class, by nearness to an example, by what they decide."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from hma.data import Source
from hma.errors import UserError
from hma.io.files import atomic_write
from hma.methods.memory import WithMemory
from hma.model import MemoryModel
from hma.questions.explain import explain
from hma.runs.deployment import MEMORY
from hma.runs.folder import Run, keyed_rows
from hma.runs.held_out import judging_run, judging_splits
from hma.runs.living import LivingMemory, ids_of_class
from hma.runs.remembered import MemoryRow
from hma.runs.source import features_of, training_task, with_features
from hma.training import Progress
from hma.vote.voting_memory import VotingMemory

PAIRS = 5_000_000
"""Pairs of a row that is asked and a stored row that are looked at at once."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Rows of a memory in an order that was asked for.

    Args:
        rows: The rows.
        measure: What ``values`` are, such as 'distance'; empty where there are none.
        values: A number for each row.
        of: How many rows there are to choose from.
        note: What the numbers are about, in words.
    """

    rows: Sequence[MemoryRow]
    measure: str
    values: Sequence[float]
    of: int
    note: str = ""

    @property
    def header(self) -> list[str]:
        """Names of the columns."""
        return ["id", "label", *([self.measure] if self.measure else []), "what", "where"]

    def lines(self) -> list[list[str]]:
        """Return the cells of each row."""
        numbers = [[f"{value:.6g}"] for value in self.values] or [[] for _ in self.rows]
        return [
            [str(row.id), row.label, *number, row.what, row.where]
            for row, number in zip(self.rows, numbers, strict=True)
        ]


def search(
    memory: LivingMemory,
    *,
    label: str | None = None,
    like: tuple[Source, int] | None = None,
    deciding: bool = False,
    top: int | None = None,
    progress: Progress | None = None,
) -> Found:
    """Return rows of a memory.

    Args:
        memory: Of a run.
        label: Those of this class alone.
        like: A row of a source and its place: the nearest to it come first.
        deciding: Those with the largest part of the vote over the run's test rows come first.
        top: How many; all if not given.
        progress: Shows how far it is.
    """
    if like is not None and deciding:
        raise UserError("give --like or --deciding, not both: rows have one order")
    learner = memory.run.learner(MEMORY)
    assert isinstance(learner, WithMemory)
    store = keyed_rows(learner.model, str(memory.run.folder))
    ids = store.rows().ids
    values, measure, note, largest = None, "", "", False
    if like is not None:
        values, measure = _distances(memory.run, learner.model, *like), "distance"
        note = f"nearest to {like[0].describe(like[1])}, by the keys that vote"
    elif deciding:
        values, asked = _decides(memory.run, learner, progress)
        measure, largest = "share of the vote", True
        note = f"share of the vote over {asked}"
    chosen = torch.arange(len(ids))
    if label is not None:
        chosen = torch.nonzero(torch.isin(ids, ids_of_class(memory.run, store, label)))[:, 0]
    if values is not None:
        chosen = chosen[values[chosen].argsort(descending=largest, stable=True)]
    of, chosen = len(chosen), chosen[:top]
    return Found(
        rows=memory.rows(ids[chosen].tolist()),
        measure=measure,
        values=[] if values is None else values[chosen].tolist(),
        of=of,
        note=note,
    )


@torch.no_grad()
def _distances(run: Run, model: MemoryModel, rows: Source, index: int) -> Tensor:
    """Return how far each stored row is from a row of a source, by the keys of the vote."""
    part = rows.up_to(index + 1)
    if not 0 <= index < len(part):
        raise UserError(f"--index must be from 0 to {len(part) - 1} for {rows.name}, got {index}")
    batch = run.preparation.split(part, [index]).batch(torch.tensor([0]))
    with model.reading():
        features = model.encode_for_memory(batch.x) if batch.features is None else batch.features
        stored = keyed_rows(model).rows()
        assert isinstance(model, VotingMemory)
        held = model.vote.keys(stored.features)
        apart: Tensor = held - model.vote.keys(features)
    return apart.square().sum(dim=1).sqrt()


def _decides(run: Run, learner: WithMemory, progress: Progress | None) -> tuple[Tensor, str]:
    """Return each stored row's part of the vote over the run's test rows, and which these are.

    Without test rows they are the validation rows, asked of the memory that did not learn from
    them: rows of it that did not vote have no part.
    """
    task = with_features(run, training_task(run).task, learner, progress)
    found = next(iter(judging_splits(task).items()), None)
    if found is None:
        raise UserError(f"{run.folder} has neither test nor validation rows; leave --deciding out")
    name, split = found
    held = keyed_rows(learner.model).rows().ids
    if (judging := judging_run(run, task)) is not run:
        asked = judging.learner(MEMORY)
        assert isinstance(asked, WithMemory)
        learner = asked
    voting = keyed_rows(learner.model).rows().ids
    count = len(voting)
    total = torch.zeros(count, dtype=torch.double)
    for some in torch.split(torch.arange(len(split)), max(1, PAIRS // max(count, 1))):
        shares = explain(learner.model, features=features_of(learner, split, len(some), some)).queue
        total += (shares / shares.sum(dim=1, keepdim=True).clamp(min=1e-12)).double().sum(dim=0)
    parts = torch.zeros(len(held), dtype=torch.double)
    parts[torch.isin(held, voting)] = total  # both keep the order in which rows came
    return parts / len(split), f"{len(split)} {name} rows"


class Listed(Protocol):
    """Rows with names of their columns."""

    @property
    def header(self) -> list[str]:
        """Names of the columns."""
        ...

    def lines(self) -> list[list[str]]:
        """Return the cells of each row."""
        ...


def write_rows(found: Listed, path: Path) -> None:
    """Write rows as CSV, whole or not at all."""
    with atomic_write(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as to:
        writer = csv.writer(to)
        writer.writerow(found.header)
        writer.writerows(found.lines())
