"""What rows cost that were measured in turn: numbers, sheets and a picture."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import ceil, floor, log2
from statistics import median, quantiles
from typing import Any, NamedTuple

from hma.paper.report.scene import Scene
from hma.paper.report.table_report import Field, Sheet, TableReport, named_once
from hma.paper.step_costs import STEP_COSTS
from hma.paper.table import Cell, PublishedCost, Table
from hma.report import numbers
from hma.report.charts import Plot, Point, Series
from hma.report.numbers import TIMES
from hma.report.svg import Look
from hma.training import Record

NOTICED = 0.05
"""Seconds after training that are worth a mention."""
OTHERS = "rivals"
"""The series of all rows that most shapes do not have."""
DODGE = 0.1
"""How far rows stand apart on a shape, of the way to the next one."""
ABOUT = (
    "Medians of ratios taken round by round; each step up is twice as much. Rivals are rows that "
    "most shapes do not have."
)


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


def step_cost_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield a sheet for each shape, then what the paper says, then how it was measured."""
    measured = step_costs_of(report.table, report.held)
    for task, costs in measured.items():
        yield _shape(task, costs)
    published = [*_published(measured)]
    if published:
        yield Sheet(
            "published",
            "Beside the paper's own figures",
            ("shape", "row", "figure", "the paper", "here", "of which"),
            tuple(published),
            "The paper's are of one GPU, ours of this machine's processor: numbers of weights and "
            "ratios can be compared, seconds cannot. Its ratios are of whole runs, ours of steps.",
            names=3,
        )
    yield _rows(measured)
    yield _machines(measured)


def _shape(task: str, costs: StepCosts) -> Sheet:
    plain = next(iter(costs.rows))
    lines = tuple(_line(name, row) for name, row in costs.rows.items())
    over = f"{numbers.TIMES} {plain}"
    columns = ["row", "weights", "trainable"]
    columns += [name for unit in ("peak, MiB", "step, ms", "answer, ms") for name in (unit, over)]
    note = (
        "Median of the rounds, with the quartiles below; ratios are taken round by round. An "
        "answer is one row's share of a batch of test rows. Once: what follows training, such as "
        "keys that are learned for all training rows."
    )
    title = f"{task}, batches of {costs.batch}"
    return Sheet("overview", title, (*columns, "once"), lines, note)


def _line(name: str, row: RowCost) -> tuple[Field, ...]:
    return (
        Field(name),
        Field(count(row.parameters)),
        Field(count(row.trainable)),
        Field(plainly(row.peak_bytes / 2**20)),
        Field(ratio(row.memory_times)),
        _timed(row.step),
        _ratios(row.step_times),
        _timed(row.answer),
        _ratios(row.answer_times),
        Field(numbers.duration(row.once) if row.once >= NOTICED else ""),
    )


def _timed(found: Middle) -> Field:
    middle, low, high = (plainly(1000 * one) for one in (found.median, found.low, found.high))
    return Field(middle, (f"{low}\u2013{high}",))


def _ratios(found: Middle) -> Field:
    return Field(ratio(found.median), (f"{ratio(found.low)}\u2013{ratio(found.high)}",))


def _published(measured: Mapping[str, StepCosts]) -> Iterator[tuple[Field, ...]]:
    lines: list[tuple[Field, ...]] = []
    for task, costs in measured.items():
        for name, row in costs.rows.items():
            said = row.published
            if said is None:
                continue
            figures = (
                ("weights", said.parameters, row.parameters, count),
                ("trainable", said.trainable, row.trainable, count),
                ("peak, MiB", said.mebibytes, row.peak_bytes / 2**20, plainly),
                ("a step, s", said.seconds, row.step.median, plainly),
                ("time over plain", said.times_plain, row.step_times.median, ratio),
            )
            for figure, theirs, ours, shown in figures:
                if theirs is not None:
                    texts = (figure, shown(theirs), shown(ours), said.note)
                    first = named_once(task, lines)
                    lines.append((Field(first), Field(name), *map(Field, texts)))
    yield from lines


def _rows(measured: Mapping[str, StepCosts]) -> Sheet:
    words: dict[str, str] = {}
    for costs in measured.values():
        for name, row in costs.rows.items():
            words.setdefault(name, row.what)
    lines = tuple((Field(name), Field(what)) for name, what in words.items())
    return Sheet("rows", "What the rows are", ("row", "what"), lines, names=2)


def _machines(measured: Mapping[str, StepCosts]) -> Sheet:
    lines = tuple(
        (
            Field(task),
            Field(f"{costs.processor}, {costs.cores} cores"),
            *map(
                Field,
                (
                    str(costs.threads),
                    str(costs.rounds),
                    str(costs.answered),
                    f"{costs.training_rows:,}",
                    numbers.MISSING if costs.load is None else f"{costs.load:g}",
                    f"{costs.processor_share:.2f}",
                ),
            ),
        )
        for task, costs in measured.items()
    )
    columns = ("shape", "processor", "threads", "rounds", "answered at once", "training rows")
    return Sheet(
        "machine",
        "How it was measured",
        (*columns, "load before", "processor per second"),
        lines,
        "Load: busy processes in the minute before. Processor per second: seconds of the processor "
        "for a second on the clock; below 1 for one thread, something else took the core, and "
        "times are too long.",
        names=2,
    )


def count(number: float) -> str:
    """Return a number of weights.

    Example:
        >>> count(47), count(36_912), count(87_455_232)
        ('47', '36.9 K', '87.5 M')
    """
    for unit, letter in ((1e6, "M"), (1e3, "K")):
        if number >= unit:
            return f"{plainly(number / unit)} {letter}"
    return f"{number:g}"


def ratio(found: float) -> str:
    """Return how many times as much.

    Example:
        >>> ratio(1.0), ratio(12.34)
        ('1.00', '12.3')
    """
    return f"{found:.2f}" if found < 10 else plainly(found)


def plainly(found: float) -> str:
    """Return a number with three figures that count.

    Example:
        >>> plainly(0.012345), plainly(1234.5), plainly(2.0)
        ('0.0123', '1,234', '2.00')
    """
    return f"{found:,.0f}" if found >= 100 else f"{found:#.3g}".rstrip(".")


class Quantity(NamedTuple):
    """What is set beside the plain backbone's.

    Args:
        title: Of its panel.
        noun: In the sentence below the picture.
        of: From a row to the ratio.
    """

    title: str
    noun: str
    of: Callable[[RowCost], float]


QUANTITIES = (
    Quantity("seconds of a training step", "a step", lambda row: row.step_times.median),
    Quantity("seconds of an answer", "an answer", lambda row: row.answer_times.median),
    Quantity("peak of memory in a step", "peak of memory", lambda row: row.memory_times),
)


def step_cost_scenes(costs: Mapping[str, StepCosts]) -> Iterator[Scene]:
    """Yield one picture of all shapes, where there are several.

    Args:
        costs: By name of the shape, the plain backbone first in each.
    """
    if len(costs) < 2:
        return
    plain = next(iter(next(iter(costs.values())).rows))
    shared = [name for name in _shared(costs) if name != plain]
    yield Scene(
        name="times-plain",
        title=f"What rows cost, beside {plain}",
        panels=tuple(_plot(quantity, costs, plain, shared) for quantity in QUANTITIES),
        columns=1,
        finding="\n".join(_sentence(name, costs) for name in shared),
        about=ABOUT,
    )


def _shared(costs: Mapping[str, StepCosts]) -> list[str]:
    """Return the rows that most shapes have, in the order of the first."""
    names = dict.fromkeys(name for one in costs.values() for name in one.rows)
    return [n for n in names if 2 * sum(n in one.rows for one in costs.values()) > len(costs)]


def _plot(
    quantity: Quantity, costs: Mapping[str, StepCosts], plain: str, shared: list[str]
) -> Plot:
    ratios = {
        task: {name: quantity.of(row) for name, row in one.rows.items()}
        for task, one in costs.items()
    }
    rivals = {name for of in ratios.values() for name in of} - {plain, *shared}
    series = [_series(plain, Look(dashes=1), ratios, {plain}, 0, joined=True)]
    if rivals:
        series.append(_series(OTHERS, Look(hollow=True), ratios, rivals, len(shared) + 1))
    for place, name in enumerate(shared):
        series.append(_series(name, Look.of(place), ratios, {name}, place + 1))
    heights = [point.y for one in series for point in one.points]  # plain's are 0
    return Plot(
        title=quantity.title,
        series=tuple(series),
        y_title=f"{TIMES} {plain}",
        x_ticks=tuple((float(x), task) for x, task in enumerate(costs)),
        y_ticks=tuple(
            (float(step), f"{2.0**step:g}")
            for step in range(ceil(min(heights)), floor(max(heights)) + 1)
        ),
    )


def _series(
    title: str,
    look: Look,
    ratios: Mapping[str, Mapping[str, float]],
    names: Set[str],
    place: int,
    *,
    joined: bool = False,
) -> Series:
    """Return the points of some rows on every task; ``place`` keeps series apart."""
    points = [
        Point(x + DODGE * place, log2(of[name]), (f"{name}, {task}", f"{TIMES} {of[name]:.2f}"))
        for x, (task, of) in enumerate(ratios.items())
        for name in of
        if name in names
    ]
    return Series(name=title, look=look, points=tuple(points), joined=joined)


def _sentence(name: str, costs: Mapping[str, StepCosts]) -> str:
    """Say what a row costs at the least and at the most of the shapes."""
    rows = {task: one.rows[name] for task, one in costs.items() if name in one.rows}
    said = []
    for quantity in QUANTITIES:
        ratios = {task: quantity.of(row) for task, row in rows.items()}
        least, most = (pick(ratios, key=lambda task: ratios[task]) for pick in (min, max))
        said.append(f"{quantity.noun} {ratios[least]:.2f} ({least}) to {ratios[most]:.2f} ({most})")
    return f"{name}, times the plain backbone: {'; '.join(said)}."
