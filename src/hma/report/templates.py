"""Templates of pages: every text escaped, an unknown name an error."""

from typing import Any

from hma.extras import needed
from hma.report import words


def template(name: str) -> Any:
    """Return a Jinja template of this package by its path below ``hma/report``."""
    jinja = needed("jinja2", "the report")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("hma.report", "."),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _shown(value: Any) -> Any:
    """Make broken characters of plain texts visible; what is marked safe is already so."""
    return words.shown(value) if type(value) is str else value
