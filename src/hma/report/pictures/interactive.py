"""The part of a page in which pictures can be asked: what is that point, who looks at whom?"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from markupsafe import Markup

from hma.report.html import template
from hma.report.pictures.scene import Example, Scene
from hma.report.pictures.vector import legend_drawing, panel_drawings


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


def interactive(scenes: Sequence[Scene], examples: Examples) -> list[Markup]:
    """Return each scene as a part of a page."""
    macro = template("pictures/templates/pictures.html.j2").module.drawn
    return [
        macro(
            scene=scene,
            panels=panel_drawings(scene),
            legend=[(name, legend_drawing(series)) for name, series in scene.legend.items()],
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
    return Markup(_template("pictures.js"))


def script_policy() -> str:
    """Return the policy that lets this script run, and no other."""
    digest = hashlib.sha256(script().encode()).digest()
    return f"script-src 'sha256-{base64.b64encode(digest).decode()}'"


def style() -> str:
    """Return the style sheet of drawings that stand alone."""
    return _template("pictures.css")


def _template(name: str) -> str:
    place = files("hma.report.pictures").joinpath("templates", name)
    return place.read_text(encoding="utf-8")
