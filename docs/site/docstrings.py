"""How docstrings of this library are read for the site, which knows Google's style only."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|attr|math):`~?([^`]+)`")
FORMULA = re.compile(r"^ *\.\. math::\s*(?P<formula>.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
LITERAL = re.compile(r"::$", re.MULTILINE)
SHARED = re.compile(
    r"^    (?P<names>\w+(?:, \w+)+): (?P<text>.*(?:\n {5,}.*)*)", re.MULTILINE
)  # fmt: skip


class HouseStyle(griffe.Extension):
    """Rewrite what this library's docstrings have and Google's style does not."""

    def on_instance(self, *, obj: griffe.Object, **options: Any) -> None:
        """Rewrite the docstring of what was just read."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(text: str) -> str:
    """Return a docstring with doctests, formulas, names and shared arguments as Markdown."""
    text = EXAMPLE.sub("Examples:", text)
    text = FORMULA.sub(lambda found: f"```text\n{plain(found['formula'])}\n```\n\n", text)
    text = ROLE.sub(lambda found: f"``{found[1]}``", text)
    text = SHARED.sub(each_argument, text)
    return LITERAL.sub(":", text)


def plain(formula: str) -> str:
    """Return a formula with its lines at the left."""
    return "\n".join(line.strip() for line in formula.splitlines())


def each_argument(found: re.Match[str]) -> str:
    """Return ``a, b: text`` as an entry for each."""
    return "\n".join(f"    {name}: {found['text']}" for name in found["names"].split(", "))
