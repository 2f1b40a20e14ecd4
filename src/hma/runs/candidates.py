"""What a run trains side by side: names, titles, and who of them may answer."""

from contextlib import suppress
from typing import Any, Literal, cast

from torch import nn

from hma.config import HMAConfig
from hma.data import Task
from hma.extras import needed
from hma.methods import Learner, Method, erm, with_hma
from hma.methods.learner import BackboneFactory
from hma.methods.simple import NoSimpleRowError, simple_methods
from hma.methods.simple import title as simple_title
from hma.targets import Classes, Target

Which = Literal["mixture", "memory", "plain", "logistic", "neighbours", "boosting"]
"""Who answers: one of the candidates, or all of them together."""
MIXTURE: Which = "mixture"
MEMORY: Which = "memory"
PLAIN: Which = "plain"
SIMPLE: tuple[Which, ...] = ("logistic", "neighbours", "boosting")
CANDIDATES: tuple[Which, ...] = (PLAIN, MEMORY, *SIMPLE)
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
    }
    return titles[which] if which in titles else simple_title(which, target)


def method_of(which: Which, task: Task, backbone: nn.Module) -> Method:
    """Return the method of a candidate other than the memory, with a backbone that is there.

    Args:
        which: The candidate.
        task: What it learned; without rows if need be.
        backbone: The encoder; simple methods take a frozen one alone.
    """
    if which == PLAIN:
        return erm(lambda task: backbone)
    return simple_methods(task, lambda task: backbone)[which]


def new_learners(
    task: Task, seed: int, *, backbone: BackboneFactory, config: HMAConfig, compare: bool
) -> dict[Which, Learner]:
    """Return what is to be trained, the memory last; nothing is written yet.

    Simple methods share the plain backbone's encoder where it is frozen. What has no answer for
    such rows or labels is left out.

    Args:
        task: What is to be learned.
        seed: Decides the first weights.
        backbone: Makes the encoder.
        config: Sizes of the memories.
        compare: Whether anything is trained beside the memory.
    """
    found: dict[Which, Learner] = {}
    if compare:
        found[PLAIN] = erm(backbone)(task, seed)
        found |= _simple_learners(task, seed, cast("Any", found[PLAIN].module).backbone)
    found[MEMORY] = with_hma(backbone, config, alone=True)(task, seed)
    return found


def _simple_learners(task: Task, seed: int, backbone: nn.Module) -> dict[Which, Learner]:
    found: dict[Which, Learner] = {}
    needed("sklearn", "training simple methods beside the networks")
    if isinstance(task.target, Classes) and len(set(task.train.labels.tolist())) < 2:
        return found  # nothing to tell apart
    for which in SIMPLE:
        with suppress(NoSimpleRowError, KeyError):
            found[which] = method_of(which, task, backbone)(task, seed)
    return found
