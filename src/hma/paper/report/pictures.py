"""Pictures of a table: from its records and scores to scenes, each beside what checks it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, NamedTuple, assert_never

from hma.paper.picture_measures import unpacked
from hma.paper.report import scores
from hma.paper.report.scene import Check, Scene
from hma.paper.report.scores import settled
from hma.paper.report.table_report import Entry, Group, Place, TableReport
from hma.paper.table import ATTENTION_MAP, SLOT_MAP, AttentionMap, Cell, SizeSweep, SlotMap, Table
from hma.report.charts import Example, Groups, HeatMap, Line, Panel, Plot, Point, Series
from hma.report.numbers import MISSING, counted, fixed, percent, probability, share, signed
from hma.report.statistics import CHANCE, student_interval
from hma.report.svg import Look
from hma.training import Record

Columns = Mapping[str, list[float]]
SLOTS_ABOUT = (
    "t-SNE of the free features of the slots and of what the synthetic read is given of real rows, "
    "without label embeddings, as in the paper; the map shows the first seed, the numbers are of "
    "all. Chance: the same with permuted classes, its middle 95% in brackets."
)
SLOT_NUMBERS = {
    "silhouette": "silhouette of all slots by class",
    "silhouette of shown": "the same of the classes shown",
    "silhouette on map": "the same on the map",
    "nearest": "slots whose nearest real feature, by angle, has their class",
    "apart": "slots nearest to a slot, not to a real feature",
}
LOOK_ABOUT = (
    "Attention of the synthetic read, mean over heads, relative to an even look at everything: at "
    "1 a sample looks at another as much as at any. The map shows the first seed, the numbers are "
    "of all. Chance: the same with permuted classes, its middle 95% in brackets."
)
LOOK_NUMBERS = {
    "alike": "likeness of two samples' looks at slots: same class minus other class",
    "blocks": "share of the variance of looks at slots that classes of samples explain",
    "same samples": "of the attention on other samples, part on those of the own class",
    "same slots": "of the attention on slots, part on those of the own class",
    "to slots": "mean attention on a slot minus that on a sample (chance: columns permuted)",
}
Entries = Mapping[Place, Entry]
Sizes = tuple[int, int]
"""Rows of the real memory, and slots of a class."""
Scores = Mapping[Sizes, float]
"""Of one seed."""
DIGITS = 2
CURVES_ABOUT = "Means over seeds; bands are one sample standard deviation wide on either side."
SWEEP_ABOUT = (
    "Means over seeds; bands are one sample standard deviation wide on either side. Every number "
    "below is computed seed by seed, then shown with Student's 95% interval over seeds: a reading "
    "holds if the interval lies on its side of 0, is denied on the other side, else is open."
)


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
        name: Measured(
            values=tuple(float(one["value"]) for one in found),
            chance=fmean(one["chance"] for one in found),
            low=fmean(one["low"] for one in found),
            high=fmean(one["high"] for one in found),
            p=tuple(float(one["p"]) for one in found),
        )
        for name, found in held.items()
        if all(one.get("value") is not None for one in found)
    }


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


def _maps(
    measure: str,
    picture: SlotMap | AttentionMap,
    records: Mapping[Cell, Record],
    numbers: Mapping[str, str],
    panels_of: Callable[[str, str, int, Mapping[str, Any]], Sequence[Panel]],
    finding_of: Callable[[str, Mapping[str, Measured]], str],
) -> Iterator[Scene]:
    """Yield a picture for each task that has a measure: the first seed's map, numbers of all.

    Args:
        measure: Of the records.
        picture: Names the rows.
        records: Of one budget.
        numbers: What is checked, by name, in words.
        panels_of: From row, task, seed and its measure to panels.
        finding_of: From a row and its numbers to a sentence.
    """
    for task, rows in measured_places(records, measure, picture.rows):
        panels: list[Panel] = []
        checks: list[Check] = []
        sentences: list[str] = []
        for row, seeds in rows.items():
            panels += panels_of(row, task, *next(iter(seeds.items())))
            found = numbers_of(list(seeds.values()), numbers)
            checks += [one.check(f"{task}, {row}", numbers[n]) for n, one in found.items()]
            sentences.append(finding_of(row, found))
        yield Scene(
            name=task,
            title=f"{picture.title}: {task}",
            panels=tuple(panels),
            finding="\n".join(sentences),
            checks=tuple(checks),
        )


def slot_scenes(picture: SlotMap, records: Mapping[Cell, Record]) -> Iterator[Scene]:
    """Yield a map of slots for each task that has the measure, two panels for each row."""
    for found in _maps(SLOT_MAP, picture, records, SLOT_NUMBERS, _slot_panels, _slot_finding):
        yield replace(found, name=f"slots-{found.name}", about=SLOTS_ABOUT)


def _slot_finding(row: str, numbers: Mapping[str, Measured]) -> str:
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


def _slot_panels(row: str, task: str, seed: int, found: Mapping[str, Any]) -> list[Plot]:
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


def attention_scenes(picture: AttentionMap, records: Mapping[Cell, Record]) -> Iterator[Scene]:
    """Yield a map of attention for each task that has the measure, a panel for each row."""
    for found in _maps(ATTENTION_MAP, picture, records, LOOK_NUMBERS, _look_panel, _look_finding):
        yield replace(found, name=f"attention-{found.name}", columns=1, about=LOOK_ABOUT)


def _look_finding(row: str, numbers: Mapping[str, Measured]) -> str:
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


def _look_panel(row: str, task: str, seed: int, found: Mapping[str, Any]) -> list[HeatMap]:
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
    return [
        HeatMap(
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
    ]


def _grouped(places: Sequence[int], classes: Sequence[str]) -> Groups:
    return tuple((name, places.count(c)) for c, name in enumerate(classes) if c in places)


def scenes_of(
    table: Table, records: Mapping[Cell, Record], entries: Mapping[Place, Entry]
) -> Iterator[Scene]:
    """Yield the pictures of a table, as far as there is what they show.

    Args:
        table: Declares them.
        records: Of one budget.
        entries: Their scores, by task and row.
    """
    for picture in table.pictures:
        if isinstance(picture, SlotMap):
            yield from slot_scenes(picture, records)
        elif isinstance(picture, AttentionMap):
            yield from attention_scenes(picture, records)
        elif isinstance(picture, SizeSweep):
            yield from sweep_scenes(picture, table, entries)
        else:
            assert_never(picture)


class Reading(NamedTuple):
    """What is read off the picture, as a number of each seed.

    Args:
        claim: In words.
        what: How it is computed.
        of: From the scores of a seed to the number.
        sign: 1 where the claim is a number above 0, -1 where below.
    """

    claim: str
    what: str
    of: Callable[[Scores], float]
    sign: int


def sweep_scenes(picture: SizeSweep, table: Table, entries: Entries) -> Iterator[Scene]:
    """Yield the picture of each task that has a score for any of the sizes."""
    for task in table.problems:
        asked = {s: row for s, row in picture.sizes.items() if (task, row) in entries}
        if any(_mean(entries, task, row) is not None for row in asked.values()):
            yield _scene(replace(picture, sizes=asked), table.metric, task, entries)


def _scene(picture: SizeSweep, metric: str, task: str, entries: Entries) -> Scene:
    checks = tuple(_checks(picture, task, entries))
    said = [f"{c.what.partition(':')[0]}: {c.outcome}, {c.measured}." for c in checks]
    return Scene(
        name=f"sizes-{task}",
        title=f"{picture.title}: {task}",
        panels=(_lines(picture, metric, task, entries), _map(picture, metric, task, entries)),
        columns=1,
        finding=" ".join(said) or "Too little is measured to check what is read off it.",
        checks=checks,
        about=SWEEP_ABOUT,
    )


# ------------------------------------------------------------------------- a sweep: the picture


def _axes(picture: SizeSweep) -> tuple[list[int], list[int]]:
    """Return the sizes of the real memory, and those of the slots."""
    return sorted({m1 for m1, _ in picture.sizes}), sorted({m2 for _, m2 in picture.sizes})


def _lines(picture: SizeSweep, metric: str, task: str, entries: Entries) -> Plot:
    real, slots = _axes(picture)
    series = []
    for place, m1 in enumerate(real):
        rows = [(x, picture.sizes.get((m1, m2)), f"m1 {m1}, m2 {m2}") for x, m2 in enumerate(slots)]
        series.append(_series(f"m1 = {m1}", Look.of(place), rows, metric, task, entries))
    for place, row in enumerate(picture.references):
        look = Look(colour=None, dashes=place + 1, hollow=True)
        level = [(x, row, row) for x in range(len(slots))]
        series.append(_series(row, look, level, metric, task, entries))
    return Plot(
        title="over the slots of a class",
        series=tuple(one for one in series if one.points),
        x_title="slots of a class, m2 (0: attention between datapoints alone)",
        y_title=scores.title(metric),
        x_ticks=tuple((float(x), str(m2)) for x, m2 in enumerate(slots)),
    )


def _series(
    name: str,
    look: Look,
    rows: Sequence[tuple[int, str | None, str]],
    metric: str,
    task: str,
    entries: Entries,
) -> Series:
    points = [
        point
        for x, row, words in rows
        if (point := _score_point(x, words, metric, entries.get((task, row or "")))) is not None
    ]
    return Series(name=name, look=look, points=tuple(points), joined=True)


def _score_point(x: int, name: str, metric: str, entry: Entry | None) -> Point | None:
    """Return a mean with its band of one deviation; None where there is none."""
    found = None if entry is None else entry.measured
    if found is None or not math.isfinite(found.mean):
        return None
    reach = found.std or 0.0
    said = (f"{name}: {scores.spread(metric, found)}", counted(found.count, "seed"))
    return Point(float(x), found.mean, said, low=found.mean - reach, high=found.mean + reach)


def _map(picture: SizeSweep, metric: str, task: str, entries: Entries) -> HeatMap:
    real, slots = _axes(picture)
    values = tuple(
        tuple(_mean(entries, task, picture.sizes.get((m1, m2))) for m2 in slots) for m1 in real
    )
    return HeatMap(
        title="both sizes",
        values=values,
        rows=tuple(Line(f"m1 = {m1}") for m1 in real),
        columns=tuple(Line(f"m2 = {m2}") for m2 in slots),
        row_groups=tuple((str(m1), 1) for m1 in real),
        column_groups=tuple((str(m2), 1) for m2 in slots),
        row_title="real memory, m1",
        column_title="slots of a class, m2",
        value_title=scores.title(metric),
        digits=DIGITS,
        written=True,
    )


def _mean(entries: Entries, task: str, row: str | None) -> float | None:
    entry = None if row is None else entries.get((task, row))
    if entry is None or entry.measured is None or not math.isfinite(entry.measured.mean):
        return None
    return entry.measured.mean


# ------------------------------------------------------------------------ a sweep: the readings


def readings(real: Sequence[int], slots: Sequence[int]) -> tuple[Reading, ...]:
    """Return the paper's readings of such a picture, as numbers of a seed.

    Args:
        real: Sizes of the real memory, 0 first.
        slots: Slots of a class, 0 first, at least two more.
    """
    with_memory, without = [m1 for m1 in real if m1], [m1 for m1 in real if not m1]
    inner, largest = slots[1:-1], slots[-1]

    def mean(found: Scores, rows: Sequence[int], columns: Sequence[int]) -> float:
        return fmean(found[m1, m2] for m1 in rows for m2 in columns)

    def gain(found: Scores, rows: Sequence[int]) -> float:
        return mean(found, rows, slots[1:]) - mean(found, rows, [0])

    def spread(found: Scores, rows: Sequence[int]) -> float:
        return fmean(stdev(found[m1, m2] for m2 in slots) for m1 in rows)

    return (
        Reading(
            "slots help",
            f"m2 in {_several(inner)} minus m2 = 0",
            lambda found: mean(found, real, inner) - mean(found, real, [0]),
            1,
        ),
        Reading(
            "too many slots hurt",
            f"m2 = {largest} minus m2 in {_several(inner)}",
            lambda found: mean(found, real, [largest]) - mean(found, real, inner),
            -1,
        ),
        Reading(
            "real memory makes it more stable",
            "deviation over m2, m1 > 0 minus m1 = 0",
            lambda found: spread(found, with_memory) - spread(found, without),
            -1,
        ),
        Reading(
            "slots give more with real memory",
            "all m2 > 0 minus m2 = 0, m1 > 0 minus m1 = 0",
            lambda found: gain(found, with_memory) - gain(found, without),
            1,
        ),
    )


def _checks(picture: SizeSweep, task: str, entries: Entries) -> Iterator[Check]:
    real, slots = _axes(picture)
    whole = len(picture.sizes) == len(real) * len(slots)
    if not whole or 0 not in real or 0 not in slots or len(real) < 2 or len(slots) < 3:
        return
    held = {size: entries.get((task, row)) for size, row in picture.sizes.items()}
    seeds = set.intersection(*(set(entry.scores) if entry else set() for entry in held.values()))
    if not seeds:
        return
    by_seed = [{s: e.scores[seed] for s, e in held.items() if e} for seed in sorted(seeds)]
    for reading in readings(real, slots):
        found = student_interval([settled(reading.of(one)) for one in by_seed])
        known = math.isfinite(found.low)
        ends = f"{fixed(found.low, DIGITS)} to {fixed(found.high, DIGITS)}" if known else MISSING
        yield Check(
            where=f"{task}, {counted(len(by_seed), 'seed')}",
            what=f"{reading.claim[0].upper()}{reading.claim[1:]}: {reading.what}",
            measured=f"{fixed(found.value, DIGITS, sign='+')} ({ends})",
            chance="0",
            outcome=_outcome(reading.sign * found.low, reading.sign * found.high),
        )


def _outcome(one: float, other: float) -> str:
    """Say what an interval on the side of a claim means; ends that are not known leave it open."""
    if min(one, other) > 0:
        return "holds"
    return "denied" if max(one, other) < 0 else "open"


def _several(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def printed_scenes(report: TableReport) -> tuple[Scene, ...]:
    """Return what is printed of a table: its pictures, or its curves where it declares none."""
    plots = [curve for group in report.groups if (curve := curve_plot(report, group)) is not None]
    if report.scenes or not plots:
        return report.scenes
    columns = min(2, len(plots))
    title = report.table.title
    return (Scene(name="", title=title, panels=tuple(plots), columns=columns, about=CURVES_ABOUT),)


def curve_plot(report: TableReport, group: Group) -> Plot | None:
    """Return mean scores over the settings of a curve; None of what is no curve, or not measured.

    A curve has a hole where nothing is measured, and a row without a score is said to be missing.
    """
    metric = report.table.metric
    series = []
    for method in report.shown:
        held = [report.entries.get((task, method)) for task in group.tasks]
        found = [_score_point(x, method, metric, entry) for x, entry in enumerate(held)]
        points = [one or Point(float(x), math.nan, ()) for x, one in enumerate(found)]
        name = method if any(found) else f"{method}, missing"
        shown = tuple(points) if any(found) else ()
        series.append(Series(name=name, look=row_look(report, method), points=shown, joined=True))
    if not group.name or len(group.tasks) < 2 or not any(one.points for one in series):
        return None
    return Plot(
        title=group.name,
        series=tuple(series),
        x_title="setting",
        y_title=scores.title(metric),
        x_ticks=tuple((float(place), label) for place, label in enumerate(group.labels)),
    )


def row_look(report: TableReport, method: str) -> Look:
    """Return how a row looks; the baseline has the colour of the text."""
    others = [name for name in report.methods if name != report.table.baseline]
    return Look() if method == report.table.baseline else Look.of(others.index(method))
