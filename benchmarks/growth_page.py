"""``python -m benchmarks.growth_page``: the record of how cost grows as a table and a drawing.

They become the part of ``docs/cost.md`` between two marks, and ``docs/cost-growth.svg``. Without a
record, that part says how to make one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from benchmarks.counts import forward_parts
from benchmarks.machine import CHECKOUT
from benchmarks.report import Report, Row, text
from benchmarks.scaling import BASE
from hma.io.files import atomic_write
from hma.paper.report.drawing import standalone
from hma.report.svg import COLOURS, SHAPES, Scale, picture, tag

RECORD = CHECKOUT / "benchmarks" / "results" / "growth-2-cores.json"
PAGE, DRAWING = CHECKOUT / "docs" / "cost.md", CHECKOUT / "docs" / "cost-growth.svg"
COMMAND = (
    "python -m benchmarks --only scaling --only processes --threads 1 "
    f"-o {RECORD.relative_to(CHECKOUT)}"
)
FIRST = "<!-- made by python -m benchmarks.growth_page -->"
LAST = "<!-- end of what is made -->"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 920.0, 64.0, 660.0, 34.0, 400.0
Rows = Sequence[Mapping[str, str | int | float | bool | None]]


def parts_table() -> str:
    """Return the parts of a step at the base shape: formula, multiply-adds and bytes."""
    parts = forward_parts(BASE)
    total = sum(part.multiply_adds for part in parts)
    lines = [
        "| part of the forward pass | multiply-adds | here | share | writes |",
        "|---" * 5 + "|",
    ]
    for part in parts:
        here = f"{part.multiply_adds / 1e6:.1f} M"
        share = f"{part.multiply_adds / total:.1%}"
        lines.append(
            f"| {part.name} | {part.grows} | {here} | {share} | {part.bytes / 2**10:,.0f} KiB |"
        )
    return "\n".join(lines)


def measured(report: Report | None) -> str:
    """Return what was measured as Markdown, or how to measure it."""
    parts = [f"At {BASE}, D = {BASE.token}, S = {BASE.slots}:", parts_table()]
    if report is None:
        parts.append(f"Not measured yet: `{COMMAND}` on a quiet machine does, then this page.")
        return "\n\n".join(parts)
    sections = {section.name: section for section in report.sections}
    ends = [*_ends(sections["scaling"].rows)]
    columns = ("grows", "from", "to", "step_ms from", "step_ms to", "peak_MiB to", "slope")
    heads = ("grows", "from", "to", "step at first, ms", "step at last, ms", "peak at last, MiB")
    machine = report.machine
    parts += [
        f"![milliseconds of a step over each size]({DRAWING.name})",
        _table((*heads, "slope"), ends, columns),
        "The slope is that of log time over log size through the upper half of a curve: 1 is "
        "linear, 2 quadratic, below 1 the rest of the step still shows.",
        _table(
            (
                "processes",
                "rows of a step",
                "step, ms",
                "by one process, ms",
                "handed over, KiB",
                "gradients, KiB",
            ),
            [*_beside_one(sections["processes"].rows, sections["scaling"].rows)],
            ("processes", "rows", "step_ms", "one_ms", "handed_over_KiB", "gradients_KiB"),
        ),
        "By one process: a step on as many rows, from the curve of B. There is no backbone here, "
        "so this is not what a whole training gains or loses; what the time goes to was not "
        "measured.",
        f"{machine.cpu}, {machine.cores} cores, threads of torch: {report.threads}, load by other "
        f"work at the start: {machine.load}; made by `{COMMAND}`.",
    ]
    return "\n\n".join(parts)


def _curves(rows: Rows) -> dict[str, list[Mapping[str, float]]]:
    found: dict[str, list[Mapping[str, float]]] = {}
    for row in rows:
        numbers = {name: float(v) for name, v in row.items() if isinstance(v, int | float)}
        found.setdefault(str(row["grows"]), []).append(numbers)
    return found


def _beside_one(processes: Rows, scaling: Rows) -> Iterator[Row]:
    alone = {int(row["rows"]): row["step_ms"] for row in _curves(scaling)["B"]}
    for row in processes:
        yield {**row, "one_ms": alone.get(int(str(row["rows"])))}


def _ends(rows: Rows) -> Iterator[Row]:
    for name, curve in _curves(rows).items():
        yield {
            "grows": name,
            "from": int(curve[0]["rows"]),
            "to": int(curve[-1]["rows"]),
            "step_ms from": curve[0]["step_ms"],
            "step_ms to": curve[-1]["step_ms"],
            "peak_MiB to": curve[-1]["peak_MiB"],
            "slope": curve[-1]["slope"],
        }


def drawing(report: Report) -> str:
    """Return milliseconds of a step over each size, both in powers of two, as SVG."""
    (rows,) = (section.rows for section in report.sections if section.name == "scaling")
    curves = _curves(rows)
    sizes = [math.log2(row["rows"]) for curve in curves.values() for row in curve]
    costs = [math.log2(row["step_ms"]) for curve in curves.values() for row in curve]
    across = Scale(math.floor(min(sizes)), math.ceil(max(sizes)), LEFT, RIGHT)
    up = Scale(math.floor(min(costs)), math.ceil(max(costs)), BOTTOM, TOP)
    parts = [*_grid(across, up)]
    parts += [
        _line(name, curve, across, up, place) for place, (name, curve) in enumerate(curves.items())
    ]
    label = "Milliseconds of a training step over one size at a time"
    return standalone(picture(WIDTH, BOTTOM + 50, label, *parts))


def _grid(across: Scale, up: Scale) -> Iterator[Markup]:
    for power in range(int(up.low), int(up.high) + 1):
        y = up(power)
        yield tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
        yield tag("text", f"{2.0**power:g}", x=LEFT - 8, y=y + 4, class_="tick end")
    for power in range(int(across.low), int(across.high) + 1, 2):
        yield tag("text", f"{2**power:,}", x=across(power), y=BOTTOM + 20, class_="tick middle")
    yield tag("text", "ms of a step", x=8, y=14, class_="axis")
    middle = (LEFT + RIGHT) / 2
    yield tag("text", "the size that grows", x=middle, y=BOTTOM + 42, class_="axis middle")


def _line(
    name: str, curve: Sequence[Mapping[str, float]], across: Scale, up: Scale, place: int
) -> Markup:
    shape = SHAPES[place % len(SHAPES)]
    points = [(across(math.log2(r["rows"])), up(math.log2(r["step_ms"]))) for r in curve]
    inside = [tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_="curve")]
    for (x, y), row in zip(points, curve, strict=True):
        title = tag("title", f"{name} = {row['rows']:,.0f}: {text(row['step_ms'])} ms")
        where = f"translate({x:.1f} {y:.1f})"
        inside.append(tag("path", title, d=shape, class_="point", transform=where))
    y = 44.0 + 21 * place
    inside += [
        tag("path", d=f"M{RIGHT + 22} {y}h34", class_="curve"),
        tag("path", d=shape, class_="point", transform=f"translate({RIGHT + 39} {y})"),
        tag("text", name, x=RIGHT + 64, y=y + 4.5, class_="name"),
    ]
    return tag("g", *inside, class_="row", style=f"--s:{COLOURS[place % len(COLOURS)]}")


def _table(heads: Sequence[str], rows: Rows, columns: Sequence[str]) -> str:
    body = ["| " + " | ".join(text(row[name]) for name in columns) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *body])


def with_measured(page: str, report: Report | None) -> str:
    """Return a page with what is between the marks made anew."""
    before, _, rest = page.partition(FIRST)
    _, _, after = rest.partition(LAST)
    return f"{before}{FIRST}\n{measured(report)}\n{LAST}{after}"


def recorded() -> Report | None:
    """Return the committed record, if there is one."""
    return Report.from_json(RECORD.read_text()) if RECORD.exists() else None


def main() -> None:
    """Write the part of the page, and the drawing where there is a record."""
    report = recorded()
    files = {PAGE: with_measured(PAGE.read_text(), report)}
    if report is not None:
        files[DRAWING] = drawing(report)
    for path, written in files.items():
        with atomic_write(path) as temporary:
            temporary.write_text(written)


if __name__ == "__main__":
    main()
