"""What a step of the tour leaves: a line for people, the numbers in it, pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from torch import Tensor

from hma.report import numbers

PLAIN_NUMBERS = ("AUROC", "loss")
"""How names of numbers end that are no shares."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A row as a picture with a few words.

    Args:
        picture: An address that holds it whole; None for none.
        head: What it is, in short.
        text: More about it.
        marked: Whether it is one to look at twice.
    """

    picture: str | None
    head: str
    text: str
    marked: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step found.

    Args:
        name: In a word, for the record.
        title: For people.
        result: In a line or two.
        command: What does the same, to be typed.
        numbers: By name; shares as parts of 1.
        pictures: Rows to look at.
        caption: What the pictures show.
    """

    name: str
    title: str
    result: str
    command: str
    numbers: Mapping[str, float]
    pictures: tuple[Picture, ...] = ()
    caption: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what the record keeps: all but the pictures."""
        kept = ("name", "title", "result", "command", "numbers")
        return {name: value for name, value in asdict(self).items() if name in kept}


@dataclass(frozen=True, kw_only=True)
class Line:
    """A method in the table.

    Args:
        method: Its name.
        accuracy, loss: On the test rows of few labels, with each seed.
        graphs: Accuracy on graphs; None where it was not asked.
    """

    method: str
    accuracy: tuple[float, ...]
    loss: tuple[float, ...]
    graphs: float | None = None

    @property
    def texts(self) -> tuple[str, str, str]:
        """Accuracy and loss, mean ± deviation over the seeds, and accuracy on graphs.

        Example:
            >>> Line(method="memory", accuracy=(0.9, 0.92), loss=(0.3, 0.3)).texts
            ('91.0 ± 1.4', '0.300 ± 0.000', '—')
        """
        graphs = numbers.MISSING if self.graphs is None else numbers.fixed(100 * self.graphs, 1)
        return _spread(self.accuracy, 100, 1), _spread(self.loss, 1, 3), graphs


@dataclass(frozen=True, kw_only=True)
class Found:
    """A step, and what only some steps leave.

    Args:
        step: The step.
        lines: Of the table, by method.
        graphs: Accuracy on graphs by method.
    """

    step: Step
    lines: tuple[Line, ...] = ()
    graphs: Mapping[str, float] = field(default_factory=dict)


def _spread(values: Sequence[float], times: int, digits: int) -> str:
    spread = f" ± {numbers.fixed(times * stdev(values), digits)}" if len(values) > 1 else ""
    return f"{numbers.fixed(times * fmean(values), digits)}{spread}"


def auroc(high: Tensor, low: Tensor) -> float:
    """Return how often a value of ``high`` is above one of ``low``, ties counting half.

    Example:
        >>> import torch
        >>> auroc(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
        0.875
    """
    above = (high[:, None] > low).double() + 0.5 * (high[:, None] == low)
    return float(above.mean())


def figure(name: str, value: float) -> str:
    """Return a number of a step as people read it.

    Example:
        >>> figure("rows", 5), figure("accuracy", 0.925), figure("AUROC", 0.98765)
        ('5', '92.5%', '0.988')
    """
    if isinstance(value, int):
        return str(value)
    return numbers.plain(value) if name.endswith(PLAIN_NUMBERS) else numbers.percent(value)
