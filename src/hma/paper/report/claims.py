"""What the paper says of its tables, and what records say to it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from zlib import crc32

import numpy as np

from hma.metrics import METRICS
from hma.metrics.resampling import LEVEL, Interval, percentile_interval
from hma.paper.report.gains import POINTS, RESAMPLES, Floats, drawn_scores, interval_of
from hma.paper.report.pictures import measured_places
from hma.paper.report.pictures import numbers_of as numbers_of_pictures
from hma.paper.report.scores import SETTLED, contexts_of
from hma.paper.report.table_report import TableReport
from hma.paper.report.verdicts import ORDER, POINT, Verdict, source_of
from hma.paper.table import ATTENTION_MAP, FULL, SLOT_MAP, AttentionMap, Claim, SizeSweep, SlotMap
from hma.training import Record

Place = tuple[str, str, str, str]
"""Table, task, row and the row that it is compared with."""
TOLERANCE = POINT * POINTS
"""In points: a difference too small to speak of."""
FEWEST = 2
"""Seeds that a difference needs for an interval."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A row against another on a task, in points.

    Args:
        table, task, row, other: Which.
        seeds: That both have.
        reduced: Whether it was measured at a smaller scale than published, or on other data.
        difference: Mean over seeds, with its 95% interval.
        draws: The mean in every resample, ``(R,)``.
        published: The same difference in the paper, where it prints both rows.
    """

    table: str
    task: str
    row: str
    other: str
    seeds: int
    reduced: bool
    difference: Interval
    draws: Floats
    published: float | None


@dataclass(frozen=True, kw_only=True)
class Sight:
    """A number behind a picture, of one task.

    Args:
        table, task: Which.
        says: The number in words.
        verdict: Whether it confirms what is said to be seen.
    """

    table: str
    task: str
    says: str
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim and what speaks for or against it.

    Args:
        claim: Without the rows of a table.
        tables: Keys of the tables that make it.
        contrasts: What is measured of it, of tables.
        asked: How many pairs of rows there are over all tasks, measured or not.
        sights: What is measured of it, of pictures.
    """

    claim: Claim
    tables: tuple[str, ...]
    contrasts: tuple[Contrast, ...] = ()
    asked: int = 0
    sights: tuple[Sight, ...] = ()

    @property
    def pooled(self) -> Interval | None:
        """The mean difference, each pair and task alike."""
        return _pooled(self.contrasts)

    @property
    def published(self) -> float | None:
        """The mean difference in the paper, over the pairs and tasks measured that it prints."""
        printed = [one.published for one in self.contrasts if one.published is not None]
        return fmean(printed) if printed else None

    @property
    def missed(self) -> bool:
        """Whether what is measured of the differences that the paper prints ends below them."""
        found = _pooled([one for one in self.contrasts if one.published is not None])
        return found is not None and found.high < (self.published or 0.0)

    @property
    def refuted(self) -> tuple[Contrast, ...]:
        """Those that lie below 0, with intervals of all of them together (Bonferroni)."""
        level = 1 - (1 - LEVEL) / max(len(self.contrasts), 1)
        return tuple(
            one
            for one in self.contrasts
            if percentile_interval(one.difference.value, one.draws.round(SETTLED), level).high < 0
        )

    @property
    def verdict(self) -> Verdict:
        """By the rule that :data:`hma.paper.report.verdict_page.RULE` states."""
        if self.claim.kind == "seen":
            return _of_sights([one.verdict for one in self.sights])
        whole = self.pooled
        if whole is None:
            return "open"
        return verdict_on(self.claim, whole, missed=self.missed, refuted=bool(self.refuted))


def verdict_on(claim: Claim, whole: Interval, *, missed: bool, refuted: bool) -> Verdict:
    """Return what a mean difference says to a claim.

    Args:
        claim: What has to be so.
        whole: The mean difference in points.
        missed: Whether a difference as large as printed is ruled out.
        refuted: Whether one of its differences lies below 0 beyond chance.

    Example:
        >>> more, found = Claim(says="", where=""), Interval(0.1, -1.0, 1.2)
        >>> verdict_on(more, Interval(1.0, 0.2, 1.8), missed=True, refuted=False)
        'confirmed'
        >>> verdict_on(more, found, missed=True, refuted=False)
        'not confirmed'
        >>> verdict_on(more, found, missed=False, refuted=False)
        'open'
    """
    if claim.kind == "no more":
        if whole.high < TOLERANCE:
            return "confirmed"
        return "not confirmed" if whole.low > 0 else "open"
    if claim.kind == "no less":
        if whole.low > -TOLERANCE:
            return "confirmed"
        return "not confirmed" if whole.high < 0 else "open"
    if whole.high <= 0 or (claim.every and refuted):
        return "not confirmed"
    if whole.low > 0:
        return "confirmed"
    return "not confirmed" if missed else "open"


def _pooled(contrasts: Sequence[Contrast]) -> Interval | None:
    if not contrasts:
        return None
    value = fmean(one.difference.value for one in contrasts)
    return interval_of(value, np.mean([one.draws for one in contrasts], axis=0))


def _of_sights(verdicts: Sequence[Verdict]) -> Verdict:
    return verdicts[0] if len(set(verdicts)) == 1 else "open"  # nothing is seen, or not alike


def findings_of(reports: Sequence[TableReport]) -> list[Finding]:
    """Return every claim that tables make, with what is measured of it, in the order of tables.

    Args:
        reports: Of all budgets of each table; smoke runs are passed over.
    """
    by_key: dict[str, list[TableReport]] = {}
    for report in sorted(
        (one for one in reports if one.budget in ORDER), key=lambda one: ORDER.index(one.budget)
    ):
        by_key.setdefault(report.table.key, []).append(report)
    found: dict[str, Finding] = {}
    known: dict[Place, Contrast | None] = {}
    for key in sorted(by_key, key=lambda key: (not key.startswith("T"), key)):
        held = by_key[key]
        for claim in held[0].table.claims:
            before = found.get(claim.says, Finding(claim=claim.on(), tables=()))
            contrasts = tuple(_contrasts(held, claim, known))
            found[claim.says] = Finding(
                claim=before.claim,
                tables=(*before.tables, key),
                contrasts=before.contrasts + contrasts,
                asked=before.asked + len(claim.rows) * len(held[0].table.problems),
                sights=before.sights + tuple(_sights(held, claim)),
            )
    return list(found.values())


# --------------------------------------------------------------------------------------- of tables


def _contrasts(
    held: Sequence[TableReport], claim: Claim, known: dict[Place, Contrast | None]
) -> Iterator[Contrast]:
    """Yield what is measured of a claim; what another claim asked for is not computed again."""
    table = held[0].table
    for row, other in claim.rows:
        for task in table.problems:
            place = (table.key, task, row, other)
            if place not in known:
                known[place] = contrast_of(held, task, row, other)
            if (found := known[place]) is not None:
                yield found


def contrast_of(held: Sequence[TableReport], task: str, row: str, other: str) -> Contrast | None:
    """Return a row against another, seed by seed; None with less than two seeds of both.

    Where records keep the answers about test rows, seeds and test rows are drawn again. Else the
    draws are of Student's distribution over seeds.

    Args:
        held: Reports of a table, the largest budget first.
        task: Name of the column.
        row, other: Names of the rows.
    """
    sources = [source_of([report], task, name) for report in held for name in (row, other)]
    pairs = zip(sources[::2], sources[1::2], strict=True)
    both = next(((one, two) for one, two in pairs if one is not None and two is not None), None)
    if both is None:
        return None
    report, table = both[0].report, both[0].report.table
    names = [source.row for source in both]
    runs = {name: _runs(report, task, name) for name in names}
    seeds = sorted(set.intersection(*(set(run) for run in runs.values())))
    if len(seeds) < FEWEST:
        return None
    rungs = [(name, contexts_of(runs[name][seeds[0]])[0]) for name in names]
    key = crc32(f"{table.key} {task} {row} {other}".encode())
    values, drawn, rows = drawn_scores(runs, rungs, seeds, table.metric, key)
    apart = values[0] - values[1]
    draws = drawn[0] - drawn[1] if rows is not None else _student_draws(apart, key)
    printed = [table.published.get(name, {}).get(task) for name in (row, other)]
    scale = POINTS / METRICS[table.metric].scale
    return Contrast(
        table=table.key,
        task=task,
        row=row,
        other=other,
        seeds=len(seeds),
        reduced=report.budget not in FULL or bool(table.budget(report.budget).differs),
        difference=interval_of(fmean(apart), draws),
        draws=draws,
        published=None
        if printed[0] is None or printed[1] is None
        else scale * (printed[0][0] - printed[1][0]),
    )


def _runs(report: TableReport, task: str, row: str) -> Mapping[int, Record]:
    return {
        cell.seed: record
        for cell, record in report.held.items()
        if (cell.task, cell.method) == (task, row)
    }


def _student_draws(values: Floats, key: int) -> Floats:
    """Return draws of a mean over seeds, whose percentiles are Student's interval."""
    count = len(values)
    error = np.std(values, ddof=1) / math.sqrt(count)
    drawn = np.random.default_rng(key).standard_t(count - 1, size=RESAMPLES)
    return np.asarray(values.mean() + error * drawn)


# ------------------------------------------------------------------------------------- of pictures


def _sights(held: Sequence[TableReport], claim: Claim) -> Iterator[Sight]:
    for picture in held[0].table.pictures if claim.kind == "seen" else ():
        report = next((one for one in held if one.scenes), None)
        if report is None:
            continue
        if isinstance(picture, SizeSweep):
            yield from _readings(report, claim)
        else:
            yield from _seen(report, picture, claim)


def _seen(report: TableReport, picture: SlotMap | AttentionMap, claim: Claim) -> Iterator[Sight]:
    measure = SLOT_MAP if isinstance(picture, SlotMap) else ATTENTION_MAP
    for task, rows in measured_places(report.held, measure, picture.rows[:1]):
        for row, seeds in rows.items():
            numbers = numbers_of_pictures(list(seeds.values()), [claim.seen])
            if claim.seen not in numbers:
                continue
            found = numbers[claim.seen]
            more = found.mean > 0 if claim.seen == "silhouette" else found.mean != found.chance
            verdict: Verdict = "confirmed" if found.beyond and more else "open"
            if not found.seeds_beyond or not more:
                verdict = "not confirmed"
            check = found.check("", "")
            yield Sight(
                table=report.table.key,
                task=task,
                says=f"{row} {check.measured}, by chance {check.chance}; beyond chance with "
                f"{found.seeds_beyond} of {len(found.p)} seeds",
                verdict=verdict,
            )


def _readings(report: TableReport, claim: Claim) -> Iterator[Sight]:
    said: dict[str, Verdict] = {"holds": "confirmed", "denied": "not confirmed", "open": "open"}
    for check in (check for scene in report.scenes for check in scene.checks):
        if check.what.startswith(f"{claim.seen}:"):
            yield Sight(
                table=report.table.key,
                task=check.where.partition(",")[0],
                says=check.measured,
                verdict=said[check.outcome],
            )
