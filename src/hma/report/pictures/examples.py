"""Rows of the data that pictures point at, drawn small for a page."""

import base64
from collections.abc import Sequence

from hma.errors import UserError
from hma.extras import needed
from hma.paper.example_rows import ExampleRow, example_rows
from hma.paper.table import Table
from hma.report.html import inline_png, small_png
from hma.report.pictures.interactive import Examples, Shown
from hma.report.pictures.scene import Example, Scene
from hma.report.svg import Scale, tag

LONGEST = 160
"""Characters of a text."""
MOST_NODES = 200
"""Of a graph that is drawn; a larger one is a ball of lines."""
SIDE = 84.0


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
