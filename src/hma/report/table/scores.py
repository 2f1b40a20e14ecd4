"""Scores of a table as the paper prints them; what is not there is shown as missing."""

import math

from hma.metrics import METRICS
from hma.report.numbers import MINUS, MISSING, fixed
from hma.report.table.table_report import Spread

UNDEFINED = "undefined"


def title(metric: str) -> str:
    """Return the name of a metric with its unit.

    Example:
        >>> title("auroc"), title("matthews")
        ('AUROC in %', 'Matthews correlation')
    """
    found = METRICS[metric]
    return f"{found.title} in %" if found.scale == 100 else found.title


def amount(metric: str, value: float | None, *, sign: str = "") -> str:
    """Return a score or, with the sign '+', a difference of scores.

    Example:
        >>> amount("accuracy", 41.256), amount("matthews", -0.0312, sign="+")
        ('41.26', '−0.031')
        >>> amount("accuracy", None)
        '—'
    """
    if value is None:
        return MISSING
    return UNDEFINED if math.isnan(value) else fixed(value, METRICS[metric].digits, sign)


def spread(metric: str, found: Spread | None) -> str:
    """Return mean and standard deviation over seeds.

    Example:
        >>> spread("accuracy", Spread(41.256, 1.2, 10)), spread("accuracy", None)
        ('41.26 ± 1.20', '—')
        >>> spread("accuracy", Spread(41.256, None, 1))
        '41.26'
    """
    if found is None:
        return MISSING
    if found.std is None:
        return amount(metric, found.mean)
    return f"{amount(metric, found.mean)} ± {amount(metric, found.std)}"


def printed(published: tuple[float, float] | None) -> str:
    """Return what the paper prints, with its two decimals.

    Example:
        >>> printed((75.1, 0.24)), printed(None)
        ('75.10 ± 0.24', '—')
    """
    if published is None:
        return MISSING
    mean, std = (f"{value:.2f}".replace("-", MINUS) for value in published)
    return f"{mean} ± {std}"


def ends(metric: str, low: float | None, high: float | None) -> str:
    """Return the ends of the interval of a difference.

    Example:
        >>> ends("accuracy", -0.1, 0.52), ends("accuracy", None, None)
        ('−0.10 to +0.52', '—')
    """
    if low is None or high is None:
        return MISSING
    return f"{amount(metric, low, sign='+')} to {amount(metric, high, sign='+')}"


def part(count: int, whole: int) -> str:
    """Return how many of how many, or nothing where none is missing.

    Example:
        >>> part(3, 10), part(10, 10)
        ('(3 of 10)', '')
    """
    return "" if count == whole else f"({count} of {whole})"
