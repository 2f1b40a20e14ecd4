"""What the validation rows of a run say of its answers: a file for each version that answers."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hma.data import Split
from hma.io.files import FileError, no_lost_writes
from hma.io.json_files import read_json, write_json
from hma.methods import Learner
from hma.model import MemoryModel
from hma.questions.conformal import class_scores
from hma.questions.unfamiliar import unfamiliarity
from hma.runs.candidates import Which
from hma.targets import Classes, Number, Target
from hma.training import all_logits

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
        with no_lost_writes(path):
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
        said, far = learner.target.expected(logits), _unfamiliar(model, split, batch_size)
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
def _unfamiliar(model: MemoryModel, split: Split, batch_size: int) -> Tensor:
    if not tells_unknown(model):
        return torch.empty(0, dtype=torch.double)
    found = []
    for places in torch.split(torch.arange(len(split)), batch_size):
        batch = split.batch(places).to(model.device)
        found.append(unfamiliarity(model, batch.x, features=batch.features).double().cpu())
    return torch.cat(found)
