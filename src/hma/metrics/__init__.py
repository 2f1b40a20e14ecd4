"""One table of metrics: names, directions, how they are printed, formulas, intervals."""

from collections.abc import Iterable

from torch import Tensor

from hma.errors import UserError
from hma.metrics.classes import ACCURACY, BALANCED_ACCURACY, MACRO_F1, MATTHEWS
from hma.metrics.losses import CALIBRATED_LOSS, LOG_LOSS, MEAN_LOSS, temperature_for
from hma.metrics.metric import Metric, OfWeights
from hma.metrics.number_errors import MAE, R2, RMSE
from hma.metrics.ranking import AUROC, AVERAGE_PRECISION, R_PRECISION
from hma.targets import Classes, Target

__all__ = ["METRICS", "Metric", "OfWeights", "metric_for", "recorded", "scores", "temperature_for"]

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        ACCURACY,
        BALANCED_ACCURACY,
        MACRO_F1,
        AUROC,
        AVERAGE_PRECISION,
        R_PRECISION,
        MATTHEWS,
        LOG_LOSS,
        RMSE,
        MAE,
        R2,
        MEAN_LOSS,
        CALIBRATED_LOSS,
    )
}
"""Every metric by name; of those that serve a target, the first is the one to select by."""


def recorded(target: Target) -> list[Metric]:
    """Return the metrics that records of such labels hold; the mean loss if none is for them.

    Example:
        >>> [metric.name for metric in recorded(Classes(3))]
        ['accuracy', 'auroc', 'matthews', 'nll']
    """
    return [m for m in METRICS.values() if m.recorded and m.serves(target)] or [MEAN_LOSS]


def metric_for(target: Target, name: str = "") -> Metric:
    """Return the metric called ``name``, or the first of :func:`recorded`, if it serves ``target``.

    Example:
        >>> metric_for(Classes(3)).name
        'accuracy'
        >>> metric_for(Classes(3), "rmse")
        Traceback (most recent call last):
        hma.errors.UserError: metric must be one of 'accuracy', 'auroc', 'matthews', 'nll' for \
classes, got 'rmse'
    """
    known = recorded(target)
    if not name:
        return known[0]
    for metric in known:
        if metric.name == name:
            return metric
    choices = ", ".join(repr(metric.name) for metric in known)
    raise UserError(f"metric must be one of {choices} for {target.kind}, got {name!r}")


def scores(
    outputs: Tensor, labels: Tensor, names: Iterable[str] = (), *, target: Target | None = None
) -> dict[str, float]:
    """Return each named score of ``outputs`` ``(N, outputs)`` against ``labels``.

    Args:
        outputs: Logits, or what the target calls so.
        labels: One for each row.
        names: Which scores; those that records hold if none is named.
        target: What a label is; class ids if not given.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.0]])
        >>> found = scores(logits, torch.tensor([0, 1, 0, 1]))
        >>> {name: round(value, 4) for name, value in found.items()}
        {'accuracy': 0.75, 'auroc': 1.0, 'matthews': 0.5774, 'nll': 0.4319}
    """
    kind = Classes(outputs.shape[1]) if target is None else target
    wanted = [METRICS[name] for name in names] or recorded(kind)
    return {metric.name: metric.score(outputs, labels, kind) for metric in wanted}
