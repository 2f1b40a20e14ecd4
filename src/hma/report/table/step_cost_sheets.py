"""What rows cost, as sheets: a shape after the other, the paper's figures, how it was measured."""

from collections.abc import Iterator

from hma.report import numbers
from hma.report.table.sheet import Field, Sheet, named_once
from hma.report.table.step_costs import Middle, RowCost, StepCosts
from hma.report.table.table_report import TableReport

NOTICED = 0.05
"""Seconds after training that are worth a mention."""


def step_cost_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield a sheet for each shape, then what the paper says, then how it was measured."""
    for task, costs in report.step_costs.items():
        yield _shape(task, costs)
    published = [*_published(report)]
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
    yield _rows(report)
    yield _machines(report)


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


def _published(report: TableReport) -> Iterator[tuple[Field, ...]]:
    lines: list[tuple[Field, ...]] = []
    for task, costs in report.step_costs.items():
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


def _rows(report: TableReport) -> Sheet:
    words: dict[str, str] = {}
    for costs in report.step_costs.values():
        for name, row in costs.rows.items():
            words.setdefault(name, row.what)
    lines = tuple((Field(name), Field(what)) for name, what in words.items())
    return Sheet("rows", "What the rows are", ("row", "what"), lines, names=2)


def _machines(report: TableReport) -> Sheet:
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
        for task, costs in report.step_costs.items()
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
