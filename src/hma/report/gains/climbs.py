"""Differences from row to row of a ladder, paired by seed, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hma.metrics import METRICS, OfWeights
from hma.metrics.resampling import Interval, bootstrap, percentile_interval
from hma.paper.results import Results
from hma.paper.row_answers import RowAnswers, kept_answers
from hma.paper.table import FULL, Cell, Ladder, Table
from hma.report.statistics import bootstrap_over_seeds
from hma.report.table.pairing import SETTLED, settled
from hma.training import Record

Floats = NDArray[np.float64]
Runs = Mapping[str, Mapping[int, Record]]
"""Row -> seed -> record."""
POINTS = 100.0
"""Differences are in hundredths: percent of a share, hundredths of a correlation."""
RESAMPLES = 2_000
STEPS = {
    "LayerNorm": ("layer norm", "plain"),
    "parameters": ("param", "layer norm"),
    "both": ("param", "plain"),
    "memory": ("alone", "param"),
    "test batch": ("batch", "alone"),
    "all": ("batch", "plain"),
}
"""Name of a step -> the rung that it leads to, and the one that it starts from."""


@dataclass(frozen=True, kw_only=True)
class Climb:
    """A ladder on one task.

    Args:
        table, task, plain: Which: key of the table, name of the task, lowest row of the ladder.
        budget: What was run of the protocol.
        metric: What is compared.
        seeds: How many runs of each row are paired.
        test_rows: Number of test rows that intervals draw again; None where they draw seeds alone.
        steps: Differences in points with their intervals, by the names of ``STEPS``; a step whose
            rows are not measured is not there.
        draws: The same differences in every resample, ``(R,)``.
    """

    table: str
    task: str
    plain: str
    budget: str
    metric: str
    seeds: int
    test_rows: int | None
    steps: Mapping[str, Interval]
    draws: Mapping[str, Floats]


def climbs_of(table: Table, results: Results, metric: str | None = None) -> list[Climb]:
    """Return every ladder of a table on every task, where plain and memory are measured.

    They are from the largest budget that has any; none is from a smoke run.

    Args:
        table: The table.
        results: Where its records are.
        metric: What to compare; the table's if not given.
    """
    rows = {name for ladder in table.ladders for name in ladder.rows}
    for budget in (*FULL, "small"):
        if budget not in table.budgets or not rows:
            continue
        cells = [cell for cell in table.cells(budget) if cell.method in rows]
        records = results.records(table, cells)
        found = [
            climb
            for task in table.problems
            for ladder in table.ladders
            if (
                climb := _climb(
                    cells[0]._replace(task=task), ladder, records, metric or table.metric
                )
            )
        ]
        if found:
            return found
    return []


def pooled(climbs: Sequence[Climb]) -> dict[str, Interval]:
    """Return each step as the mean over the ladders that have it; each of them counts alike."""
    found = {}
    for step in STEPS:
        having = [climb for climb in climbs if step in climb.steps]
        if having:
            value = fmean(climb.steps[step].value for climb in having)
            found[step] = _interval(value, np.mean([climb.draws[step] for climb in having], axis=0))
    return found


def _climb(
    where: Cell, ladder: Ladder, records: Mapping[Cell, Record], metric: str
) -> Climb | None:
    runs = {
        name: {
            cell.seed: record
            for cell, record in records.items()
            if (cell.task, cell.method) == (where.task, name)
        }
        for name in ladder.rows
    }
    rungs = {
        "plain": (ladder.plain, "alone"),
        "param": (ladder.param, "alone"),
        "alone": (ladder.memory, "alone"),
        "batch": (ladder.memory, "batch"),
    }
    measured = set(runs[ladder.plain]) & set(runs[ladder.memory])
    if not measured:
        return None
    if measured & set(runs[ladder.param]):
        measured &= set(runs[ladder.param])
    else:
        del rungs["param"]
    seeds = sorted(measured)
    if ladder.layer_norm is not None and set(seeds) <= set(runs[ladder.layer_norm]):
        rungs["layer norm"] = (ladder.layer_norm, "alone")
    key = crc32(f"{where.table} {where.task} {ladder.plain}".encode())
    values, drawn, rows = _drawn(runs, list(rungs.values()), seeds, metric, key)
    places = {rung: place for place, rung in enumerate(rungs)}
    steps, draws = {}, {}
    for step, (upper, lower) in STEPS.items():
        if upper in rungs and lower in rungs:
            draws[step] = drawn[places[upper]] - drawn[places[lower]]
            value = fmean(values[places[upper]]) - fmean(values[places[lower]])
            steps[step] = _interval(value, draws[step])
    return Climb(
        table=where.table,
        task=where.task,
        plain=ladder.plain,
        budget=where.budget,
        metric=metric,
        seeds=len(seeds),
        test_rows=rows,
        steps=steps,
        draws=draws,
    )


def _drawn(
    runs: Runs, rungs: Sequence[tuple[str, str]], seeds: Sequence[int], metric: str, key: int
) -> tuple[Floats, Floats, int | None]:
    """Return scores ``(rungs, seeds)``, their means in resamples ``(rungs, R)``, and test rows.

    Seeds are drawn again, and test rows too where records keep the answers about them.
    """
    scale = POINTS if METRICS[metric].larger_is_better else -POINTS
    scores = np.array(
        [[scale * _score(runs[row][seed], context, metric) for seed in seeds]
         for row, context in rungs]
    )  # fmt: skip
    answers = [_answers(runs, rungs, seed, metric) for seed in seeds]
    kept = [each for each in answers if each is not None]
    if len(kept) < len(seeds):
        drawn = bootstrap(
            [partial(_mean, own) for own in scores],
            rows=len(seeds),
            resamples=RESAMPLES,
            seed=key,
        )
        return scores, drawn, None
    counts = [len(each[0].labels) for each in kept]
    drawn = bootstrap_over_seeds(
        [_formulas(each, rungs, metric) for each in kept],
        rows=counts,
        resamples=RESAMPLES,
        seed=key,
        same_rows=all(each[0].labels.equal(kept[0][0].labels) for each in kept),
    )
    return scores, scale * drawn, max(counts)


def _score(record: Record, context: str, metric: str) -> float:
    return fmean(scores[context][metric] for scores in record.tests.values())


def _mean(values: Floats, counts: Floats) -> Floats:
    """Return the mean of values ``(N,)`` that are drawn so often each, ``(N, R) -> (R,)``."""
    return np.asarray(values @ counts / len(values))


def _answers(
    runs: Runs, rungs: Sequence[tuple[str, str]], seed: int, metric: str
) -> list[RowAnswers] | None:
    """Return the answers of each rung about the one test split; None where some are not kept."""
    found = [kept_answers(runs[row][seed]) for row, _ in rungs]
    if any(len(each) != 1 for each in found):
        return None
    single = [next(iter(each.values())) for each in found]
    whole = all(
        context in one.logits and one.decides(metric)
        for one, (_, context) in zip(single, rungs, strict=True)
    )
    return single if whole else None


def _formulas(
    answers: Sequence[RowAnswers], rungs: Sequence[tuple[str, str]], metric: str
) -> list[OfWeights]:
    return [
        METRICS[metric].weighted(one.logits[context], one.labels, one.target)
        for one, (_, context) in zip(answers, rungs, strict=True)
    ]


def _interval(value: float, draws: Floats) -> Interval:
    found = percentile_interval(value, draws.round(SETTLED))
    return Interval(settled(found.value), settled(found.low), settled(found.high))
