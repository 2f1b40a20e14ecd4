"""Drawing in SVG: escaped elements, scales with round ticks, one palette for all drawings."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from hma.errors import printable

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46")
"""After Okabe and Ito: told apart by the colour-blind, on white and on black."""
DASHES = (None, "7 3", "2 3")
SHAPES = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "m-3.6 -3.6h7.2v7.2h-7.2z",
    "m0 -5l5 5l-5 5l-5 -5z",
    "m0 -4.6l4.6 8h-9.2z",
    "m0 4.6l4.6 -8h-9.2z",
)
MARKERS = ("o", "s", "D", "^", "v")
"""The same shapes as matplotlib names them."""
Marks = Iterable[tuple[float, str]]
"""Values of an axis, with what is written at each."""


class Look(NamedTuple):
    """How a series looks: a colour, None for that of the text, and places in the lists above.

    Example:
        >>> Look.of(8)
        Look(colour='#d55e00', dashes=1, shape=3, hollow=False)
    """

    colour: str | None = None
    dashes: int = 0
    shape: int = 0
    hollow: bool = False

    @classmethod
    def of(cls, place: int, *, hollow: bool = False) -> "Look":
        """Return the look of the ``place``-th series."""
        turns, colour = divmod(place, len(COLOURS))
        return cls(COLOURS[colour], turns % len(DASHES), place % len(SHAPES), hollow)


def class_colour(index: int, count: int) -> str:
    """Return the colour of a class: from the palette, or around the wheel where it ends."""
    if index < 0:
        return "#9aa0a6"
    if count <= len(COLOURS):
        return COLOURS[index]
    return f"hsl({index * 137.508 % 360:.0f} 55% {(52, 42, 62)[index % 3]}%)"


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


class Axes(NamedTuple):
    """A plot's two scales: one to the right, and one upwards."""

    across: Scale
    up: Scale

    def levels(self, marks: Marks) -> Iterator[Markup]:
        """Yield a line across for each value upwards, with its text on the left."""
        left, right = self.across.start, self.across.end
        for value, text in marks:
            y = self.up(value)
            yield tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid")
            yield tag("text", text, x=left - 6, y=y + 4, class_="tick end")

    def steps(self, marks: Marks, below: float = 17) -> Iterator[Markup]:
        """Yield the text of each value to the right, so far below the plot."""
        for value, text in marks:
            x, y = self.across(value), self.up.start + below
            yield tag("text", text, x=x, y=y, class_="tick middle")

    def title(self, text: str, below: float = 35) -> Markup:
        """Return what the values to the right are, so far below the plot."""
        x, y = (self.across.start + self.across.end) / 2, self.up.start + below
        return tag("text", text, x=x, y=y, class_="axis middle")


def marks(scale: Scale, write: Callable[[float], str], about: int = 5) -> list[tuple[float, str]]:
    """Return the round values of a scale as they are written.

    Example:
        >>> marks(Scale(0, 1, 0, 100), "{:.0%}".format, about=2)
        [(0.0, '0%'), (0.5, '50%'), (1.0, '100%')]
    """
    return [(value, write(value)) for value in ticks(scale.low, scale.high, about)]


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
