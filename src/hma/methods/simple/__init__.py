"""Methods that need no network of their own, each a row beside one; one file for each.

They see what a frozen backbone makes of a row, else the prepared row itself, are fitted at once
with scikit-learn, and answer, are saved and are loaded as every other learner, without it.
"""

from collections.abc import Callable

from hma.data import Task
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.kernel import kernel
from hma.methods.simple.logistic import logistic
from hma.methods.simple.neighbours import neighbours
from hma.methods.simple.simple_row import NoSimpleRowError
from hma.methods.simple.trees import boosting
from hma.targets import Number, Target

__all__ = [
    "NoSimpleRowError",
    "boosting",
    "kernel",
    "logistic",
    "neighbours",
    "simple_methods",
    "title",
]

TITLES = {
    "logistic": "logistic regression",
    "neighbours": "nearest neighbours",
    "boosting": "gradient boosting",
    "kernel": "kernel ridge",
}


def simple_methods(task: Task, backbone: BackboneFactory | None = None) -> dict[str, Method]:
    """Return the simple baselines that are worth a row beside a network on ``task``, by name.

    Building one raises :class:`NoSimpleRowError` where it has no answer for the labels, or the
    rows are no vectors; fitting one, where there is nothing to tell apart.

    Args:
        task: What is to be learned; of its rows nothing is read.
        backbone: Makes the encoder of the network; a frozen one stands in front.

    Example:
        >>> from hma.data.sets.digits import digits
        >>> sorted(simple_methods(digits(seed=0)))
        ['kernel', 'logistic', 'neighbours']
    """
    rows: dict[str, Callable[[BackboneFactory | None], Method]]
    rows = {"logistic": logistic, "neighbours": neighbours, "kernel": kernel}
    if task.kind == "table":
        rows["boosting"] = boosting
    return {name: method(backbone) for name, method in rows.items()}


def title(name: str, target: Target) -> str:
    """Return how a simple method is called where it is shown.

    Example:
        >>> title("logistic", Number())
        'ridge regression'
    """
    if name == "logistic" and isinstance(target, Number):
        return "ridge regression"
    return TITLES[name]
