"""What rows cost that were measured in turn: medians, quartiles, ratios to the plain backbone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from hma.paper.step_costs import STEP_COSTS
from hma.paper.table import Cell, PublishedCost, Table
from hma.training import Record


@dataclass(frozen=True)
class Middle:
    """The median of several rounds, with the quartiles beside it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class RowCost:
    """What a row costs.

    Args:
        what: The row in a few words.
        parameters, trainable: Weights.
        peak_bytes: Most that its tensors take in a training step.
        step: Seconds of a training step.
        answer: Seconds of one answered row.
        once: Seconds of what follows training.
        memory_times, step_times, answer_times: The same over those of the first row; of times the
            ratio is taken round by round.
        published: What the paper says of it.
    """

    what: str
    parameters: int
    trainable: int
    peak_bytes: int
    step: Middle
    answer: Middle
    once: float
    memory_times: float
    step_times: Middle
    answer_times: Middle
    published: PublishedCost | None


@dataclass(frozen=True, kw_only=True)
class StepCosts:
    """The rows of a comparison, and how they were measured.

    Args:
        rows: By name, the plain backbone first.
        rounds: Timed steps, and timed answers, of each.
        batch, answered: Rows of a step, and of an answer.
        training_rows: What a memory that keeps all rows keeps.
        threads: Of torch.
        processor, cores: Of the machine.
        load: Busy processes in the minute before, where the system says it.
        processor_share: Seconds of the processor for each second on the clock.
    """

    rows: Mapping[str, RowCost]
    rounds: int
    batch: int
    answered: int
    training_rows: int
    threads: int
    processor: str
    cores: int
    load: float | None
    processor_share: float


def step_costs_of(table: Table, records: Mapping[Cell, Record]) -> dict[str, StepCosts]:
    """Return what rows cost by task, where that was measured."""
    return {
        cell.task: _costs(record.measures[STEP_COSTS], table.published_costs.get(cell.task, {}))
        for cell, record in records.items()
        if STEP_COSTS in record.measures
    }


def _costs(measured: Mapping[str, Any], published: Mapping[str, PublishedCost]) -> StepCosts:
    rows: Mapping[str, Mapping[str, Any]] = measured["rows"]
    plain = next(iter(rows.values()))
    beside = {name: value for name, value in measured.items() if name != "rows"}
    return StepCosts(
        rows={name: _row(row, plain, published.get(name)) for name, row in rows.items()},
        rounds=len(plain["step"]),
        **beside,
    )


def _row(
    row: Mapping[str, Any], plain: Mapping[str, Any], published: PublishedCost | None
) -> RowCost:
    return RowCost(
        what=row["what"],
        parameters=row["parameters"],
        trainable=row["trainable"],
        peak_bytes=row["peak_bytes"],
        step=middle(row["step"]),
        answer=middle(row["answer"]),
        once=row["once"],
        memory_times=row["peak_bytes"] / plain["peak_bytes"],
        step_times=_times(row["step"], plain["step"]),
        answer_times=_times(row["answer"], plain["answer"]),
        published=published,
    )


def _times(own: Sequence[float], plain: Sequence[float]) -> Middle:
    return middle([mine / theirs for mine, theirs in zip(own, plain, strict=True)])


def middle(values: Sequence[float]) -> Middle:
    """Return the median and the quartiles; of one value all are that value.

    Example:
        >>> middle([1.0, 2.0, 3.0, 4.0, 5.0])
        Middle(median=3.0, low=2.0, high=4.0)
    """
    if len(values) == 1:
        return Middle(values[0], values[0], values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Middle(median(values), low, high)
