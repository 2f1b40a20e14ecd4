"""Drawing in SVG: elements whose text is always escaped, and scales with round ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from hma.errors import printable


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """Return an element; text and attributes are escaped, elements inside it are kept.

    Args:
        name: Name of the element.
        children: Texts and elements.
        attributes: Underscores stand for hyphens, one at the end is dropped; None leaves the
            attribute out.

    Example:
        >>> print(tag("text", "<b>", x=1.50, class_="axis", aria_label='a"b'))
        <text x="1.5" class="axis" aria-label="a&#34;b">&lt;b&gt;</text>
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(c if isinstance(c, Markup) else escape(printable(c)) for c in children)
    return Markup(f"<{name}{written}>{inside}</{name}>")


def picture(width: float, height: float, label: str, *children: str) -> Markup:
    """Return a drawing that fills the width it is given."""
    box = f"0 0 {_value(width)} {_value(height)}"
    return tag("svg", *children, viewBox=box, role="img", aria_label=printable(label))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return printable(str(value))


@dataclass(frozen=True)
class Scale:
    """A straight line from values to places on paper.

    Example:
        >>> Scale(0, 10, 100, 200)(5)
        150.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of ``value``."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between ``low`` and ``high``, about ``about`` of them.

    Example:
        >>> ticks(0.0, 1.0), ticks(3, 47, about=4)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [20.0, 40.0])
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis for ``values``: their range and a little air, never empty.

    Example:
        >>> spread([1.0, float("nan"), 3.0]), spread([])
        ((0.9, 3.1), (0.0, 1.0))
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    air = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return low - air, high + air
