"""The document that says what of a memory's gain is memory; every word of it from the numbers."""

from collections.abc import Iterator, Mapping, Sequence

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.paper.results import Results
from hma.paper.table import Table
from hma.report.gains.climbs import STEPS, Climb, climbs_of, pooled
from hma.report.numbers import MISSING, counted, percent, signed
from hma.report.table.markdown import plain

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
        [f"[{plain(key)}](#{key.lower()})", str(len(climbs)), *_fields(pooled(climbs))]
        for key, climbs in held.items()
    ]
    every = [climb for climbs in held.values() for climb in climbs]
    lines.append(["mean over tasks", str(len(every)), *_fields(pooled(every))])
    return _grid(["table", "tasks", *STEPS], lines, names=1)


def _table(table: Table, climbs: Sequence[Climb]) -> Iterator[str]:
    yield f"## {plain(table.key)}"
    yield f"{plain(table.title)}, by {_words(climbs[0].metric)}; budget {climbs[0].budget}."
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
        lines.append([plain(name), str(climb.seeds), rows, *_fields(climb.steps)])
    if len(climbs) > 1:
        lines.append(["mean over tasks", "", "", *_fields(pooled(climbs))])
    return _grid(["task", "seeds", "test rows drawn", *STEPS], lines, names=1)


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
            lines.append(f"- {plain(table.key)}, {plain(table.title)}: no record to tell it by.")
            continue
        wanted = {(task, ladder.plain) for task in table.problems for ladder in table.ladders}
        absent = wanted - {(climb.task, climb.plain) for climb in held}
        blind = [climb.task for climb in held if "both" not in climb.steps]
        bare = [c.task for c in held if "LayerNorm" not in c.steps and "both" in c.steps]
        said = [f"{counted(len(absent), 'task')} of {len(wanted)} without records"] * bool(absent)
        said += [f"{counted(len(blind), 'task')} without the row PARAM"] * bool(blind)
        said += [f"{counted(len(bare), 'task')} without the row LayerNorm"] * bool(bare)
        if said:
            lines.append(f"- {plain(table.key)}: {'; '.join(said)}.")
    return ["## What is missing", "\n".join(lines)] if lines else []


def _grid(columns: Sequence[str], lines: Sequence[Sequence[str]], *, names: int) -> str:
    dashes = ["---"] * names + ["---:"] * (len(columns) - names)
    return "\n".join("| " + " | ".join(line) + " |" for line in [columns, dashes, *lines])
