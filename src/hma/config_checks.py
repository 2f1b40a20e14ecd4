"""What each field of a configuration may hold, and which fields do not go together.

A switch, and a choice among names, is checked by its type; a number needs its rule in ``NUMBERS``.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

from hma.errors import wrong_choice

if TYPE_CHECKING:
    from hma.config import HMAConfig


class Rule(NamedTuple):
    """What a number must be, in words and as a test."""

    says: str
    holds: Callable[[float], bool]


def at_least(least: int, otherwise: str = "") -> Rule:
    """Return the rule of a number that has a lower bound; ``otherwise`` names a remedy."""
    return Rule(f"at least {least}{otherwise}", lambda value: value >= least)


SHARE = Rule("at least 0 and below 1", lambda value: 0 <= value < 1)

NUMBERS: dict[str, Rule] = {
    "label_dim": at_least(0),
    "queue_size": at_least(0),
    "slots_per_class": at_least(0),
    "num_heads": at_least(1),
    "width": at_least(1, " or None"),
    "feed_forward": at_least(1),
    "linear_features": at_least(1),
    "key_dim": at_least(1),
    "candidates": at_least(1),
    "dropout": SHARE,
    "key_dropout": SHARE,
    "momentum": SHARE,
    "alone_share": SHARE,
    "contrastive": Rule("finite and at least 0", lambda value: 0 <= value < math.inf),
    "contrast_temperature": Rule("finite and above 0", lambda value: 0 < value < math.inf),
    "top_k": at_least(1, " or None"),
}

NO_VALUES = {
    "mixed": "backbone and head are trained before there are rows to read",
    "alone": "no head reads them",
}
"""Votes beside which rows have no values, and why."""


def problems_of(config: "HMAConfig") -> list[str]:
    """Return everything that is wrong with a configuration, each in one line."""
    kinds = {field.name: field.type for field in fields(config)}
    problems = [*_wrong_types(config, kinds), *_wrong_values(config, kinds)]
    return [*problems, *_wrong_together(config)] or _nothing_to_read(config)


def _wrong_types(config: "HMAConfig", kinds: dict[str, Any]) -> Iterator[str]:
    for name in NUMBERS:
        value, types = getattr(config, name), get_args(kinds[name]) or (kinds[name],)
        noun = "a whole number" if int in types else "a number"
        none = " or None" if NoneType in types else ""
        if not (_is_number(value, whole=int in types) or (none and value is None)):
            yield f"{name} must be {noun}{none}, got {value!r}"
    for name, kind in kinds.items():
        value = getattr(config, name)
        if kind is bool and not isinstance(value, bool):
            yield f"{name} must be True or False, got {value!r}"


def _wrong_values(config: "HMAConfig", kinds: dict[str, Any]) -> Iterator[str]:
    for name, rule in NUMBERS.items():
        value = getattr(config, name)
        if _is_number(value) and not rule.holds(value):
            yield f"{name} must be {rule.says}, got {value}"
    for name, kind in kinds.items():
        if get_origin(kind) is Literal and getattr(config, name) not in get_args(kind):
            yield wrong_choice(name, getattr(config, name), get_args(kind))


def _is_number(value: object, whole: bool = False) -> bool:
    return isinstance(value, int if whole else int | float) and not isinstance(value, bool)


def _wrong_together(config: "HMAConfig") -> list[str]:
    """Return what does not go with the kind of read."""
    return _wrong_for_votes(config) if config.votes else _wrong_for_attention(config)


def _wrong_for_attention(config: "HMAConfig") -> list[str]:
    problems = []
    if config.label_dim == 0 and config.readout == "label":
        problems.append("readout='label' needs a label_dim of at least 1, got 0")
    if config.context == "anchors" and not config.batch_attention:
        problems.append(
            "context='anchors' needs batch_attention=True: anchors stand in for the batch"
        )
    if config.values:
        problems.append(
            "values=True needs similarity='distance', got 'dot', whose rows have values already; "
            "leave it out"
        )
    if config.queue_size is None:
        problems.append("queue_size must be a whole number for similarity='dot', got None")
    if config.attention == "linear" and config.top_k is not None:
        problems.append(
            f"attention='linear' has no weights of single rows to choose from, got "
            f"top_k={config.top_k}; leave it out, or take attention='exact'"
        )
    return problems


def _wrong_for_votes(config: "HMAConfig") -> list[str]:
    rule = "similarity='distance' answers each row alone and embeds no labels, got "
    if config.context == "anchors":
        return [rule + "context='anchors'; leave it out, or take HMAConfig.paper"]
    if config.readout == "label":
        return [rule + "readout='label'; leave it out, or take HMAConfig.paper"]
    if not (config.has_real_memory or config.slots_per_class):
        return [
            "queue_size and slots_per_class are both 0, so nobody votes; turn one on, or take "
            "the backbone without a memory"
        ]
    if config.values and config.vote in NO_VALUES:
        return [
            f"values=True needs votes that learn with a head, got vote={config.vote!r}, where "
            f"{NO_VALUES[config.vote]}; take vote='gated', or leave values out"
        ]
    return []


def _nothing_to_read(config: "HMAConfig") -> list[str]:
    if config.votes or config.empty_reads == "keep" or config.reads_anything:
        return []
    return [
        "queue_size, slots_per_class and batch_attention are all off, so there is nothing "
        "to read; turn one on, or set empty_reads='keep' for the PARAM ablation"
    ]
