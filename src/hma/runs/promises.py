"""What coverages promised by the validation rows of a run come to on its test rows."""

from collections.abc import Iterator

import torch
from torch import Tensor

from hma.questions.conformal import class_sets, coverage_interval, least_rows, threshold
from hma.report.run.promises import Promise, Promises
from hma.runs.calibration import Calibration, answer_scores
from hma.targets import Number, Target

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def promises_kept(
    name: str,
    found: Calibration,
    target: Target,
    said: Tensor,
    labels: Tensor,
    far: Tensor | None,
) -> Promises | None:
    """Return what each of ``LEVELS`` comes to; None where the validation rows are too few for any.

    Args:
        name: Of the test set.
        found: Scores of the validation rows.
        target: What a label is.
        said: Answers to the test rows, as :meth:`hma.targets.Target.expected` gives them.
        labels: What is true of them.
        far: How unfamiliar they are, ``(N,)``; None where the memory does not tell.
    """
    levels = tuple(_levels(found, target, said, labels, far))
    if not levels or (found.answers is None and far is None):
        return None
    size = "width of the interval" if isinstance(target, Number) else "labels in a set"
    return Promises(
        test=name,
        validation_rows=found.rows,
        test_rows=len(labels),
        size_is=size,
        levels=levels,
    )


def _levels(
    found: Calibration, target: Target, said: Tensor, labels: Tensor, far: Tensor | None
) -> Iterator[Promise]:
    wrong = answer_scores(target, said, labels)
    for asked in LEVELS:
        if found.rows < least_rows(asked):
            return
        covered = size = unknown = None
        if found.answers is not None and wrong is not None:
            most = threshold(found.answers, asked)
            if isinstance(target, Number):
                covered, size = float((wrong <= most).double().mean()), 2 * most
            else:
                sets = class_sets(said, most)
                inside = sets[torch.arange(len(labels)), labels]
                covered = float(inside.double().mean())
                size = float(sets.sum(dim=1).double().mean())
        if found.unfamiliar is not None and far is not None:
            furthest = threshold(found.unfamiliar, asked)
            unknown = float((far.double() > furthest).double().mean())
        yield Promise(
            asked=asked,
            interval=coverage_interval(found.rows, asked, len(labels)),
            covered=covered,
            size=size,
            unknown=unknown,
        )
