"""The options of the classifier and the regressor, as scikit-learn wants them, and checked."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from hma.attention.config import ABLATIONS, HMAConfig
from hma.backbones import binned_mlp
from hma.errors import UserError, reason, wrong_choice
from hma.training import Recipe, UserRecipe
from hma.vote.config import VoteConfig


class TableOptions(BaseEstimator):  # type: ignore[misc]
    """Keep options as they are given; they are checked when training starts.

    Args:
        backbone, hidden, ...: As those of :class:`hma.MemoryClassifier` and
            :class:`hma.MemoryRegressor`.
    """

    def __init__(
        self,
        backbone: Any = None,
        *,
        hidden: Any = (128, 128),
        memory: str = "vote",
        memory_size: int | None = None,
        slots_per_class: int | None = None,
        slot_init: str = "normal",
        contrastive: float = 0.0,
        label_dim: int = 16,
        num_heads: int = 4,
        dropout: float = 0.1,
        momentum: float = 0.99,
        ablation: str = "hma",
        context: str = "alone",
        max_epochs: int | None = None,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.2,
        patience: int = 20,
        refit: bool = True,
        linear: bool = True,
        standardize: bool = True,
        random_state: Any = None,
        verbose: bool = False,
        device: Any = "cpu",
    ) -> None:
        self.backbone = backbone
        self.hidden = hidden
        self.memory = memory
        self.memory_size = memory_size
        self.slots_per_class = slots_per_class
        self.slot_init = slot_init
        self.contrastive = contrastive
        self.label_dim = label_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.momentum = momentum
        self.ablation = ablation
        self.context = context
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.refit = refit
        self.linear = linear
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose
        self.device = device


# --------------------------------------------------------------------- checked when training starts


VOTING = ("memory_size", "slots_per_class", "slot_init")
PAPER = ("slots_per_class", "slot_init", "contrastive", "label_dim", "num_heads", "dropout",
         "momentum")  # fmt: skip
PAPER_SIZES = {"queue_size": 256, "slots_per_class": 4}
"""Sizes of the paper's memories where none are given."""
MEMORIES, CONTEXTS = ("vote", "hma"), ("alone", "batch")


@dataclass(frozen=True)
class TrainingOptions:
    """How to train, in plain Python numbers."""

    recipe: Recipe
    validation_fraction: float | None
    """Share of the rows held out to stop by; None trains on all of them to the end."""


def training_of(estimator: str, options: dict[str, Any]) -> TrainingOptions:
    """Return the training options of an ``estimator``, or list every problem among them."""
    problems = [
        f"{name} must be a whole number of at least 1{none}, got {options[name]!r}"
        for name, none in (("max_epochs", ", or None"), ("batch_size", ""), ("patience", ""))
        if not (_whole(options[name]) and options[name] >= 1)
        and not (none and options[name] is None)
    ]
    rate, fraction = options["learning_rate"], options["validation_fraction"]
    if not (_real(rate) and 0 < rate < math.inf):
        problems.append(f"learning_rate must be a finite number above 0, got {rate!r}")
    if not _yes_or_no(options["early_stopping"]) and options["early_stopping"] != "auto":
        got = options["early_stopping"]
        problems.append(f"early_stopping must be True, False or 'auto', got {got!r}")
    problems += [
        f"{name} must be True or False, got {options[name]!r}"
        for name in ("standardize", "linear", "refit")
        if not _yes_or_no(options[name])
    ]
    if not (_real(fraction) and 0 < fraction < 1):
        problems.append(f"validation_fraction must be between 0 and 1, got {fraction!r}")
    if problems:
        raise UserError(f"{estimator} cannot train: " + "; ".join(problems))
    epochs = options["max_epochs"]
    recipe = UserRecipe(
        epochs=None if epochs is None else int(epochs),
        batch_size=int(options["batch_size"]),
        lr=float(rate),
        patience=int(options["patience"]),
    )
    return TrainingOptions(recipe.fixed(), float(fraction) if options["early_stopping"] else None)


def config_of(options: dict[str, Any], feature_dim: int) -> HMAConfig | VoteConfig:
    """Return the configuration of the memory: rows that vote, or the paper's attention."""
    row, context, contrastive = (options[name] for name in ("ablation", "context", "contrastive"))
    for name, allowed in (
        ("memory", MEMORIES), ("ablation", tuple(ABLATIONS)), ("context", CONTEXTS),
    ):  # fmt: skip
        if options[name] not in allowed:
            raise UserError(wrong_choice(name, options[name], allowed))
    if options["memory"] == "hma":
        return _papers(options, feature_dim)
    if row != "hma" or context != "alone" or contrastive:
        raise UserError(
            "memory='vote' has no ablation and no contrastive loss, and answers each row alone, "
            f"got ablation={row!r}, contrastive={contrastive!r} and context={context!r}; set "
            "memory='hma'"
        )
    given = {name: _plain(options[name]) for name in VOTING if options[name] is not None}
    return VoteConfig.from_dict(given)


def _papers(options: dict[str, Any], feature_dim: int) -> HMAConfig:
    """Return the paper's design, with ``label_dim`` rounded up so that the heads fit.

    Sizes that the ablation turns off are those of the ablation, whatever the options say.
    """
    row = options["ablation"]
    asked = options | {"queue_size": options["memory_size"]}
    given = PAPER_SIZES | {name: value for name, value in asked.items() if value is not None}
    fixed = ABLATIONS[row]
    free = {name: _plain(given[name]) for name in ("queue_size", *PAPER) if name not in fixed}
    config = HMAConfig.ablation(row, context=options["context"], **free)
    short = -(feature_dim + config.label_dim) % config.num_heads
    if short and "label_dim" not in free:
        raise UserError(
            f"num_heads must divide the width of the features in the ablation {row!r}, which has "
            f"no label_dim to widen, got {config.num_heads} and {feature_dim}; "
            "change num_heads or the last width of hidden"
        )
    return replace(config, label_dim=config.label_dim + short)


def widths_of(hidden: Any) -> tuple[int, ...]:
    """Return the widths of the hidden layers."""
    widths = (hidden,) if _whole(hidden) else hidden
    fits = isinstance(widths, Sequence | np.ndarray) and not isinstance(widths, str)
    if not (fits and len(widths) > 0 and all(_whole(width) and width >= 1 for width in widths)):
        raise UserError(
            f"hidden must be one or more whole numbers of at least 1, got {hidden!r}; "
            "such as (128, 128)"
        )
    return tuple(int(width) for width in widths)


def device_of(name: Any) -> torch.device:
    """Return a device that tensors can be on."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        raise UserError(
            f"device must be one that torch can use, got {name!r}: {reason(error)}"
        ) from error
    return device


def backbone_of(given: Any, hidden: Any, inputs: int) -> nn.Module:
    """Return a fresh backbone: a copy of a module, what a factory makes, or an MLP for None."""
    if given is None:
        return binned_mlp(inputs, widths_of(hidden))
    if isinstance(given, nn.Module):
        made: Any = deepcopy(given)
    elif callable(given):
        made = given(inputs)
    else:
        made = given
    if not isinstance(made, nn.Module):
        what = "its return value" if callable(given) else "it"
        raise UserError(
            "backbone must be a torch module, or a function from the number of input features to "
            f"one; {what} is a {type(made).__name__}"
        )
    return made.float()


def width_of(backbone: nn.Module, inputs: int, device: torch.device) -> int:
    """Return the width of the features that a given backbone makes, by asking it for two."""
    was_training = backbone.training
    with torch.no_grad():
        features = backbone.eval()(torch.zeros(2, inputs, device=device))
    backbone.train(was_training)
    if not isinstance(features, torch.Tensor) or features.dim() != 2 or len(features) != 2:
        got = tuple(features.shape) if isinstance(features, torch.Tensor) else type(features)
        raise UserError(
            f"backbone must map (B, {inputs}) to features (B, F), got {got} for B = 2; "
            "wrap it in a module whose forward returns such a tensor"
        )
    return int(features.shape[1])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _yes_or_no(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
