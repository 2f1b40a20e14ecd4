"""Colours, dashes and shapes that tell rows and classes apart, on screen and in print."""

from typing import NamedTuple

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46")
"""After Okabe and Ito: told apart by the colour-blind, on white and on black."""
DASHES = (None, "7 3", "2 3")
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -5l5 5l-5 5l-5 -5z",
    "M0 -4.6l4.6 8h-9.2z",
    "M0 4.6l4.6 -8h-9.2z",
)
MARKERS = ("o", "s", "D", "^", "v")
"""The same shapes as matplotlib names them."""


class Look(NamedTuple):
    """How a series looks: places in the lists above; the colour None is that of the text.

    Example:
        >>> Look.of(8)
        Look(colour=1, dashes=1, shape=3, hollow=False)
    """

    colour: int | None = None
    dashes: int = 0
    shape: int = 0
    hollow: bool = False

    @classmethod
    def of(cls, place: int, *, hollow: bool = False) -> "Look":
        """Return the look of the ``place``-th series."""
        colours = len(COLOURS)
        return cls(place % colours, place // colours % len(DASHES), place % len(SHAPES), hollow)
