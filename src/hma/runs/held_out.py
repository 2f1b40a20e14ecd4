"""Rows of a run's validation and test splits that its memory was taught: they judge nothing.

A row is recognised by a hash of what it holds once it is prepared, its label left out. Training
keeps the hashes of all held-out rows in the run folder; every taught row carries its own.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hma.data import Split, Task
from hma.data.task import Part, split_hashes
from hma.io.tensor_files import read_features, write_features
from hma.report.numbers import counted
from hma.runs.deployment import MEMORY
from hma.runs.folder import VALIDATION, Run
from hma.runs.source import training_task

HELD_OUT = "held-out"
LEAST_ROWS = 20
"""Test rows below which nothing is claimed, where others were left out."""
BySplit = dict[str, Tensor]
"""Split -> a value for each of its rows ``(N,)``."""


def keep_hashes(folder: Path, task: Task) -> None:
    """Keep the hashes of held-out rows in a run folder, unless they are there.

    Args:
        folder: Of the run.
        task: Its rows, as the preparation makes them.
    """
    if read_features(folder, _key(task.facts), {}, what=HELD_OUT) is None:
        _made(folder, task)


def held_out_hashes(run: Run, task: Task | None = None) -> BySplit:
    """Return the hashes of the validation and test rows of a run.

    Args:
        run: A finished run; its data is opened only where the hashes are not kept.
        task: Its rows, where they are open.
    """
    facts = run.record(MEMORY).setup["task"]["facts"]
    kept = read_features(run.folder, _key(facts), {}, what=HELD_OUT)
    if kept is not None:
        return {VALIDATION: kept.pop(VALIDATION), **kept}
    return _made(run.folder, task or training_task(run).task)


def places_of(run: Run, hashes: Tensor) -> dict[str, list[int]]:
    """Return which held-out rows of a run have these hashes: split -> places; nothing for none."""
    found = {name: torch.isin(own, hashes) for name, own in held_out_hashes(run).items()}
    return {name: torch.nonzero(own)[:, 0].tolist() for name, own in found.items() if own.any()}


def taught_held_out(*runs: Run, task: Task | None = None) -> BySplit:
    """Tell which validation and test rows the memory of a run, or of one of several, was taught.

    Args:
        runs: One run, with versions of its memory.
        task: Its rows, where they are open.
    """
    taught = torch.cat([run.living.rows.hashes for run in runs])
    if not len(taught):
        return {}
    return {name: torch.isin(own, taught) for name, own in held_out_hashes(runs[0], task).items()}


def without_rows(task: Task, gone: BySplit) -> Task:
    """Return a task without some of its validation and test rows."""

    def rest(name: str, split: Split) -> Split:
        if name not in gone or not bool(gone[name].any()):
            return split
        return Part(split, torch.nonzero(~gone[name])[:, 0])

    return replace(
        task,
        validation=rest(VALIDATION, task.validation),
        tests={name: rest(name, split) for name, split in task.tests.items()},
    )


def judging_splits(task: Task) -> dict[str, Split]:
    """Return the test sets that have rows; without any the validation rows, if there are any."""
    tests = {name: split for name, split in task.tests.items() if len(split)}
    return tests or ({VALIDATION: task.validation} if len(task.validation) else {})


def judging_run(run: Run, task: Task) -> Run:
    """Return the run whose models the rows of :func:`judging_splits` judge.

    Where these are validation rows it is that of before these were learned from.

    Args:
        run: A finished run.
        task: Its rows, without those that its memory was taught.
    """
    return run.before if VALIDATION in judging_splits(task) else run


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Say how many rows of each split.

    Example:
        >>> counts_in_words({"validation": 1, "test": 3})
        '1 validation row and 3 test rows'
    """
    said = [counted(count, f"{name} row") for name, count in counts.items() if count]
    return " and ".join(said)


def _made(folder: Path, task: Task) -> BySplit:
    splits = {VALIDATION: task.validation, **task.tests}
    made = {name: split_hashes(split) for name, split in splits.items()}
    write_features(folder, _key(task.facts), made, what=HELD_OUT)
    return made


def _key(facts: Mapping[str, Any]) -> str:
    known = {name: facts.get(name) for name in ("fingerprint", "given", "rows", "seed")}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
