"""The map of attention: who looks at whom in the synthetic read, and do classes look alike?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hma.paper.picture_measures import unpacked
from hma.paper.table import ATTENTION_MAP, AttentionMap, Cell, Table
from hma.report.numbers import share, signed
from hma.report.pictures.over_seeds import Measured, measured_places, numbers_of
from hma.report.pictures.scene import Check, Example, Groups, HeatMap, Line, Scene
from hma.training import Record

ABOUT = (
    "Attention of the synthetic read, mean over heads, relative to an even look at everything: at "
    "1 a sample looks at another as much as at any. The map shows the first seed, the numbers are "
    "of all. Chance: the same with permuted classes, its middle 95% in brackets."
)
NUMBERS = {
    "alike": "likeness of two samples' looks at slots: same class minus other class",
    "blocks": "share of the variance of looks at slots that classes of samples explain",
    "same samples": "of the attention on other samples, part on those of the own class",
    "same slots": "of the attention on slots, part on those of the own class",
    "to slots": "mean attention on a slot minus that on a sample (chance: columns permuted)",
}


def attention_scenes(
    picture: AttentionMap, table: Table, records: Mapping[Cell, Record]
) -> Iterator[Scene]:
    """Yield a picture for each task that has the measure, a panel for each row."""
    for task, rows in measured_places(records, ATTENTION_MAP, picture.rows):
        panels: list[HeatMap] = []
        checks: list[Check] = []
        sentences: list[str] = []
        for row, seeds in rows.items():
            seed, shown = next(iter(seeds.items()))
            panels.append(_panel(row, task, seed, shown))
            numbers = numbers_of(list(seeds.values()), NUMBERS)
            where = f"{task}, {row}"
            checks += [one.check(where, NUMBERS[name]) for name, one in numbers.items()]
            sentences.append(_finding(row, numbers))
        yield Scene(
            name=f"attention-{task}",
            title=f"{picture.title}: {task}",
            panels=tuple(panels),
            columns=1,
            finding="\n".join(sentences),
            checks=tuple(checks),
            about=ABOUT,
        )


def _finding(row: str, numbers: Mapping[str, Measured]) -> str:
    if not {"alike", "same slots", "to slots"} <= numbers.keys():
        return f"{row}: not defined, samples look at no slot."
    alike, same, rest = (numbers[name] for name in ("alike", "same slots", "to slots"))
    look = "look at slots alike" if alike.beyond else "do not look at slots alike"
    most = "more" if same.beyond else "no more"
    apart = "is not looked at otherwise than a sample"
    if rest.beyond:
        apart = f"is looked at {'more' if rest.mean > rest.chance else 'less'} than a sample"
    return (
        f"{row}: samples of a class {look} (likeness {signed(alike.mean, 2)} over other classes), "
        f"and at slots of their own class {most} than by chance ({share(same.mean)}, by chance "
        f"{share(same.chance)}); a slot {apart} (by {signed(rest.mean, 2)} of an even look)."
    )


def _panel(row: str, task: str, seed: int, found: Mapping[str, Any]) -> HeatMap:
    classes = found["classes"]
    sample_classes = [int(c) for c in unpacked(found["sample classes"])]
    slot_classes = [int(c) for c in unpacked(found["slot classes"])]
    places = [int(p) for p in unpacked(found["places"])]
    samples = tuple(
        Line(
            f"{classes[c]}, {found['split']} row {place}",
            Example(task, seed, found["split"], place),
        )
        for c, place in zip(sample_classes, places, strict=True)
    )
    slots = tuple(Line(f"slot of {classes[c]}") for c in slot_classes)
    scale = found["unit"]
    values = tuple(tuple(scale * v for v in unpacked(line)) for line in found["shares"])
    own = _grouped(sample_classes, classes)
    slot_groups = tuple((f"slots {name}", count) for name, count in _grouped(slot_classes, classes))
    return HeatMap(
        title=row,
        values=values,
        rows=samples,
        columns=(*samples, *slots),
        row_groups=own,
        column_groups=(*own, *slot_groups),
        row_title="sample that looks",
        column_title="samples and slots that are looked at",
        value_title="attention, 1 is an even look",
        digits=2,
    )


def _grouped(places: Sequence[int], classes: Sequence[str]) -> Groups:
    return tuple((name, places.count(c)) for c, name in enumerate(classes) if c in places)
