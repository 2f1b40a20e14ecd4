"""What a run trains side by side: names, titles, and who of them may answer."""

from typing import Literal

from hma.methods import Method, erm
from hma.methods.learner import BackboneFactory
from hma.targets import Number, Target

Which = Literal["mixture", "memory", "plain", "logistic", "neighbours", "boosting"]
"""Who answers: one of the candidates, or all of them together."""
MIXTURE: Which = "mixture"
MEMORY: Which = "memory"
PLAIN: Which = "plain"
CANDIDATES: tuple[Which, ...] = ("plain", "memory", "logistic", "neighbours", "boosting")
"""Each has a folder of its own in the run folder, with a record and weights."""


def title(which: Which, target: Target) -> str:
    """Return the name of a candidate within a sentence.

    Example:
        >>> title("logistic", Number())
        'ridge regression'
    """
    titles: dict[Which, str] = {
        "mixture": "the mixture",
        "memory": "the memory",
        "plain": "the plain backbone",
        "logistic": "ridge regression" if isinstance(target, Number) else "logistic regression",
        "neighbours": "nearest neighbours",
        "boosting": "gradient boosting",
    }
    return titles[which]


def method_of(which: Which, backbone: BackboneFactory) -> Method:
    """Return the method of a candidate other than the memory, which is saved as a model."""
    return erm(backbone)
