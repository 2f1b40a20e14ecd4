"""Pages of the API name things as they are imported; their docstrings are where they are defined.

``::: hma.explain`` stands for ``hma.questions.explain.explain``, and ``::: hma.methods`` for every
public name of that package. A name that a module and a function share would otherwise mean the
module.
"""

import re
from functools import cache
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

SOURCE = Path(__file__).parent.parent.parent / "src"
ENTRY = re.compile(r"^::: (?P<name>hma[\w.]*)$(?P<options>(?:\n    .*)*)", re.MULTILINE)


@cache
def library() -> griffe.Module:
    """Return the library as it is written; nothing of it is imported."""
    found = griffe.load("hma", search_paths=[SOURCE])
    assert isinstance(found, griffe.Module)
    return found


def names_of(dotted: str) -> list[str]:
    """Return the public names of a package, or the name itself."""
    module = member(dotted)
    shared = dotted != defined(dotted)
    if shared or not isinstance(module, griffe.Module) or module.exports is None:
        return [dotted]
    return [f"{dotted}.{name}" for name in module.exports]


def defined(dotted: str) -> str:
    """Return where a name is defined that packages import from each other."""
    package, _, name = dotted.rpartition(".")
    imports = member(package).imports if package else {}
    return defined(imports[name]) if imports.get(name, dotted) != dotted else dotted


def member(dotted: str) -> griffe.Object | griffe.Alias:
    """Return what a dotted name is, modules before all else."""
    inside = dotted.partition(".")[2]
    return library()[inside] if inside else library()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write entries of the API out."""
    return ENTRY.sub(written, markdown) if page.file.src_uri.startswith("api/") else markdown


def written(entry: re.Match[str]) -> str:
    """Return an entry of its own for each public name that an entry means."""
    options = entry["options"] or "\n    options:"
    return "\n\n".join(
        f"::: {defined(name)}{options}\n      heading: {name}" for name in names_of(entry["name"])
    )
