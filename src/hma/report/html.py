"""Pages from templates: every text escaped, an unknown name an error, one policy for all."""

import base64
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from hma.errors import printable
from hma.extras import needed
from hma.metrics import METRICS
from hma.report import numbers

if TYPE_CHECKING:
    from markupsafe import Markup
    from PIL.Image import Image

PIXELS = 72
"""Longer side of a thumbnail."""


def template(name: str, package: str = "hma.report") -> Any:
    """Return a Jinja template by its path below the folder of a package.

    Pages of every package extend ``templates/page.html.j2`` of this one, which forbids requests
    and scripts.
    """
    return _environment(needed("jinja2", "the report"), package).get_template(name)


@cache
def _environment(jinja: Any, package: str) -> Any:
    environment = jinja.Environment(
        loader=jinja.ChoiceLoader(
            [jinja.PackageLoader(one, ".") for one in dict.fromkeys((package, "hma.report"))]
        ),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(numbers=numbers, metrics=METRICS, inline_png=inline_png)
    environment.filters["capital"] = numbers.capital
    return environment


def fill(name: str, **values: Any) -> "Markup":
    """Return a part of a page from its template, every text escaped."""
    text: str = template(f"templates/{name}.html.j2").render(**values)
    return needed("markupsafe", "the report").Markup(text)  # type: ignore[no-any-return]


def _visible(value: Any) -> Any:
    """Make broken characters of plain texts visible; what is marked safe is already so."""
    return printable(value) if type(value) is str else value


def inline_picture(image: "Image | None") -> str | None:
    """Return a picture as an address that holds it whole; None for none."""
    if image is None:
        return None
    file = BytesIO()
    image.save(file, format="PNG")
    return inline_png(file.getvalue())


def inline_png(data: bytes | None) -> str | None:
    """Return the bytes of a PNG as an address that holds them; None for none."""
    return None if data is None else "data:image/png;base64," + base64.b64encode(data).decode()


def small_png(image: Any) -> bytes | None:
    """Return a thumbnail as the bytes of a PNG; None for none."""
    if image is None:
        return None
    small = image.copy() if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB")
    small.thumbnail((PIXELS, PIXELS))
    if small.mode == "RGB":
        small = small.quantize(128)  # a third of the bytes, and no worse to look at
    stream = BytesIO()
    small.save(stream, format="PNG", optimize=True)
    return stream.getvalue()
