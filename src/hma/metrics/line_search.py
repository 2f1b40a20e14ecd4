"""The lowest point of a curve with one valley."""

from collections.abc import Callable


def lowest(cost: Callable[[float], float], low: float, high: float, rounds: int = 60) -> float:
    """Return where ``cost`` is least between two ends, which come nearer by a third each round.

    Example:
        >>> round(lowest(lambda x: (x - 2) ** 2, 0.0, 10.0), 6)
        2.0
    """
    for _ in range(rounds):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if cost(left) <= cost(right):
            high = right
        else:
            low = left
    return (low + high) / 2
