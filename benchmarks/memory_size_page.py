"""``python -m benchmarks.memory_size_page``: the record of ``memory_size`` as tables and a drawing.

They become the part of ``docs/living-memory.md`` between two marks, and ``docs/any-size.svg``.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from benchmarks.machine import CHECKOUT
from benchmarks.report import text
from hma.io.files import atomic_write
from hma.paper.report.drawing import standalone
from hma.report.svg import COLOURS, SHAPES, Scale, picture, tag

RECORD = CHECKOUT / "benchmarks" / "results" / "memory-size-2-cores.json"
PAGE, DRAWING = CHECKOUT / "docs" / "living-memory.md", CHECKOUT / "docs" / "any-size.svg"
FIRST = "<!-- made by python -m benchmarks.memory_size_page -->"
LAST = "<!-- end of what is made -->"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 920.0, 64.0, 700.0, 34.0, 380.0
Record = Mapping[str, Any]


def drawing(record: Record) -> str:
    """Return milliseconds a query against rows, both in powers of ten, with recall, as SVG."""
    rows = record["reads"]
    sizes = sorted({row["rows"] for row in rows})
    costs = [row["one_query_ms"] for row in rows]
    across = Scale(math.log10(sizes[0]) - 0.1, math.log10(sizes[-1]) + 0.1, LEFT, RIGHT)
    low, high = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    up = Scale(low, high, BOTTOM, TOP)
    parts = [*_grid(up, across, sizes, range(low, high + 1))]
    for place, read in enumerate(dict.fromkeys(row["read"] for row in rows)):
        own = [row for row in rows if row["read"] == read]
        parts.append(_line(read, own, across, up, place))
    label = "Milliseconds a query against the rows of a memory"
    return standalone(picture(WIDTH, BOTTOM + 50, label, *parts))


def _grid(up: Scale, across: Scale, sizes: Sequence[int], powers: range) -> Iterator[Markup]:
    for power in powers:
        y = up(power)
        yield tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
        yield tag("text", f"{10.0**power:g}", x=LEFT - 8, y=y + 4, class_="tick end")
    for size in sizes:
        x = across(math.log10(size))
        yield tag("text", f"{size:,}", x=x, y=BOTTOM + 20, class_="tick middle")
    yield tag("text", "ms for one query", x=8, y=14, class_="axis")
    middle = (LEFT + RIGHT) / 2
    yield tag("text", "rows of the memory", x=middle, y=BOTTOM + 42, class_="axis middle")


def _line(read: str, rows: Sequence[Record], across: Scale, up: Scale, place: int) -> Markup:
    points = [(across(math.log10(r["rows"])), up(math.log10(r["one_query_ms"]))) for r in rows]
    inside = [tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_="curve")]
    for (x, y), row in zip(points, rows, strict=True):
        said = f"{read}, {row['rows']:,} rows: {text(row['one_query_ms'])} ms"
        title = tag("title", f"{said}, recall {text(row['recall'])}")
        where = f"translate({x:.1f} {y:.1f})"
        inside.append(tag("path", title, d=SHAPES[place], class_="point", transform=where))
        if row["recall"] is not None and row["recall"] < 1:
            inside.append(tag("text", f"{row['recall']:.1%}", x=x, y=y + 20, class_="tick middle"))
    y = 44.0 + 21 * place
    inside += [
        tag("path", d=f"M{RIGHT + 22} {y}h34", class_="curve"),
        tag("path", d=SHAPES[place], class_="point", transform=f"translate({RIGHT + 39} {y})"),
        tag("text", read, x=RIGHT + 64, y=y + 4.5, class_="name"),
    ]
    return tag("g", *inside, class_="row", style=f"--s:{COLOURS[place]}")


def tables(record: Record) -> str:
    """Return what was measured as Markdown."""
    heads = ("rows", "which rows vote", "first answer, s", "one query, ms", "one of 64, ms")
    columns = ("rows", "read", "first_answer_s", "one_query_ms", "of_64_queries_ms")
    machine = record["machine"]
    lines = [
        f"![milliseconds a query against rows]({DRAWING.name})",
        "",
        *_table((*heads, "recall", "peak, MiB"), record["reads"], (*columns, "recall", "peak_MiB")),
        "",
        f"{record['features']} features, keys of width 128, k = {record['k']}; {machine['cores']} "
        f"cores, threads of torch: {record['threads']}, load by other work at the start: "
        f"{machine['load']}. The first answer makes all keys, and the index. Peaks are those of "
        "the whole process, features that are mapped from a file included. Percentages in the "
        "drawing are the recall of the index.",
        "",
        f"And {record['used_rows']:,} rows in use, trained in one process and served by another:",
        "",
        *_table(
            ("process", "step", "seconds", "peak so far, MiB"),
            record["used"],
            ("process", "step", "seconds", "peak_MiB"),
        ),
    ]
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Sequence[Record], columns: Sequence[str]) -> list[str]:
    body = ["| " + " | ".join(text(row[name]) for name in columns) + " |" for row in rows]
    return ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *body]


def with_tables(page: str, record: Record) -> str:
    """Return a page with what is between the marks made anew."""
    before, _, rest = page.partition(FIRST)
    _, _, after = rest.partition(LAST)
    return f"{before}{FIRST}\n{tables(record)}\n{LAST}{after}"


def main() -> None:
    """Write the drawing and the part of the page."""
    record = json.loads(RECORD.read_text())
    for path, written in (
        (DRAWING, drawing(record)),
        (PAGE, with_tables(PAGE.read_text(), record)),
    ):
        with atomic_write(path) as temporary:
            temporary.write_text(written)


if __name__ == "__main__":
    main()
