"""What a change of a memory does to its answers: rows scored before and after."""

import math
from functools import cached_property

import torch
from torch import Tensor

from hma.errors import UserError
from hma.methods import Learner
from hma.methods.memory import WithMemory
from hma.methods.mixture import Mixture
from hma.metrics import METRICS
from hma.model import MemoryModel
from hma.runs.deployment import MEMORY
from hma.runs.folder import VALIDATION, Run, keyed_rows
from hma.runs.held_out import taught_held_out, without_rows
from hma.runs.memory_versions import Score
from hma.runs.source import training_task, with_features
from hma.runs.taught_rows import TaughtRows
from hma.targets import Classes, Target
from hma.training import Progress, all_logits

PAIRS = 20_000_000
"""Pairs of a row that is left out and a stored row that are looked at at once."""


class LoadedRun:
    """A run with its memory and what answers, each loaded once and when it is first needed.

    Args:
        run: The run, with the version of its memory that is meant.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def memory(self) -> WithMemory:
        """The memory."""
        learner = self.run.learner(MEMORY)
        assert isinstance(learner, WithMemory)
        return learner

    @cached_property
    def deployed(self) -> Learner:
        """What answers new rows, with the same memory."""
        return self.run.learner(self.run.deployed.which, self.memory)

    @cached_property
    def judged(self) -> "LoadedRun":
        """The same as validation judged it, before it learned from validation rows."""
        return self if self.run.before is self.run else LoadedRun(self.run.before)


def change_scores(
    before: LoadedRun, after: LoadedRun, taught: TaughtRows, progress: Progress | None = None
) -> tuple[Score, ...]:
    """Return what a change did to the validation rows, and how taught rows are answered for.

    Args:
        before, after: The run with its memory before and after.
        taught: Rows that the change added.
        progress: Shows how far a frozen backbone is.
    """
    found = [_of_validation(before, after, progress)]
    if len(taught):
        metric = before.run.record(MEMORY).setup["task"].get("metric", "")
        found += _of_taught(before.memory.model, after.memory.model, taught, metric)
    return tuple(found)


def _of_validation(before: LoadedRun, after: LoadedRun, progress: Progress | None) -> Score:
    run, who = before.run, before.run.deployed.title()
    if run.refitted:
        who += ", as it was before it learned from these rows"
    answering = [before.judged.deployed, after.judged.deployed]
    try:
        opened = training_task(run).task
        task = with_features(run, opened, answering[0], progress)
    except UserError as error:
        return _not_scored(str(error))
    gone = taught_held_out(run, after.run, task=opened)
    name = VALIDATION if len(task.validation) or not task.tests else next(iter(task.tests))
    rest = without_rows(task, gone)
    split = rest.validation if name == VALIDATION else rest.tests[name]
    kind = "validation rows" if name == VALIDATION else "test rows"
    left_out = int(gone[name].sum()) if name in gone else 0
    if left_out and not len(split):
        return _not_scored(f"the memory was taught all {left_out} {kind}", kind)
    values: list[float | None] = [None, None]
    if len(split):
        size = run.options.recipe.eval_batch_size
        values = [
            _score(task.metric, all_logits(one, split, batch_size=size), split.labels, one.target)
            for one in answering
        ]
    return Score(
        rows=kind,
        count=len(split),
        metric=task.metric,
        before=values[0],
        after=values[1],
        how=f"answered by {who}" + (f"; {left_out} that were taught left out" * bool(left_out)),
    )


def _not_scored(why: str, rows: str = "validation rows") -> Score:
    how = f"not scored: {why}"
    return Score(rows=rows, count=0, metric="", before=None, after=None, how=how)


def _of_taught(
    before: MemoryModel, after: MemoryModel, taught: TaughtRows, metric: str
) -> list[Score]:
    """Return scores of taught rows: asked before they were taught, and then by all the others."""
    target = after.target
    known = before.target.outputs
    of_old = torch.ones(len(taught), dtype=torch.bool)
    if isinstance(target, Classes):
        metric = "accuracy"
        of_old = taught.labels < max(known, 2)
    left_out = left_out_logits(after, taught.ids)
    found = []
    for rows, name in ((of_old, "known classes"), (~of_old, "new classes")):
        if not bool(rows.any()):
            continue
        y = target.given(taught.labels[rows])
        earlier = None
        if name == "known classes":
            with torch.no_grad(), before.reading():
                said = before.classify(taught.features[rows])
            y_before = before.target.given(taught.labels[rows])
            earlier = _score(metric, said, y_before, before.target)
        found.append(
            Score(
                rows=f"taught rows of {name}" if isinstance(target, Classes) else "taught rows",
                count=int(rows.sum()),
                metric=metric,
                before=earlier,
                after=_score(metric, left_out[rows], y, target),
                how="answered by the memory; after: each by all rows but itself (leave-one-out)",
            )
        )
    return found


@torch.no_grad()
def left_out_logits(model: MemoryModel, ids: Tensor) -> Tensor:
    """Return what a memory says of rows that it holds, each without its own, ``(N, outputs)``.

    Args:
        model: Its rows vote.
        ids: Sample ids of stored rows.
    """
    store, parts = keyed_rows(model), []
    with model.reading():
        for places in torch.split(store.find(ids), max(1, PAIRS // max(store.size, 1))):
            parts.append(model.leave_one_out(places).logits)
    return torch.cat(parts)


def memory_of(run: Run, learner: Learner) -> MemoryModel:
    """Return the memory of a run, where it is loaded already."""
    if isinstance(learner, Mixture):
        learner = learner.learners.get(MEMORY, learner)
    if not isinstance(learner, WithMemory):
        learner = run.learner(MEMORY)
    assert isinstance(learner, WithMemory)
    return learner.model


def _score(metric: str, logits: Tensor, labels: Tensor, target: Target) -> float | None:
    value = METRICS[metric].score(logits, labels, target) if metric in METRICS else math.nan
    return float(value) if math.isfinite(value) else None
