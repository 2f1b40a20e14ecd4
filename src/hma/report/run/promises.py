"""What coverages that were promised came to on test rows: plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A coverage that was asked for, and what the test rows came to.

    Args:
        asked: The coverage.
        interval: Between what shares of test rows it lies in 95 of 100 draws, if these are drawn
            as the validation rows are.
        covered: Share of rows whose set or interval holds what is true; None without sets.
        size: Mean number of labels in a set, or width of the interval; None without sets.
        unknown: Share of rows that are called unknown; None where none can be.
    """

    asked: float
    interval: tuple[float, float]
    covered: float | None
    size: float | None
    unknown: float | None


@dataclass(frozen=True, kw_only=True)
class Promises:
    """Several coverages of the same rows.

    Args:
        test: Name of the test set.
        validation_rows, test_rows: Rows that thresholds are of, and rows they were tried on.
        size_is: What ``Promise.size`` is, in words.
        levels: The least coverage first.
    """

    test: str
    validation_rows: int
    test_rows: int
    size_is: str
    levels: tuple[Promise, ...]
