"""What a method says of each test row, kept in a record: so that a report can draw rows again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hma.data import Task
from hma.io.json_files import none_to_nan
from hma.methods import Learner
from hma.targets import Classes, Target, target_from_json
from hma.training import Record, logits_by_context

ANSWERS = "answers"
"""Where they are among a record's ``measures``."""
OF_DECISIONS = ("accuracy", "balanced accuracy", "macro F1", "matthews")
"""Metrics that ask which class was said, not how surely."""
DIGITS = 6
"""Significant ones of a logit that is kept."""


@dataclass(frozen=True)
class RowAnswers:
    """Answers of a method about the rows of a test split.

    Args:
        labels: True ones, as the target has them.
        logits: ``(N, outputs)`` in each context.
        target: What a label is.
    """

    labels: Tensor
    logits: Mapping[str, Tensor]
    target: Target

    def decides(self, metric: str) -> bool:
        """Tell whether a metric can be computed: of several classes only what was said is kept."""
        return self.target.outputs <= 2 or metric in OF_DECISIONS


def row_answers(learner: Learner, task: Task, *, batch_size: int) -> dict[str, Any]:
    """Return what ``learner`` says of each test row in each of its contexts, for a record.

    To keep records small two classes leave one number, what the second is ahead of the first, and
    more of them the class that was said; :func:`kept_answers` reads them back.

    Args:
        learner: What was trained.
        task: Whose tests are asked.
        batch_size: Rows of an evaluation, as the recipe has it.
    """
    found = {}
    for name, split in task.tests.items():
        asked = logits_by_context(learner, split, batch_size=batch_size)
        said = {context: _short(logits) for context, logits in asked.items()}
        found[name] = {"labels": split.labels.tolist(), "said": said}
    return {ANSWERS: found}


def kept_answers(record: Record) -> dict[str, RowAnswers]:
    """Return the answers that a record keeps, by test split; none if it keeps none."""
    kept = record.measures.get(ANSWERS)
    if not kept:
        return {}
    about = record.setup["task"]
    given = about.get("target")
    target = Classes(len(about["classes"])) if given is None else target_from_json(given)
    return {
        name: RowAnswers(
            torch.tensor(none_to_nan(one["labels"])),
            {context: _whole(said, target.outputs) for context, said in one["said"].items()},
            target,
        )
        for name, one in kept.items()
    }


def _short(logits: Tensor) -> list[Any]:
    """Return logits ``(N, outputs)`` as a number for each row."""
    outputs = logits.shape[1]
    if outputs > 2:
        said: list[Any] = logits.argmax(1).tolist()
        return said
    ahead = logits[:, 0] if outputs == 1 else logits[:, 1] - logits[:, 0]
    return [float(f"{value:.{DIGITS}g}") for value in ahead.tolist()]


def _whole(said: list[Any], outputs: int) -> Tensor:
    """Return logits ``(N, outputs)`` that decide as those did that were kept."""
    kept = torch.tensor(said)
    if outputs > 2:
        return torch.nn.functional.one_hot(kept, outputs).double()
    ahead = kept.double()[:, None]
    return ahead if outputs == 1 else torch.cat([torch.zeros_like(ahead), ahead], dim=1)
