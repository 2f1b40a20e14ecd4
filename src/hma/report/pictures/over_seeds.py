"""Numbers that records check a picture by, over seeds: each beside what permuted classes give."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from hma.paper.table import Cell
from hma.report.numbers import fixed, probability
from hma.report.pictures.scene import Check
from hma.report.statistics import CHANCE
from hma.training import Record


@dataclass(frozen=True)
class Measured:
    """A number of each seed, beside its own distribution without the effect.

    Args:
        values: Seed by seed.
        chance: Mean without the effect, over seeds.
        low, high: Ends of the middle 95% of it, over seeds.
        p: Of each seed: how often chance reaches it.
    """

    values: tuple[float, ...]
    chance: float
    low: float
    high: float
    p: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return fmean(self.values)

    @property
    def beyond(self) -> bool:
        """Whether every seed lies beyond what chance gives."""
        return max(self.p) < CHANCE

    @property
    def seeds_beyond(self) -> int:
        """How many seeds do."""
        return sum(p < CHANCE for p in self.p)

    def check(self, where: str, what: str, *, digits: int = 3) -> Check:
        """Return it as a line of a table."""
        spread = f" ± {fixed(stdev(self.values), digits)}" if len(self.values) > 1 else ""
        ends = f"{fixed(self.low, digits)} to {fixed(self.high, digits)}"
        most = "" if len(self.p) == 1 else " at most"
        return Check(
            where=where,
            what=what,
            measured=fixed(self.mean, digits) + spread,
            chance=f"{fixed(self.chance, digits)} ({ends})",
            outcome=f"p{most} {probability(max(self.p))}",
        )


def numbers_of(seeds: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, Measured]:
    """Return the numbers that all seeds have, by name; one that is not defined is left out."""
    held = {name: [one["numbers"].get(name, {}) for one in seeds] for name in names}
    return {
        name: over_seeds(found)
        for name, found in held.items()
        if all(one.get("value") is not None for one in found)
    }


def over_seeds(found: Sequence[Mapping[str, Any]]) -> Measured:
    """Return a number of several records as one.

    Args:
        found: ``value``, ``chance``, ``low``, ``high`` and ``p`` of each seed.
    """
    return Measured(
        values=tuple(float(one["value"]) for one in found),
        chance=fmean(one["chance"] for one in found),
        low=fmean(one["low"] for one in found),
        high=fmean(one["high"] for one in found),
        p=tuple(float(one["p"]) for one in found),
    )


def measured_places(
    records: Mapping[Cell, Record], measure: str, rows: Sequence[str]
) -> Iterator[tuple[str, dict[str, dict[int, Any]]]]:
    """Yield each task with what its rows measured: row -> seed -> values."""
    tasks = dict.fromkeys(cell.task for cell in records)
    for task in tasks:
        held: dict[str, dict[int, Any]] = {}
        for row in rows:
            seeds = {
                cell.seed: record.measures[measure]
                for cell, record in sorted(records.items())
                if (cell.task, cell.method) == (task, row) and measure in record.measures
            }
            if seeds:
                held[row] = seeds
        if held:
            yield task, held
