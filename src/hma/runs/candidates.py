"""What a run trains side by side: names, titles, and who of them may answer."""

from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal, cast

from torch import nn

from hma.attention.config import ABLATIONS, HMAConfig
from hma.data import Task
from hma.errors import UserError
from hma.extras import needed
from hma.methods import Learner, Method, erm, with_memory
from hma.methods.learner import BackboneFactory
from hma.methods.simple import NoSimpleRowError, simple_methods
from hma.methods.simple import title as simple_title
from hma.targets import Classes, Target
from hma.vote.config import VoteConfig

MemoryConfig = HMAConfig | VoteConfig

Which = Literal[
    "mixture", "memory", "plain", "logistic", "neighbours", "kernel", "boosting", "param"
]
"""Who answers: one of the candidates, or all of them together."""
MIXTURE: Which = "mixture"
"""All candidates together, each with its share."""
MEMORY: Which = "memory"
"""The backbone with its memory."""
PLAIN: Which = "plain"
"""The same backbone without one."""
SIMPLE: tuple[Which, ...] = ("logistic", "neighbours", "kernel", "boosting")
PARAM: Which = "param"
"""Shown beside the others and never part of an answer: it tells what a memory adds."""
CANDIDATES: tuple[Which, ...] = (PLAIN, MEMORY, *SIMPLE, PARAM)
"""Each has a folder of its own in the run folder, with a record and weights."""


def title(which: Which, target: Target) -> str:
    """Return the name of a candidate within a sentence.

    Example:
        >>> from hma.targets import Number
        >>> title("logistic", Number())
        'ridge regression'
    """
    titles: dict[Which, str] = {
        "mixture": "the mixture",
        "memory": "the memory",
        "plain": "the plain backbone",
        "param": "PARAM",
    }
    return titles[which] if which in titles else simple_title(which, target)


def method_of(which: Which, task: Task, backbone: nn.Module, config: MemoryConfig) -> Method:
    """Return the method of a candidate other than the memory, with a backbone that is there.

    Args:
        which: The candidate.
        task: What it learned; without rows if need be.
        backbone: The encoder; simple methods take a frozen one alone.
        config: Sizes of the memories.
    """
    if which == PLAIN:
        return erm(lambda task: backbone)
    if which == PARAM:
        return with_memory(lambda task: backbone, without_memories(config), alone=True)
    return simple_methods(task, lambda task: backbone)[which]


def without_memories(config: MemoryConfig) -> HMAConfig:
    """Return the PARAM ablation: the same blocks with nothing to read."""
    if not isinstance(config, HMAConfig):
        raise UserError(
            "--param is for --memory hma, whose reads have blocks of their own; rows that vote "
            "have none, so the plain backbone is that comparison"
        )
    free = {name: value for name, value in asdict(config).items() if name not in ABLATIONS[PARAM]}
    return HMAConfig.ablation(PARAM, **free)


def new_learners(
    task: Task,
    seed: int,
    *,
    backbone: BackboneFactory,
    config: MemoryConfig,
    compare: bool = True,
    param: bool = False,
) -> dict[Which, Learner]:
    """Return what is to be trained; nothing is written yet.

    Simple methods share the plain backbone's encoder where it is frozen. What has no answer for
    such rows or labels is left out.

    Args:
        task: What is to be learned.
        seed: Decides the first weights.
        backbone: Makes the encoder.
        config: Sizes of the memories.
        compare: Whether anything is trained beside the memory.
        param: Whether PARAM is.
    """
    found: dict[Which, Learner] = {}
    if compare:
        found[PLAIN] = erm(backbone)(task, seed)
        found |= _simple_learners(task, seed, cast("Any", found[PLAIN].module).backbone, config)
    found[MEMORY] = with_memory(backbone, config, alone=True)(task, seed)
    if param:
        found[PARAM] = with_memory(backbone, without_memories(config), alone=True)(task, seed)
    return found


def _simple_learners(
    task: Task, seed: int, backbone: nn.Module, config: MemoryConfig
) -> dict[Which, Learner]:
    found: dict[Which, Learner] = {}
    needed("sklearn", "training simple methods beside the networks")
    if isinstance(task.target, Classes) and len(set(task.train.labels.tolist())) < 2:
        return found  # nothing to tell apart
    for which in SIMPLE:
        with suppress(NoSimpleRowError, KeyError):
            found[which] = method_of(which, task, backbone, config)(task, seed)
    return found
