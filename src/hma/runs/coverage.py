"""Answers of a run that promise a coverage: sets of labels, intervals, and rows it does not know.

Thresholds are split-conformal, see :mod:`hma.conformal`, of the run's validation rows: a new row
drawn as they were has its label in the set, or its number in the interval, with a probability of at
least the coverage, and is called unknown with one of at most the rest.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hma.backbones import Frozen
from hma.conformal import class_sets, threshold
from hma.data import Batch
from hma.methods import Learner
from hma.model import HMA
from hma.runs.calibration import (
    Calibration,
    calibrated,
    calibration_key,
    read_calibration,
)
from hma.runs.folder import MEMORY, Run, Which
from hma.runs.memory_scores import memory_of
from hma.runs.prediction_files import Content
from hma.runs.training_data import training_task, with_features
from hma.targets import Classes, Number, SoftClasses
from hma.training import Progress
from hma.unfamiliar import unfamiliarity

UNKNOWN_LABEL = "unknown"
BETWEEN = " | "
"""Between the labels of a set."""


class Covered:
    """What answers a run's rows, with what a coverage promises beside each answer.

    Args:
        run: A finished run.
        coverage: Between 0 and 1, such as 0.95.
        which: Who answers; what the run deployed if not given.
        context: In which.
        progress: Shows how far it is, where the validation rows have to be asked again.
    """

    def __init__(
        self,
        run: Run,
        coverage: float,
        *,
        which: Which | None = None,
        context: str = "alone",
        progress: Progress | None = None,
    ) -> None:
        self.target, self.names = run.preparation.target, run.preparation.classes
        self.coverage = coverage
        self.learner = run.learner(run.deployed.which if which is None else which)
        self.model = memory_of(run, self.learner)
        found = calibration(run, self.learner, self.model, which, context, progress)
        self.rows = found.rows
        self.most_wrong = _threshold(found.answers, coverage)
        self.most_unfamiliar = _threshold(found.unfamiliar, coverage)
        self.answered = self.unknown = self.in_sets = 0

    @property
    def columns(self) -> dict[str, Content]:
        """What is added to the columns of a prediction."""
        found: dict[str, Content] = {}
        if self.most_wrong is not None and isinstance(self.target, Number):
            found |= {f"{self.names[0]} from": "number", f"{self.names[0]} to": "number"}
        elif self.most_wrong is not None:
            found |= {"labels": "text"}
        if self.most_unfamiliar is not None:
            found |= {"unknown": "text", "unfamiliarity": "number"}
        return found

    @torch.no_grad()
    def encoded(self, batch: Batch) -> Batch:
        """Return a batch with the features of a frozen backbone, so that it runs once for all."""
        if batch.features is not None or not isinstance(self.model.backbone, Frozen):
            return batch
        return batch._replace(x=None, features=self.model.backbone(batch.x))

    def completed(
        self, cells: Sequence[Sequence[Any]], batch: Batch, said: Tensor
    ) -> list[list[Any]]:
        """Return the cells of each row with those of :attr:`columns` after them.

        A row that the memory does not know has the label 'unknown'; its set is what it was.

        Args:
            cells: Of the answers.
            batch: The rows.
            said: What was answered, as :meth:`hma.targets.Target.expected` gives it.
        """
        found = [list(row) for row in cells]
        self.answered += len(found)
        if self.most_wrong is not None:
            for row, more in zip(found, self._answers(said), strict=True):
                row.extend(more)
        if self.most_unfamiliar is None:
            return found
        far = unfamiliarity(self.model, batch.x, features=batch.features).double()
        for row, value in zip(found, far.tolist(), strict=True):
            rejected = value > self.most_unfamiliar
            self.unknown += rejected
            if rejected and isinstance(self.target, Classes | SoftClasses):
                row[0] = UNKNOWN_LABEL
            row.extend(["yes" if rejected else "no", value])
        return found

    def _answers(self, said: Tensor) -> list[list[Any]]:
        assert self.most_wrong is not None
        if isinstance(self.target, Number):
            return [[v - self.most_wrong, v + self.most_wrong] for v in said.double().tolist()]
        sets = class_sets(said, self.most_wrong)
        self.in_sets += int(sets.sum())
        names = [[n for n, held in zip(self.names, row, strict=True) if held] for row in sets]
        return [[BETWEEN.join(held)] for held in names]

    def lines(self) -> list[str]:
        """Return what was promised and what came of it, in words."""
        said = [f"coverage {self.coverage:.4g}, by {self.rows} validation rows"]
        if self.most_wrong is None:
            said.append(f"labels of the kind {self.target.kind!r} have no sets or intervals")
        elif isinstance(self.target, Number):
            said.append(f"{self.names[0]} is within {self.most_wrong:.4g}")
        elif self.answered:
            said.append(f"{self.in_sets / self.answered:.2f} labels in a set")
        if self.most_unfamiliar is not None:
            said.append(f"{self.unknown} of {self.answered} rows are unknown")
        lines = ["; ".join(said)]
        if self.most_unfamiliar is None:
            lines.append(
                "no row is called unknown: that needs a memory whose rows vote; train with "
                "--similarity distance"
            )
        return lines


def calibration(
    run: Run,
    learner: Learner,
    model: HMA,
    which: Which | None = None,
    context: str = "alone",
    progress: Progress | None = None,
) -> Calibration:
    """Return what the validation rows say of answers; asked once, then kept with the run.

    Args:
        run: A finished run; its data is opened only where nothing is kept.
        learner: What answers.
        model: The run's memory.
        which: Who that is; what the run deployed if not given.
        context: In which.
        progress: Shows how far it is.
    """
    shares = run.deployed.asked(which).counted
    weights = {name: run.record(name).weights_sha256 for name in {*shares, MEMORY}}
    key = calibration_key(shares, weights, context, run.living.chain)
    kept = read_calibration(run.folder, key)
    if kept is not None:
        return kept
    task = with_features(run, training_task(run).task, learner, progress)
    size = run.options.recipe.eval_batch_size
    found = calibrated(learner, model, task.validation, batch_size=size, context=context)
    if which in (None, run.deployed.which):
        found.write(run.folder, key)
    return found


def _threshold(scores: Tensor | None, coverage: float) -> float | None:
    return None if scores is None else threshold(scores, coverage)
