"""Pages from templates: every text escaped, an unknown name an error, one policy for all."""

from typing import Any

from hma.extras import needed
from hma.printable import printable


def template(name: str) -> Any:
    """Return a Jinja template of this package by its path below ``hma/report``.

    Pages extend ``templates/page.html.j2``, which forbids requests and scripts.
    """
    jinja = needed("jinja2", "the report")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("hma.report", "."),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _visible(value: Any) -> Any:
    """Make broken characters of plain texts visible; what is marked safe is already so."""
    return printable(value) if type(value) is str else value
