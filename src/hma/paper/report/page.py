"""The report of a table as one HTML page that needs nothing but itself."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from statistics import median
from typing import NamedTuple

from markupsafe import Markup

from hma.errors import UserError
from hma.extras import needed
from hma.paper.example_rows import ExampleRow, example_rows
from hma.paper.report import formats as sentences
from hma.paper.report import scores
from hma.paper.report.drawing import figure, interval_bar, panel_drawings
from hma.paper.report.scene import Scene
from hma.paper.report.scores import Paired
from hma.paper.report.sheets import overviews, sheets
from hma.paper.report.table_report import TableReport
from hma.paper.step_costs import STEP_COSTS
from hma.paper.table import Table
from hma.report.charts import Example, legend_chart
from hma.report.html import inline_png, small_png, template
from hma.report.svg import Scale, tag

HERE = "hma.paper.report"
LONGEST = 160
"""Characters of a text."""
MOST_NODES = 200
"""Of a graph that is drawn; a larger one is a ball of lines."""
SIDE = 84.0


class Shown(NamedTuple):
    """An example as a page shows it: an address that holds its picture whole, and its text."""

    picture: str | None
    text: str


class Examples(NamedTuple):
    """Rows of the data that pictures point at, as far as they can be shown.

    Args:
        shown: By row.
        absent: Why others are not shown; empty if all are.
    """

    shown: Mapping[Example, Shown]
    absent: str = ""


NO_EXAMPLES = Examples({})


def page(report: TableReport, examples: Examples = NO_EXAMPLES) -> str:
    """Return the page; the same report gives the same bytes.

    It makes no request and forbids them by its own policy, which allows no script but the one of
    its pictures, where it has any. Every text of the report is escaped.

    Args:
        report: What it shows.
        examples: Rows of the data that its pictures point at.
    """
    found = sheets(report)
    drawn = {group.name: figure(report, group) for group in report.groups}
    text: str = template("templates/table.html.j2", HERE).render(
        report=report,
        figures={name: drawing for name, drawing in drawn.items() if drawing is not None},
        overviews=[*overviews(found), *(s for s in found if s.kind == "published")],
        tasks=[sheet for sheet in found if sheet.kind == "task"],
        others=[sheet for sheet in found if sheet.kind not in ("overview", "published", "task")],
        bars=_bars(report),
        pictures=interactive(report.scenes, examples),
        policy=script_policy(),
        script=script(),
        scores=scores,
        scored=not any(STEP_COSTS in record.measures for record in report.held.values()),
        sentences=sentences,
    )
    return text


def _bars(report: TableReport) -> dict[str, list[Markup | str]]:
    """Return for each task the drawings of its differences, on one scale for all tasks."""
    pairs = [entry.paired for entry in report.entries.values() if entry.paired]
    reach = 2 * median(_reach(pair) for pair in pairs) if pairs else 0.0  # cuts off outliers
    found: dict[str, list[Markup | str]] = {}
    for task, method in report.places:
        pair = report.entries[task, method].paired
        bar = interval_bar(pair, reach or 1.0) if pair else None
        found.setdefault(task, []).append(bar or "")
    return found


def _reach(pair: Paired) -> float:
    return max(abs(v) for v in (pair.difference, pair.low, pair.high) if v is not None)


def interactive(scenes: Sequence[Scene], examples: Examples) -> list[Markup]:
    """Return each scene as a part of a page."""
    macro = template("templates/pictures.html.j2", HERE).module.drawn
    return [
        macro(
            scene=scene,
            panels=panel_drawings(scene),
            legend=[(name, legend_chart(series)) for name, series in scene.legend.items()],
            examples=_packed(scene, examples),
            absent=examples.absent if scene.examples else "",
        )
        for scene in scenes
    ]


def _packed(scene: Scene, examples: Examples) -> str:
    there = {example.key: examples.shown.get(example) for example in scene.examples}
    return json.dumps({key: shown for key, shown in there.items() if shown is not None})


def script() -> Markup:
    """Return the script of such a page; it reads what is on the page and asks for nothing."""
    place = files(HERE).joinpath("templates", "pictures.js")
    return Markup(place.read_text(encoding="utf-8"))


def script_policy() -> str:
    """Return the policy that lets this script run, and no other."""
    digest = hashlib.sha256(script().encode()).digest()
    return f"script-src 'sha256-{base64.b64encode(digest).decode()}'"


def examples_of(table: Table, budget: str, scenes: Sequence[Scene]) -> Examples:
    """Return the rows that scenes point at, or why they are not shown.

    Args:
        table: Whose data it is.
        budget: Of the records.
        scenes: What points at them.
    """
    by_cell: dict[tuple[str, int], list[Example]] = {}
    for example in dict.fromkeys(example for scene in scenes for example in scene.examples):
        by_cell.setdefault((example.task, example.seed), []).append(example)
    shown: dict[Example, Shown] = {}
    absent: dict[str, None] = {}
    for (task, seed), wanted in by_cell.items():
        try:
            places = [(one.split, one.place) for one in wanted]
            rows = example_rows(table, budget, task, seed, places)
        except UserError as error:
            absent[f"Rows of {task} are not shown: {error}"] = None
            continue
        shown |= {one: _shown(rows[one.split, one.place]) for one in wanted}
    return Examples(shown, " ".join(absent))


def _shown(row: ExampleRow) -> Shown:
    if row.image is not None:
        images = needed("PIL.Image", "pictures of examples")
        pixels = (row.image * 255).round().byte().permute(1, 2, 0).cpu().numpy()
        image = images.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        return Shown(inline_png(small_png(image)), "")
    if row.edges is not None:
        said = f"{row.nodes} nodes, {row.edges.shape[1] // 2} edges"
        return Shown(_graph(row) if row.nodes <= MOST_NODES else None, said)
    text = " ".join(row.text.split())
    return Shown(None, text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def _graph(row: ExampleRow) -> str:
    """Return a graph as an address that holds its drawing."""
    assert row.edges is not None
    networkx = needed("networkx", "drawings of graphs")
    graph = networkx.Graph()
    graph.add_nodes_from(range(row.nodes))
    graph.add_edges_from(row.edges.T.tolist())
    places = networkx.spring_layout(graph, seed=0, iterations=30)
    scale = Scale(-1, 1, 6, SIDE - 6)
    at = {node: (scale(float(x)), scale(float(y))) for node, (x, y) in places.items()}
    lines = [
        tag("line", x1=at[a][0], y1=at[a][1], x2=at[b][0], y2=at[b][1], stroke="#8b94a3")
        for a, b in graph.edges
    ]
    dots = [tag("circle", cx=x, cy=y, r=2.4, fill="#0072b2") for x, y in at.values()]
    drawing = tag(
        "svg",
        tag("g", *lines, stroke_width=0.6),
        *dots,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {SIDE:g} {SIDE:g}",
    )
    return "data:image/svg+xml;base64," + base64.b64encode(drawing.encode()).decode()
