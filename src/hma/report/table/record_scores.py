"""Scores of a record as the paper writes them."""

from statistics import fmean

from hma.errors import UserError
from hma.metrics import METRICS
from hma.report.table.pairing import settled
from hma.training import Record


def score(record: Record, metric: str, context: str, split: str | None = None) -> float:
    """Return a score as the paper writes it: of one test split, or the mean over all.

    Args:
        record: A finished run.
        metric: Name of the metric.
        context: Inference context.
        split: Test split; None for the mean.
    """
    names = list(record.tests) if split is None else [split]
    try:
        values = [record.tests[name][context][metric] for name in names]
        if not values:
            raise KeyError("test splits")
    except KeyError as error:
        raise UserError(
            f"the record of {record.name}, seed {record.seed}, has no {error.args[0]}: its table "
            f"reports {metric} in context {context}; move the record away and measure it again"
        ) from error
    return settled(METRICS[metric].scale * fmean(values))


def contexts_of(record: Record) -> list[str]:
    """Return the inference contexts of a record, the learner's own first."""
    return list(record.setup["method"]["contexts"])
