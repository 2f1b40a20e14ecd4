"""The map of slots: alone, and beside real features; do slots of a class lie together?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hma.paper.picture_measures import unpacked
from hma.paper.table import SLOT_MAP, Cell, SlotMap, Table
from hma.report.looks import Look
from hma.report.numbers import fixed, percent
from hma.report.pictures.over_seeds import Measured, measured_places, numbers_of
from hma.report.pictures.scene import Check, Example, Plot, Point, Scene, Series
from hma.training import Record

Columns = Mapping[str, list[float]]
ABOUT = (
    "t-SNE of the free features of the slots and of what the synthetic read is given of real rows, "
    "without label embeddings, as in the paper; the map shows the first seed, the numbers are of "
    "all. Chance: the same with permuted classes, its middle 95% in brackets."
)
NUMBERS = {
    "silhouette": "silhouette of all slots by class",
    "silhouette of shown": "the same of the classes shown",
    "silhouette on map": "the same on the map",
    "nearest": "slots whose nearest real feature, by angle, has their class",
    "apart": "slots nearest to a slot, not to a real feature",
}


def slot_scenes(picture: SlotMap, table: Table, records: Mapping[Cell, Record]) -> Iterator[Scene]:
    """Yield a picture for each task that has the measure, a line of two panels for each row."""
    for task, rows in measured_places(records, SLOT_MAP, picture.rows):
        panels: list[Plot] = []
        checks: list[Check] = []
        found: dict[str, dict[str, Measured]] = {}
        for row, seeds in rows.items():
            seed, shown = next(iter(seeds.items()))
            panels += _panels(row, task, seed, shown)
            found[row] = numbers_of(list(seeds.values()), NUMBERS)
            where = f"{task}, {row}"
            checks += [one.check(where, NUMBERS[name]) for name, one in found[row].items()]
        yield Scene(
            name=f"slots-{task}",
            title=f"{picture.title}: {task}",
            panels=tuple(panels),
            finding="\n".join(_finding(row, numbers) for row, numbers in found.items()),
            checks=tuple(checks),
            about=ABOUT,
        )


def _finding(row: str, numbers: Mapping[str, Measured]) -> str:
    if not {"silhouette", "nearest", "apart"} <= numbers.keys():
        return f"{row}: not defined, slots lie at one place."
    own, near, apart = (numbers[name] for name in ("silhouette", "nearest", "apart"))
    lie = "do not lie together"
    if own.beyond:
        lie = "lie together" if own.mean > 0 else "lie less far apart than by chance, not together"
    elif own.seeds_beyond:
        lie = f"lie less far apart than by chance with {own.seeds_beyond} of {len(own.p)} seeds"
    among = "are among" if near.beyond else "are not among"
    keep = "keep apart from real features" if apart.beyond else "do not keep apart from real ones"
    return (
        f"{row}: slots of a class {lie} (silhouette {fixed(own.mean, 2)}, by chance "
        f"{fixed(own.chance, 2)}{_of_shown(numbers)}); slots {among} the real features of their "
        f"class ({percent(near.mean, 0)} have a nearest one of it, by chance "
        f"{percent(near.chance, 0)}) and {keep} ({percent(apart.mean, 0)} are nearest to a slot, "
        f"by chance {percent(apart.chance, 0)})."
    )


def _of_shown(numbers: Mapping[str, Measured]) -> str:
    if not {"silhouette of shown", "silhouette on map"} <= numbers.keys():
        return ""
    shown, drawn = numbers["silhouette of shown"], numbers["silhouette on map"]
    return f"; of the classes shown {fixed(shown.mean, 2)}, on the map {fixed(drawn.mean, 2)}"


def _panels(row: str, task: str, seed: int, found: Mapping[str, Any]) -> list[Plot]:
    """Return the slots alone, and beside real features; both come class by class."""
    slots, rows, classes = _columns(found["slots"]), _columns(found["rows"]), found["classes"]
    called = [classes[int(c)] for c in slots["class"]]
    slot_words = [f"slot {place} of {name}" for place, name in enumerate(called)]
    row_words = [
        f"{found['split']} row {place:.0f}: {classes[int(c)]}"
        for place, c in zip(rows["place"], rows["class"], strict=True)
    ]
    count = len(row_words)
    alone = [
        Point(x, y, (words,))
        for x, y, words in zip(slots["alone x"], slots["alone y"], slot_words, strict=True)
    ]
    real = [
        Point(
            x,
            y,
            (row_words[place], "nearest slots: " + ", ".join(slot_words[j] for j in near)),
            near=tuple(count + j for j in near),
            example=Example(task, seed, found["split"], int(rows["place"][place])),
        )
        for place, (x, y, near) in enumerate(zip(rows["x"], rows["y"], _near(rows), strict=True))
    ]
    learned = [
        Point(x, y, (words, "nearest real: " + ", ".join(row_words[j] for j in near)), near)
        for x, y, words, near in zip(slots["x"], slots["y"], slot_words, _near(slots), strict=True)
    ]
    bare: dict[str, Any] = {"x_ticks": (), "y_ticks": ()}
    own = _by_class("slots", classes, slots, alone)
    beside = (*_by_class("real", classes, rows, real), *_by_class("slots", classes, slots, learned))
    return [
        Plot(title=f"{row}: slots", series=own, **bare),
        Plot(title=f"{row}: slots and real features", series=beside, **bare),
    ]


def _columns(found: Mapping[str, str]) -> Columns:
    return {name: unpacked(text) for name, text in found.items()}


def _near(found: Columns) -> list[tuple[int, ...]]:
    """Return the neighbours of each point, which are all in one list."""
    near = [int(place) for place in found["near"]]
    each = len(near) // len(found["class"])
    return [tuple(near[start : start + each]) for start in range(0, len(near), each)]


def _by_class(
    kind: str, classes: Sequence[str], found: Columns, points: Sequence[Point]
) -> tuple[Series, ...]:
    return tuple(
        Series(
            name=f"{name}: {kind}",
            look=Look.of(place, hollow=kind == "real"),
            points=tuple(
                point for point, c in zip(points, found["class"], strict=True) if c == place
            ),
        )
        for place, name in enumerate(classes)
    )
