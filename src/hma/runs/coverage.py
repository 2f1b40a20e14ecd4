"""Answers of a run that promise a coverage: sets of labels, intervals, and rows it does not know.

Thresholds are split-conformal, see :mod:`hma.questions.conformal`, of the run's validation rows
without those that the memory was taught, and of the version of the memory that answers: a new row
drawn as they were has its label in the set, or its number in the interval, with a probability of at
least the coverage, and is called unknown with one of at most the rest.

Where a run was fitted again on all rows, the thresholds are of the models before, which never saw
the validation rows, and which rows are unknown is asked of the memory before: so that stays exact.
Sets and intervals are of the models that answer, which saw more rows; that they cover as much is
measured (docs/living-memory.md), not proved.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hma.backbones import Frozen
from hma.data import Batch, Split, Task
from hma.errors import UserError
from hma.io.files import FileError, explain_write_errors
from hma.io.json_files import read_json, write_json
from hma.methods import Learner
from hma.model import MemoryModel
from hma.questions.conformal import class_scores, class_sets, least_rows, threshold
from hma.questions.unfamiliar import unfamiliarity
from hma.runs.deployment import MEMORY, Which
from hma.runs.folder import Run
from hma.runs.held_out import taught_held_out, without_rows
from hma.runs.memory_scores import memory_of
from hma.runs.prediction_files import Content
from hma.runs.source import training_task, with_features
from hma.targets import Classes, Number, SoftClasses, Target
from hma.training import Progress, all_logits

CALIBRATIONS = "calibrations"
KEPT = 16
"""Files that a run folder keeps: the first, of what training left, and the newest ones."""
REMEDY = "remove it, and the next hma predict --coverage makes it again"
SHAPE = {
    "key": str,
    "rows": int,
    "taught": int,
    "answers": list[float] | None,
    "unfamiliar": list[float] | None,
}


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Scores of rows that nothing was trained on, from which every threshold follows.

    Args:
        rows: How many.
        taught: How many more validation rows there are, which the memory was taught: rows that vote
            say nothing of others.
        answers: How wrong the answer to each row is: what its class lacks to certainty, or how far
            the number is off; None for labels that have no such score.
        unfamiliar: How unfamiliar each row is; None where the memory's rows do not vote.
    """

    rows: int
    answers: Tensor | None
    unfamiliar: Tensor | None
    taught: int = 0

    def write(self, folder: Path, key: str) -> None:
        """Keep the scores in a run's folder, sealed, beside those of other versions.

        Args:
            folder: Of the run.
            key: Whose answers they are of, see :func:`calibration_key`.
        """
        values: dict[str, Any] = {"key": key, "rows": self.rows, "taught": self.taught}
        for name in ("answers", "unfamiliar"):
            scores = getattr(self, name)
            values[name] = None if scores is None else scores.tolist()
        path = calibration_file(folder, key)
        with explain_write_errors(path):
            path.parent.mkdir(exist_ok=True)
        write_json(path, values, sealed=True, indent=None)
        _remove_old(path.parent)


def calibration_file(folder: Path, key: str) -> Path:
    """Return where a run's folder keeps the scores of what has this key."""
    return folder / CALIBRATIONS / f"{key}.json"


def _remove_old(folder: Path) -> None:
    """Remove all but the first and the newest files; another process may be at it too."""
    aged = []
    for path in folder.glob("*.json"):
        with suppress(FileNotFoundError):
            aged.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(aged)[1 : 1 - KEPT]:
        path.unlink(missing_ok=True)


def read_calibration(folder: Path, key: str) -> Calibration | None:
    """Read what :meth:`Calibration.write` wrote; None if it is not there."""
    path = calibration_file(folder, key)
    if not path.exists():
        return None
    values = read_json(path, SHAPE, sealed=True, remedy=REMEDY)
    if values["key"] != key:
        raise FileError(f"{path} is damaged: it is of other answers; {REMEDY}")
    scores = {
        name: None if values[name] is None else torch.tensor(values[name], dtype=torch.double)
        for name in ("answers", "unfamiliar")
    }
    return Calibration(rows=values["rows"], taught=values["taught"], **scores)


def calibration_key(
    shares: Mapping[Which, float],
    weights: Mapping[Which, str | None],
    context: str,
    versions: Sequence[str] = (),
) -> str:
    """Return a hash of what decides the answers.

    Args:
        shares: What each candidate counts.
        weights: Hash of the weights of each of them, and of the memory.
        context: In which they answer.
        versions: Hashes of the versions that the memory is made of; none as training left it.
    """
    said = {"calibration": 2, "shares": dict(shares), "weights": dict(weights)}
    whole = json.dumps(said | {"context": context, "versions": list(versions)}, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def calibrated(
    learner: Learner,
    model: MemoryModel,
    split: Split,
    *,
    batch_size: int,
    context: str | None = None,
    taught: int = 0,
) -> Calibration:
    """Return the scores of rows.

    Under ``torch.distributed`` all processes take part.

    Args:
        learner: What answers.
        model: The memory that says how familiar a row is.
        split: Rows with labels, none of which the memory was taught.
        batch_size: Rows per batch.
        context: In which it answers; its first if not given.
        taught: Rows that were left out since the memory was taught them.
    """
    said = learner.target.expected(torch.empty(0, learner.target.outputs))
    far = torch.empty(0, dtype=torch.double)
    if len(split):
        logits = all_logits(learner, split, batch_size=batch_size, context=context)
        said, far = learner.target.expected(logits), how_unfamiliar(model, split, batch_size)
    return Calibration(
        rows=len(split),
        answers=answer_scores(learner.target, said, split.labels),
        unfamiliar=far if tells_unknown(model) else None,
        taught=taught,
    )


def answer_scores(target: Target, said: Tensor, labels: Tensor) -> Tensor | None:
    """Return how wrong each answer is, ``(N,)``; None for labels that have no such score.

    Args:
        target: What a label is.
        said: What :meth:`hma.targets.Target.expected` gives.
        labels: What is true.
    """
    if isinstance(target, Number):
        return (said.double() - labels.double()).abs()
    return class_scores(said, labels) if isinstance(target, Classes) else None


def tells_unknown(model: MemoryModel) -> bool:
    """Tell whether a memory can say how familiar a row is: it has rows, and they vote."""
    return model.tells_unfamiliar


@torch.no_grad()
def how_unfamiliar(model: MemoryModel, split: Split, batch_size: int) -> Tensor:
    """Return how unfamiliar each row of a split is to a memory, ``(N,)``."""
    if not tells_unknown(model):
        return torch.empty(0, dtype=torch.double)
    found = []
    for places in torch.split(torch.arange(len(split)), batch_size):
        batch = split.batch(places).to(model.device)
        found.append(unfamiliarity(model, batch.x, features=batch.features).double().cpu())
    return torch.cat(found)


def rejecting_memory(run: Run, model: MemoryModel) -> MemoryModel:
    """Return the memory that says which rows are unknown: that of before validation rows voted.

    Keys that were learned again have another scale, so thresholds hold for the distances of that
    memory alone.

    Args:
        run: A finished run.
        model: Its memory, which is returned where it never learned from validation rows.
    """
    if run.before is run:
        return model
    learner = run.before.learner(MEMORY)
    learner.use(learner.contexts[0])
    return memory_of(run.before, learner).eval()


UNKNOWN_LABEL = "unknown"
MOST_ASKED = 5000
"""Validation rows that a server asks anew when the memory changes."""
BETWEEN = " | "
"""Between the labels of a set."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What a coverage promises of an answer.

    Args:
        target: What a label is.
        names: Of the classes, the labels, or the number.
        coverage: Between 0 and 1, such as 0.95.
        rows: Validation rows that thresholds were taken from.
        most_wrong: Threshold of how wrong an answer is; None for labels that have no such score.
        most_unfamiliar: Above this a row is unknown; None where the memory's rows do not vote.
    """

    target: Target
    names: Sequence[str]
    coverage: float
    rows: int
    most_wrong: float | None
    most_unfamiliar: float | None

    def intervals(self, said: Tensor) -> list[tuple[float, float]]:
        """Return from where to where each number is."""
        assert self.most_wrong is not None
        return [(v - self.most_wrong, v + self.most_wrong) for v in said.double().tolist()]

    def sets(self, said: Tensor) -> list[list[str]]:
        """Return the labels that each row may have, in the order of the classes."""
        assert self.most_wrong is not None
        held = class_sets(said, self.most_wrong)
        return [[n for n, one in zip(self.names, row, strict=True) if one] for row in held]

    def is_unknown(self, unfamiliar: float) -> bool:
        """Tell whether a row is further from the rows that vote than was promised."""
        return self.most_unfamiliar is not None and unfamiliar > self.most_unfamiliar


def thresholds_of(run: Run, coverage: float, found: Calibration) -> Thresholds:
    """Return what a coverage promises of a run's answers, or raise where rows are too few."""
    needed = least_rows(coverage)
    if found.taught and found.rows < needed:
        raise UserError(
            f"coverage {coverage:g} needs at least {needed} validation rows that do not vote, and "
            f"of {found.rows + found.taught} the memory was taught {found.taught}; take these out "
            f"with hma forget, or answer with an earlier version: hma memory {run.folder} "
            "--history lists them"
        )
    return Thresholds(
        target=run.preparation.target,
        names=run.preparation.classes,
        coverage=coverage,
        rows=found.rows,
        most_wrong=_threshold(found.answers, coverage),
        most_unfamiliar=_threshold(found.unfamiliar, coverage),
    )


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
        self.learner = run.learner(run.deployed.which if which is None else which)
        self.model = memory_of(run, self.learner)
        found = calibration(run, self.learner, self.model, which, context, progress)
        self.promise = thresholds_of(run, coverage, found)
        self.rejecting = rejecting_memory(run, self.model)
        self.answered = self.unknown = self.in_sets = 0

    @property
    def columns(self) -> dict[str, Content]:
        """What is added to the columns of a prediction."""
        found: dict[str, Content] = {}
        made, names = self.promise, self.promise.names
        if made.most_wrong is not None and isinstance(made.target, Number):
            found |= {f"{names[0]} from": "number", f"{names[0]} to": "number"}
        elif made.most_wrong is not None:
            found |= {"labels": "text"}
        if made.most_unfamiliar is not None:
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
        if self.promise.most_wrong is not None:
            for row, more in zip(found, self._answers(said), strict=True):
                row.extend(more)
        if self.promise.most_unfamiliar is None:
            return found
        far = unfamiliarity(self.rejecting, batch.x, features=batch.features).double()
        for row, value in zip(found, far.tolist(), strict=True):
            rejected = self.promise.is_unknown(value)
            self.unknown += rejected
            if rejected and isinstance(self.promise.target, Classes | SoftClasses):
                row[0] = UNKNOWN_LABEL
            row.extend(["yes" if rejected else "no", value])
        return found

    def _answers(self, said: Tensor) -> list[list[Any]]:
        if isinstance(self.promise.target, Number):
            return [list(between) for between in self.promise.intervals(said)]
        sets = self.promise.sets(said)
        self.in_sets += sum(map(len, sets))
        return [[BETWEEN.join(held)] for held in sets]

    def lines(self) -> list[str]:
        """Return what was promised and what came of it, in words."""
        made = self.promise
        said = [f"coverage {made.coverage:.4g}, by {made.rows} validation rows"]
        if made.most_wrong is None:
            said.append(f"labels of the kind {made.target.kind!r} have no sets or intervals")
        elif isinstance(made.target, Number):
            said.append(f"{made.names[0]} is within {made.most_wrong:.4g}")
        elif self.answered:
            said.append(f"{self.in_sets / self.answered:.2f} labels in a set")
        if made.most_unfamiliar is not None:
            said.append(f"{self.unknown} of {self.answered} rows are unknown")
        lines = ["; ".join(said)]
        if made.most_unfamiliar is None:
            lines.append(
                "no row is called unknown: that needs a memory whose rows vote; train with "
                "--memory vote"
            )
        return lines


def calibration(
    run: Run,
    learner: Learner,
    model: MemoryModel,
    which: Which | None = None,
    context: str = "alone",
    progress: Progress | None = None,
    opened: Callable[[Run], Task] = lambda run: training_task(run).task,
) -> Calibration:
    """Return what the validation rows say of a version's answers; asked once, then kept.

    Args:
        run: A finished run; its data is opened only where nothing is kept.
        learner: What answers.
        model: The run's memory.
        which: Who that is; what the run deployed if not given.
        context: In which.
        progress: Shows how far it is.
        opened: Opens the rows of the training.
    """
    key = _key(run, which, context)
    kept = read_calibration(run.folder, key)
    if kept is not None:
        return kept
    task = opened(run)
    if run.refitted:  # its models learned from the validation rows: ask those of before
        learner = run.before.learner(run.deployed.which if which is None else which)
        model = memory_of(run.before, learner)
    gone = taught_held_out(run, task=task)
    rest = without_rows(with_features(run, task, learner, progress), gone).validation
    found = calibrated(
        learner,
        model,
        rest,
        batch_size=run.options.recipe.eval_batch_size,
        context=context,
        taught=len(task.validation) - len(rest),
    )
    found.write(run.folder, key)
    return found


class Promising:
    """Thresholds of a coverage for each version of a run's memory; made where none are kept.

    Args:
        coverage: Between 0 and 1, such as 0.95.
    """

    def __init__(self, coverage: float) -> None:
        self.coverage = coverage
        self._task: Task | None = None

    def __call__(self, run: Run, learner: Learner, model: MemoryModel, context: str) -> Thresholds:
        """Return what is promised of answers, or raise where nothing can be."""
        found = calibration(run, learner, model, context=context, opened=self._opened)
        return thresholds_of(run, self.coverage, found)

    def _opened(self, run: Run) -> Task:
        """Open the rows of the training, once; asking many of them would keep requests waiting."""
        if self._task is None:
            self._task = training_task(run).task
        rows = len(self._task.validation)
        if run.living.chain and rows > MOST_ASKED and not run.options.frozen_backbone:
            raise UserError(
                f"version {run.living.number} has no thresholds yet, and {rows} validation rows "
                f"are more than the {MOST_ASKED} that a server asks; make them with hma predict "
                f"{run.folder} SOURCE --coverage {self.coverage:g}, and start hma serve again"
            )
        return self._task


def _key(run: Run, which: Which | None, context: str) -> str:
    shares = run.deployed.asked(which).counted
    weights = {name: run.record(name).weights_sha256 for name in {*shares, MEMORY}}
    return calibration_key(shares, weights, context, run.versions.hashes(run.living.chain))


def _threshold(scores: Tensor | None, coverage: float) -> float | None:
    return None if scores is None else threshold(scores, coverage)
