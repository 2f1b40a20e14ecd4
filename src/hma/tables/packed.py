"""Many numbers as one line of text, so that records stay small and their changes readable."""

from collections.abc import Iterable


def packed(numbers: Iterable[float], digits: int = 0) -> str:
    """Return numbers with so many decimals, blanks between.

    Example:
        >>> packed([1.25, -0.004, 3.0], 2), packed([3, 1])
        ('1.25 0 3', '3 1')
    """
    return " ".join(f"{round(number, digits) + 0.0:.{digits + 16}g}" for number in numbers)


def unpacked(text: str) -> list[float]:
    """Return the numbers that :func:`packed` wrote.

    Example:
        >>> unpacked("1.25 0 3")
        [1.25, 0.0, 3.0]
    """
    return [float(part) for part in text.split()]
