"""What the validation rows of a run say of its answers, kept in its folder."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hma.conformal import class_scores
from hma.data import Split
from hma.json_files import read_json, write_json
from hma.methods import Learner
from hma.model import HMA
from hma.runs.candidates import Which
from hma.targets import Classes, Number, Target
from hma.training import all_logits
from hma.unfamiliar import unfamiliarity

CALIBRATION = "calibration.json"
REMEDY = "remove it, and the next hma predict --coverage makes it again"
SHAPE = {"key": str, "rows": int, "answers": list[float] | None, "unfamiliar": list[float] | None}


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Scores of rows that nothing was trained on, from which every threshold follows.

    Args:
        rows: How many.
        answers: How wrong the answer to each row is: what its class lacks to certainty, or how far
            the number is off; None for labels that have no such score.
        unfamiliar: How unfamiliar each row is; None where the memory's rows do not vote.
    """

    rows: int
    answers: Tensor | None
    unfamiliar: Tensor | None

    def write(self, folder: Path, key: str) -> None:
        """Keep the scores in a run's folder, sealed.

        Args:
            folder: Of the run.
            key: Whose answers they are of, see :func:`calibration_key`.
        """
        values: dict[str, Any] = {"key": key, "rows": self.rows}
        for name in ("answers", "unfamiliar"):
            scores = getattr(self, name)
            values[name] = None if scores is None else scores.tolist()
        write_json(folder / CALIBRATION, values, sealed=True, indent=None)


def read_calibration(folder: Path, key: str) -> Calibration | None:
    """Read what :meth:`Calibration.write` wrote; None if it is not there or of other answers."""
    path = folder / CALIBRATION
    if not path.exists():
        return None
    values = read_json(path, SHAPE, remedy=REMEDY)
    if values["key"] != key:
        return None
    scores = {
        name: None if values[name] is None else torch.tensor(values[name], dtype=torch.double)
        for name in ("answers", "unfamiliar")
    }
    return Calibration(rows=values["rows"], **scores)


def calibration_key(
    shares: Mapping[Which, float],
    weights: Mapping[Which, str | None],
    context: str,
    chain: Sequence[int] = (),
) -> str:
    """Return a hash of what decides the answers.

    Args:
        shares: What each candidate counts.
        weights: Hash of the weights of each of them, and of the memory.
        context: In which they answer.
        chain: Versions that the memory is made of; none as training left it.
    """
    said = {"calibration": 1, "shares": dict(shares), "weights": dict(weights)}
    whole = json.dumps(said | {"context": context, "chain": list(chain)}, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def calibrated(
    learner: Learner, model: HMA, split: Split, *, batch_size: int, context: str | None = None
) -> Calibration:
    """Return the scores of rows.

    Under ``torch.distributed`` all processes take part.

    Args:
        learner: What answers.
        model: The memory that says how familiar a row is.
        split: Rows with labels.
        batch_size: Rows per batch.
        context: In which it answers; its first if not given.
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


def tells_unknown(model: HMA) -> bool:
    """Tell whether a memory can say how familiar a row is: it has rows, and they vote."""
    held = 0 if model.real is None else int(model.real.queue.written)
    return model.vote is not None and held + model.config.slots_per_class > 0


@torch.no_grad()
def _unfamiliar(model: HMA, split: Split, batch_size: int) -> Tensor:
    if not tells_unknown(model):
        return torch.empty(0, dtype=torch.double)
    found = []
    for places in torch.split(torch.arange(len(split)), batch_size):
        batch = split.batch(places).to(model.anchors.device)
        found.append(unfamiliarity(model, batch.x, features=batch.features).double().cpu())
    return torch.cat(found)
