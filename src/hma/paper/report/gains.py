"""What of a memory's gain is memory: over all tables that have the rows to tell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hma.metrics import METRICS, OfWeights
from hma.metrics.resampling import Interval, bootstrap, percentile_interval
from hma.paper.report.formats import escape_markdown, grid
from hma.paper.report.scores import SETTLED, settled
from hma.paper.results import Results
from hma.paper.row_answers import RowAnswers, kept_answers
from hma.paper.table import FULL, TINY, Cell, Ladder, Table
from hma.report.numbers import MISSING, counted, percent, signed
from hma.report.statistics import bootstrap_over_seeds
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
PAGE = "what-is-memory.md"
PARTS = ("LayerNorm", "parameters", "memory", "test batch")
"""Steps that make up the whole, from below."""
OPENING = """\
# What is memory?

How much of the difference between the paper's memory (HMA, in its test batch) and the plain
backbone (ERM) is what. Rows that have one thing more each tell it apart, seed by seed:

| step | is the difference of |
| --- | --- |
| LayerNorm | a LayerNorm before the head, to ERM |
| parameters | PARAM, the blocks of the memory without memory, to the LayerNorm |
| both | PARAM to ERM, the two steps above together |
| memory | HMA answered alone, to PARAM |
| test batch | HMA that sees its test batch, to HMA answered alone |
| all | HMA in its test batch, to ERM |

All numbers are in points: percent of accuracy or ROC-AUC, hundredths of Matthews correlation. In
brackets is the 95% interval: seeds are drawn again, and test rows too where records keep what was
said of each. Bold: the interval leaves 0 out. A mean over tasks counts each task alike; its
interval is about these tasks, not about others."""


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
    for budget in (*FULL, "small", TINY):
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
            found[step] = interval_of(
                value, np.mean([climb.draws[step] for climb in having], axis=0)
            )
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
    values, draws_of_rungs, rows = drawn_scores(runs, list(rungs.values()), seeds, metric, key)
    places = {rung: place for place, rung in enumerate(rungs)}
    steps, draws = {}, {}
    for step, (upper, lower) in STEPS.items():
        if upper in rungs and lower in rungs:
            draws[step] = draws_of_rungs[places[upper]] - draws_of_rungs[places[lower]]
            value = fmean(values[places[upper]]) - fmean(values[places[lower]])
            steps[step] = interval_of(value, draws[step])
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


def drawn_scores(
    runs: Runs, rungs: Sequence[tuple[str, str]], seeds: Sequence[int], metric: str, key: int
) -> tuple[Floats, Floats, int | None]:
    """Return scores ``(rungs, seeds)``, their means in resamples ``(rungs, R)``, and test rows.

    Seeds are drawn again, and test rows too where records keep the answers about them; else there
    are none.

    Args:
        runs: Row -> seed -> record.
        rungs: What is scored: a row, and the context that it is asked in.
        seeds: Those that all of these rows have.
        metric: What is computed.
        key: Decides the draws.
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


def interval_of(value: float, draws: Floats) -> Interval:
    """Return a difference between the percentiles of its draws."""
    found = percentile_interval(value, draws.round(SETTLED))
    return Interval(settled(found.value), settled(found.low), settled(found.high))


def page(tables: Sequence[Table], results: Results) -> str | None:
    """Return the document, or None where no table with a ladder has the records.

    Args:
        tables: All tables; those without a ladder are not asked.
        results: Where their records are.
    """
    asked = [table for table in tables if table.ladders]
    found = {table.key: climbs_of(table, results) for table in asked}
    climbs = [climb for each in found.values() for climb in each]
    if not climbs:
        return None
    parts = [OPENING, "## All tables together", _said(climbs), _overview(found)]
    for table in asked:
        if held := found[table.key]:
            parts += _table(table, held)
            for metric in table.beside:
                parts += _beside(metric, climbs_of(table, results, metric))
    parts += _missing(asked, found)
    return "\n\n".join(parts) + "\n"


def _overview(found: Mapping[str, Sequence[Climb]]) -> str:
    held = {key: climbs for key, climbs in found.items() if climbs}
    lines = [
        [f"[{escape_markdown(key)}](#{key.lower()})", str(len(climbs)), *_fields(pooled(climbs))]
        for key, climbs in held.items()
    ]
    every = [climb for climbs in held.values() for climb in climbs]
    lines.append(["mean over tasks", str(len(every)), *_fields(pooled(every))])
    return grid(["table", "tasks", *STEPS], lines, names=1)


def _table(table: Table, climbs: Sequence[Climb]) -> Iterator[str]:
    yield f"## {escape_markdown(table.key)}"
    by = f"by {_words(climbs[0].metric)}; budget {climbs[0].budget}"
    yield f"{escape_markdown(table.title)}, {by}."
    yield _said(climbs)
    yield _lines(climbs)


def _beside(metric: str, climbs: Sequence[Climb]) -> Iterator[str]:
    if climbs:
        yield f"The same by {_words(metric)}. {_said(climbs)}"
        yield _lines(climbs)


def _lines(climbs: Sequence[Climb]) -> str:
    several = len({climb.plain for climb in climbs}) > 1
    lines = []
    for climb in climbs:
        name = f"{climb.task}, {climb.plain}" if several else climb.task
        rows = MISSING if climb.test_rows is None else str(climb.test_rows)
        lines.append([escape_markdown(name), str(climb.seeds), rows, *_fields(climb.steps)])
    if len(climbs) > 1:
        lines.append(["mean over tasks", "", "", *_fields(pooled(climbs))])
    return grid(["task", "seeds", "test rows drawn", *STEPS], lines, names=1)


def _said(climbs: Sequence[Climb]) -> str:
    """Say what the numbers come to."""
    steps = pooled(climbs)
    whole = steps["all"]
    tasks = counted(len(climbs), "task")
    text = f"Mean of {tasks}: HMA differs from ERM by {_points(whole)}{_chance(whole)}."
    text += _said_of_param(climbs)
    beyond = [f"{name} {_points(steps[name])}" for name in PARTS if _clear(steps.get(name))]
    within = [name for name in PARTS if name in steps and not _clear(steps[name])]
    text += f" Beyond chance: {', '.join(beyond) or 'none of the steps'}."
    text += f" Not told from nothing: {', '.join(within)}." if within else ""
    lacking = [c for c in climbs if "LayerNorm" not in c.steps and "both" in c.steps]
    if lacking:
        text += (
            f" {counted(len(lacking), 'task')} of {len(climbs)} without the row LayerNorm: there "
            "it is part of both."
        )
    return text


def _said_of_param(climbs: Sequence[Climb]) -> str:
    """Say how much of the whole the blocks without memory come to, where they are measured."""
    told = [climb for climb in climbs if "both" in climb.steps]
    if not told:
        return " PARAM is not measured, so that memory is not told from its parameters."
    steps = pooled(told)
    both, whole = steps["both"], steps["all"]
    rest = whole.value - both.value
    where = f" on {len(told)} of {len(climbs)} tasks" if len(told) < len(climbs) else ""
    text = (
        f" PARAM, which has no memory, differs from ERM by {_points(both)}{where}; what is left "
        f"for memory and test batch together is {_number(rest)}."
    )
    if whole.low > 0 and both.value > 0:
        text += f" So PARAM reaches {percent(both.value / whole.value, 0)} of HMA's gain."
    return text


def _chance(step: Interval) -> str:
    return "" if _clear(step) else ", which is not beyond chance"


def _clear(step: Interval | None) -> bool:
    return step is not None and (step.low > 0 or step.high < 0)


def _points(step: Interval) -> str:
    return f"{_number(step.value)} ({_ends(step)})"


def _ends(step: Interval) -> str:
    return f"{_number(step.low)} to {_number(step.high)}"


def _number(points: float) -> str:
    return signed(points, 2)


def _fields(steps: Mapping[str, Interval]) -> list[str]:
    found = []
    for name in STEPS:
        step = steps.get(name)
        value = MISSING if step is None else _number(step.value)
        value = f"**{value}**" if _clear(step) else value
        found.append(value if step is None else f"{value}<br>({_ends(step)})")
    return found


def _words(metric: str) -> str:
    title = METRICS[metric].title
    return title if title.isupper() else title[0].lower() + title[1:]


def _missing(asked: Sequence[Table], found: Mapping[str, Sequence[Climb]]) -> list[str]:
    lines = []
    for table in asked:
        held = found[table.key]
        if not held:
            name = f"{escape_markdown(table.key)}, {escape_markdown(table.title)}"
            lines.append(f"- {name}: no record to tell it by.")
            continue
        wanted = {(task, ladder.plain) for task in table.problems for ladder in table.ladders}
        absent = wanted - {(climb.task, climb.plain) for climb in held}
        blind = [climb.task for climb in held if "both" not in climb.steps]
        bare = [c.task for c in held if "LayerNorm" not in c.steps and "both" in c.steps]
        said = [f"{counted(len(absent), 'task')} of {len(wanted)} without records"] * bool(absent)
        said += [f"{counted(len(blind), 'task')} without the row PARAM"] * bool(blind)
        said += [f"{counted(len(bare), 'task')} without the row LayerNorm"] * bool(bare)
        if said:
            lines.append(f"- {escape_markdown(table.key)}: {'; '.join(said)}.")
    return ["## What is missing", "\n".join(lines)] if lines else []
