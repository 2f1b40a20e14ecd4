"""The page that says what of the paper was confirmed: its claims, every number, what it took."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hma.metrics.resampling import Interval
from hma.paper.report.claims import Finding, findings_of
from hma.paper.report.formats import escape_markdown, grid
from hma.paper.report.scores import amount, ends, printed, spread, title
from hma.paper.report.table_report import TableReport
from hma.paper.report.verdicts import HOUR, Number, Verdict, numbers_of
from hma.paper.table import Table
from hma.report.numbers import MISSING, counted, fixed, signed

PAGE, CSV = "paper.md", "paper.csv"
VERDICTS: tuple[Verdict, ...] = ("confirmed", "not confirmed", "open")
RULE = """\
# What of the paper holds here

Every number that the paper prints and every sentence that its tables and figures carry, beside
what was measured. All of it is computed from the records in `results/` and the published numbers in
`experiments/`; nothing is typed in. The same numbers are in [paper.csv](paper.csv), and `hma paper`
prints this page.

## The rule

**A number** is compared by the 95% interval of the difference of both means (Welch's, over our
seeds, and the published standard deviation with the seeds of the protocol). It is

- confirmed, if the interval lies within one point of 0 (0.01 of Matthews correlation), or holds 0
  and lies within two published standard deviations of it;
- not confirmed, if it leaves 0 out otherwise;
- open, if neither: too few seeds, too much spread, or nothing measured. A number measured at a
  reduced scale, or on other data than the paper's, is always open: it is another number.

**A claim** that one row is better than another is about an order, which a reduced scale can speak
to. It is judged by the mean difference over all pairs of rows and tasks that are measured, in
points (percent, hundredths of Matthews correlation), with its 95% interval: seeds are drawn again,
and test rows too where records keep the answers; elsewhere it is Student's over seeds. It is

- confirmed, if the interval lies above 0 (and nothing of what follows is so);
- not confirmed, if it lies below 0; if it holds 0 and, over the pairs that the paper prints, ends
  below the difference printed; or, for a claim about every task, if one task lies below 0 beyond
  chance for all of them together (Bonferroni);
- open otherwise.

A claim that a row does not help is confirmed if the interval ends below one point, and not
confirmed if it lies above 0. A claim that a row is no worse is confirmed if the interval begins
above minus one point, and not confirmed if it lies below 0. What is seen in a picture is judged by
the number behind it: for maps against permuted classes, with every seed; for sweeps by Student's
interval over seeds. Pictures that do not agree leave it open.

To repeat a number, give its command `--results again`: a record that is there is not made again."""
COLUMNS = (
    *("table", "task", "row", "metric", "published", "published std", "ours", "ours std"),
    *("difference", "low", "high", "seeds", "seeds asked for", "scale", "how", "verdict"),
    *("processor hours", "command"),
)


@dataclass(frozen=True)
class PaperVerdict:
    """All that the page says.

    Args:
        numbers: Published or measured, of all tables that the paper has.
        findings: Its claims.
        hours: Of the processor, by key of the table.
    """

    numbers: tuple[Number, ...]
    findings: tuple[Finding, ...]
    hours: Mapping[str, float]

    @classmethod
    def of(cls, reports: Sequence[TableReport]) -> "PaperVerdict | None":
        """Return the verdict, None where no table of the paper has a record.

        Args:
            reports: Of all budgets of all tables; those that are not the paper's are passed over.
        """
        asked = [one for one in reports if of_the_paper(one.table) and one.budget != "smoke"]
        if not any(one.records for one in asked):
            return None
        hours: dict[str, float] = {}
        for one in asked:
            taken = sum(record.seconds for record in one.held.values()) / HOUR
            hours[one.table.key] = hours.get(one.table.key, 0.0) + taken
        return cls(tuple(numbers_of(asked)), tuple(findings_of(asked)), hours)

    @property
    def published(self) -> tuple[Number, ...]:
        """Those that the paper prints."""
        return tuple(one for one in self.numbers if one.published is not None)


def of_the_paper(table: Table) -> bool:
    """Tell whether the paper prints a number or a picture that the table is about."""
    return bool(table.published or table.claims)


def page(verdict: PaperVerdict) -> str:
    """Return the document."""
    parts = [RULE, "## Claims, a line each", _claims(verdict.findings)]
    parts += ["## Numbers, by table", _overview(verdict)]
    tables = dict.fromkeys(one.table.key for one in verdict.published)
    for key in tables:
        held = [one for one in verdict.published if one.table.key == key]
        parts += _table(held[0].table, held)
    return "\n\n".join(parts) + "\n"


def comma_separated(verdict: PaperVerdict) -> str:
    """Return all numbers as CSV, those included that the paper does not print."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in verdict.numbers:
        ours, said = one.measured, one.published or (None, None)
        difference = one.difference or Interval(math.nan, math.nan, math.nan)
        writer.writerow(
            [
                *(one.table.key, one.task, one.row, title(one.table.metric)),
                *map(_plain, said),
                _plain(ours.mean if ours else None),
                _plain(ours.std if ours else None),
                *map(_plain, (difference.value, difference.low, difference.high)),
                *(ours.count if ours else 0, one.wanted, one.scale, one.how),
                one.verdict if one.published else "",
                *(f"{one.seconds / HOUR:.3f}", one.command),
            ]
        )
    return out.getvalue()


def _plain(value: float | None) -> str:
    """Return a number for a machine, without the digits that processors may compute otherwise."""
    return "" if value is None or math.isnan(value) else f"{round(value, 4) + 0.0:.6g}"


# ---------------------------------------------------------------------------------------- numbers


def _overview(verdict: PaperVerdict) -> str:
    columns = ["table", "what", "published", "as published", "reduced", "not available", *VERDICTS]
    lines, groups = [], dict.fromkeys(one.table.key for one in verdict.numbers)
    for key in groups:
        held = [one for one in verdict.published if one.table.key == key]
        what = next(one.table.title for one in verdict.numbers if one.table.key == key)
        name = f"[{key}](#{key.lower()})" if held else escape_markdown(key)
        counts = _counts(held) if held else [MISSING] * len(_counts(held))
        lines.append([name, escape_markdown(what), *counts, _hours(verdict.hours[key])])
    total = _hours(sum(verdict.hours.values()))
    lines.append(["all", "", *_counts(verdict.published), total])
    measured = sum(one.measured is not None for one in verdict.published)
    said = (
        f"Of {counted(len(verdict.published), 'published number')} {measured} have a counterpart. "
        "Hours are of one processor core, over all records of a table, rows of ours included."
    )
    return said + "\n\n" + grid([*columns, "core hours"], lines, names=2)


def _counts(held: Sequence[Number]) -> list[str]:
    scales = Counter(one.scale for one in held)
    told = Counter(one.verdict for one in held)
    found = [len(held), scales["as published"], scales["reduced"], scales["not available"]]
    return [str(count) for count in (*found, *(told[name] for name in VERDICTS))]


def _hours(hours: float) -> str:
    return fixed(hours, 1)


def _table(table: Table, held: Sequence[Number]) -> Iterator[str]:
    yield f"## {escape_markdown(table.key)}"
    yield f"{escape_markdown(table.title)}: {escape_markdown(title(table.metric))}."
    hows = [*dict.fromkeys(one.how for one in held if one.how)]
    columns = ["row", "task", "published", "ours", "difference", "95% interval"]
    columns += ["seeds", "scale", "verdict", "repeat it"]
    rows = sorted(held, key=lambda one: [*table.rows].index(one.row))
    yield grid(columns, [_line(one, hows) for one in rows], names=2)
    if hows:
        yield "\n".join(f"- ({place + 1}) {escape_markdown(how)}" for place, how in enumerate(hows))


def _line(one: Number, hows: Sequence[str]) -> list[str]:
    metric, difference = one.table.metric, one.difference
    seeds = f"{one.measured.count} of {one.wanted}" if one.measured else MISSING
    known = difference is not None and not math.isnan(difference.low)
    return [
        escape_markdown(one.row),
        escape_markdown(one.task),
        printed(one.published),
        spread(metric, one.measured),
        amount(metric, difference.value, sign="+") if difference else MISSING,
        ends(metric, difference.low, difference.high) if difference and known else MISSING,
        seeds,
        one.scale + (f" ({hows.index(one.how) + 1})" if one.how else ""),
        one.verdict if one.verdict != "confirmed" else f"**{one.verdict}**",
        f"`{one.command}`",
    ]


# ----------------------------------------------------------------------------------------- claims


def _claims(findings: Sequence[Finding]) -> str:
    lines = [
        [
            escape_markdown(one.claim.says),
            escape_markdown(one.claim.where),
            f"**{one.verdict}**",
            _evidence(one),
        ]
        for one in findings
    ]
    return grid(["the paper says", "where", "verdict", "evidence"], lines, names=4)


def _evidence(one: Finding) -> str:
    if one.sights:
        said = [
            f"{sight.table}, {sight.task}: {sight.says} ({sight.verdict})" for sight in one.sights
        ]
        return escape_markdown("; ".join(said)) + "."
    whole = one.pooled
    if whole is None:
        return f"nothing is measured of it ({', '.join(one.tables)})."
    points = f"{signed(whole.value, 2)} points ({signed(whole.low, 2)} to {signed(whole.high, 2)})"
    above = sum(contrast.difference.low > 0 for contrast in one.contrasts)
    below = sum(contrast.difference.high < 0 for contrast in one.contrasts)
    where = Counter(contrast.table for contrast in one.contrasts)
    text = (
        f"{points}, mean of {len(one.contrasts)} of {one.asked} differences "
        f"({', '.join(f'{key} {count}' for key, count in where.items())}); each by itself: {above} "
        f"above 0, {below} below, {len(one.contrasts) - above - below} neither"
    )
    if one.published is not None:
        also = sum(contrast.published is not None for contrast in one.contrasts)
        of_them = "these" if also == len(one.contrasts) else f"{also} of these"
        text += f"; the paper prints {signed(one.published, 2)} for {of_them}"
    if reduced := sum(contrast.reduced for contrast in one.contrasts):
        text += f"; {reduced} at a reduced scale or on other data"
    if one.claim.every and one.refuted:
        text += "; below 0 for all together: " + ", ".join(
            f"{contrast.table} {contrast.task} {contrast.row}" for contrast in one.refuted
        )
    return escape_markdown(text) + "."
