"""What rows cost beside the plain backbone, over the shapes that were measured, as a picture."""

from collections.abc import Callable, Iterator, Mapping, Set
from math import ceil, floor, log2
from typing import NamedTuple

from hma.report.looks import Look
from hma.report.numbers import TIMES
from hma.report.pictures import Plot, Point, Scene, Series
from hma.report.table.step_costs import RowCost, StepCosts

OTHERS = "rivals"
"""The series of all rows that most shapes do not have."""
DODGE = 0.1
"""How far rows stand apart on a shape, of the way to the next one."""
ABOUT = (
    "Medians of ratios taken round by round; each step up is twice as much. Rivals are rows that "
    "most shapes do not have."
)


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
