"""What methods came to on a test set: plain values and arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hma.metrics.resampling import Interval
from hma.report.statistics import Calibration, Floats, Integers

PLAIN, MEMORY, MIXTURE = "plain backbone", "HMA", "mixture"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one method came to on a test set, in one inference context.

    Args:
        method: ``PLAIN``, ``MEMORY``, ``MIXTURE`` or the name of another candidate.
        context: Inference context, such as 'batch' or 'alone'.
        scores: Metric by name, the headline first.
    """

    method: str
    context: str
    scores: Mapping[str, Interval]


@dataclass(frozen=True, kw_only=True)
class ClassResult(Result):
    """The same of classes.

    Args:
        confusion: Rows of each true class (first axis) called each class, ``(C, C)``.
        calibration: How far its probabilities can be trusted.
    """

    confusion: Integers
    calibration: Calibration


@dataclass(frozen=True, kw_only=True)
class LabelsResult(Result):
    """The same of several yes/no labels.

    Args:
        yes, no: Rows whose label is known to be so, ``(T,)``.
        auroc: Area under the ROC curve of each label; NaN where all its rows are alike.
    """

    yes: Integers
    no: Integers
    auroc: tuple[Interval, ...]


@dataclass(frozen=True, kw_only=True)
class NumberResult(Result):
    """The same of a number.

    Args:
        true, said: The numbers and what was said of them, ``(N,)``.
    """

    true: Floats
    said: Floats


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A method in one context against the plain backbone, on the same rows.

    Args:
        context: Inference context of the method.
        differences: The method minus plain for each metric, by the paired bootstrap.
        method: Which method.
        only_plain, only_other: Rows that only one of them gets right; of classes only.
        p_value: McNemar's exact test on those rows; None where rows are not right or wrong.
        p_over_seeds: Paired t-test over seeds; None where there is one.
    """

    context: str
    differences: Mapping[str, Interval]
    method: str = MEMORY
    only_plain: int = 0
    only_other: int = 0
    p_value: float | None = None
    p_over_seeds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A test set and what came of it; the first context of a method is its own."""

    name: str
    rows: int
    results: tuple[Result, ...]
    comparisons: tuple[Comparison, ...]
    deployed: str = MEMORY
    """The method that answers new rows."""
    unclaimed: str = ""
    """Why nothing is claimed of it; empty where something may be."""
    simple: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What simple methods come to on the same rows: row -> metric -> value."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A method that was trained, or the mixture of them.

    Args:
        method: Its name.
        share: What it counts in the mixture; None for one that never answers.
        validation_loss: On the rows that decided the shares; None if it is not known.
    """

    method: str
    share: float | None
    validation_loss: float | None
