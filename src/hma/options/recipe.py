"""How to train: every number of an optimisation, written down and checked once."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from hma.errors import wrong_choice
from hma.options.config import ConfigError

OptimizerName = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "cosine", "step"]
Selection = Literal["best", "loss", "last"]
Balance = Literal["none", "loss", "sampler"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]

CHOICES: dict[str, tuple[str, ...]] = {
    "optimizer": get_args(OptimizerName),
    "schedule": get_args(Schedule),
    "selection": get_args(Selection),
    "balance": get_args(Balance),
    "precision": get_args(Precision),
}
LEAST_WHOLE = {
    "epochs": 1,
    "steps": 1,
    "batch_size": 1,
    "reads_width": 1,
    "warmup_steps": 0,
    "decay_every": 1,
    "patience": 1,
    "patience_steps": 0,
    "patience_from": 0,
    "evaluate_every": 1,
    "evaluate_every_steps": 1,
    "eval_batch_size": 1,
    "checkpoint_every_steps": 1,
}
MAY_BE_NONE = {
    "epochs",
    "steps",
    "patience",
    "clip_norm",
    "reads_width",
    "evaluate_every_steps",
    "checkpoint_every_steps",
}
NO_EFFECT_ON_RESULTS = ("checkpoint_every_seconds", "checkpoint_every_steps")
"""Fields that may change between an interrupted run and its continuation."""
USUAL_EPOCHS, USUAL_STEPS = 50, 1500
"""Length of a run that is not told how long to be: the longer of the two."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Epochs, batches, optimizer, schedule, and which epoch is kept.

    Example:
        >>> Recipe(lr=0, balance="los")
        Traceback (most recent call last):
        hma.options.config.ConfigError: Recipe cannot run:
          - lr must be above 0, got 0
          - balance must be one of 'none', 'loss', 'sampler', got 'los'; did you mean 'loss'?
    """

    epochs: int | None = USUAL_EPOCHS
    """Passes over the training rows; None for 50, or as many as make 1,500 steps."""
    steps: int | None = None
    """Optimizer steps to train for instead of ``epochs``; the last epoch may then be cut short."""
    batch_size: int = 64
    """Rows per step, over all devices together; the last batch of an epoch may differ."""
    drop_last: bool = False
    """Leave out what is left of an epoch after its whole batches; other rows in every epoch."""
    optimizer: OptimizerName = "adam"
    """Which optimizer."""
    lr: float = 1e-3
    """Learning rate."""
    backbone_lr: float = 1.0
    """What the learning rate of the backbone is multiplied with."""
    head_lr: float = 1.0
    """What the learning rate of the linear head is multiplied with."""
    reads_width: int | None = None
    """Width up to which a read of a memory trains at ``lr``; a wider one trains at ``lr`` times
    this over its width. None trains every read at ``lr``."""
    sgd_momentum: float = 0.9
    """Momentum of sgd."""
    weight_decay: float = 0.0
    """L2 penalty (decoupled for adamw)."""
    schedule: Schedule = "constant"
    """How the learning rate moves after the warm-up; 'cosine' ends at 0."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises linearly to ``lr``."""
    warmup_share: float = 0.0
    """The same as a share of all steps; the longer of the two counts."""
    decay_every: int = 50
    """Epochs between two decays, for schedule 'step'."""
    decay_factor: float = 0.5
    """What each decay multiplies the learning rate with, for schedule 'step'."""
    clip_norm: float | None = None
    """Largest norm of the gradient of all weights together; None does not clip."""
    balance: Balance = "none"
    """Make classes count alike: by row weights in the loss, or by drawing rows class by class."""
    selection: Selection = "best"
    """Keep the epoch with the best validation score, that with the least validation loss (the
    earliest of equals), or the last one."""
    calibrate: bool = False
    """Divide the logits by the temperature that gives the validation rows the least loss."""
    patience: int | None = None
    """Stop after so many epochs in a row without a better validation score, or loss where
    ``selection`` is by it; None never stops."""
    patience_steps: int = 0
    """Never stop before so many steps without a better one, where epochs are short."""
    patience_from: int = 0
    """Epoch, counted from 0, at which patience starts to run."""
    evaluate_every: int = 1
    """Epochs from one validation to the next; the last epoch is always validated."""
    evaluate_every_steps: int | None = None
    """Validate after every so many steps instead; whatever is said of epochs in selection,
    patience and records then holds for these rounds of steps."""
    eval_batch_size: int = 256
    """Rows per batch in evaluation; where a row sees its batch it decides who sees whom."""
    precision: Precision = "32-true"
    """Number format of forward and backward passes; weights stay in 32 bits."""
    checkpoint_every_seconds: float = 30.0
    """Seconds of training an interruption may cost at most; more where checkpoints would take
    over a twentieth of the time. 0 writes one after every step."""
    checkpoint_every_steps: int | None = None
    """Write a checkpoint every so many steps as well; None goes by seconds alone."""

    def __post_init__(self) -> None:
        problems = [*self._wrong_whole_numbers(), *self._wrong_numbers()]
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                problems.append(wrong_choice(name, getattr(self, name), allowed))
        for name in ("drop_last", "calibrate"):
            if not isinstance(getattr(self, name), bool):
                problems.append(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.calibrate is True and self.selection == "last":
            problems.append("calibrate needs selection 'best' or 'loss', got 'last'")
        if self.evaluate_every_steps is not None and self.evaluate_every != 1:
            problems.append(
                f"evaluate_every must be 1 beside evaluate_every_steps, got {self.evaluate_every}"
            )
        if problems:
            raise _cannot_run(problems)

    def steps_of(self, steps_per_epoch: int) -> int:
        """Return how many steps a run has, where a pass over the training rows has so many.

        Example:
            >>> Recipe(epochs=None).steps_of(4), Recipe(epochs=2).steps_of(4)
            (1500, 8)
        """
        if self.steps is not None:
            return self.steps
        fewest = -(-USUAL_STEPS // steps_per_epoch)
        return (self.epochs or max(USUAL_EPOCHS, fewest)) * steps_per_epoch

    @property
    def round(self) -> str:
        """What ends with a validation, in a word."""
        return "epoch" if self.evaluate_every_steps is None else "round"

    def _wrong_whole_numbers(self) -> list[str]:
        problems = []
        for name, least in LEAST_WHOLE.items():
            value = getattr(self, name)
            none = " or None" if name in MAY_BE_NONE else ""
            if value is None and none:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                problems.append(f"{name} must be a whole number{none}, got {value!r}")
            elif value < least:
                problems.append(f"{name} must be at least {least}{none}, got {value}")
        return problems

    def _wrong_numbers(self) -> list[str]:
        rules: dict[str, tuple[str, Callable[[float], bool]]] = {
            "lr": ("above 0", lambda value: value > 0),
            "backbone_lr": ("above 0", lambda value: value > 0),
            "head_lr": ("above 0", lambda value: value > 0),
            "warmup_share": ("at least 0 and below 1", lambda value: 0 <= value < 1),
            "sgd_momentum": ("at least 0 and below 1", lambda value: 0 <= value < 1),
            "weight_decay": ("at least 0", lambda value: value >= 0),
            "decay_factor": ("above 0 and at most 1", lambda value: 0 < value <= 1),
            "clip_norm": ("above 0 or None", lambda value: value > 0),
            "checkpoint_every_seconds": ("at least 0", lambda value: value >= 0),
        }
        problems = []
        for name, (rule, holds) in rules.items():
            value = getattr(self, name)
            if value is None and name in MAY_BE_NONE:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool):
                problems.append(f"{name} must be a number, got {value!r}")
            elif not math.isfinite(value) or not holds(value):
                problems.append(f"{name} must be {rule}, got {value}")
        return problems

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Build a recipe from plain values; an unknown name is an error, not ignored."""
        known = tuple(field.name for field in fields(cls))
        unknown = [wrong_choice("field", name, known) for name in values if name not in known]
        if unknown:
            raise _cannot_run(unknown)
        return cls(**values)

    @property
    def chooses_by_validation(self) -> bool:
        """Whether a validation decides which epoch is kept or when to stop."""
        return self.selection != "last" or self.patience is not None


@dataclass(frozen=True, kw_only=True)
class UserRecipe(Recipe):
    """The recipe of ``hma train``: for data and models that nobody has tuned it to."""

    epochs: int | None = None
    """Passes over the training rows; 50 if not given, or as many as make 1,500 steps."""
    optimizer: OptimizerName = "adamw"
    """Which optimizer."""
    weight_decay: float = 0.01
    """L2 penalty (decoupled for adamw)."""
    reads_width: int | None = 128
    """Width up to which a read of a memory trains at ``lr``; a wider one trains at ``lr`` times
    this over its width. None trains every read at ``lr``."""
    schedule: Schedule = "cosine"
    """How the learning rate moves after the warm-up; 'cosine' ends at 0."""
    warmup_share: float = 0.05
    """Share of all steps over which the learning rate rises linearly to ``lr``."""
    clip_norm: float | None = 1.0
    """Largest norm of the gradient of all weights together; None does not clip."""
    selection: Selection = "loss"
    """Keep the epoch with the best validation score, that with the least validation loss (the
    earliest of equals), or the last one."""
    calibrate: bool = True
    """Divide the logits by the temperature that gives the validation rows the least loss."""
    patience: int | None = 12
    """Stop after so many epochs in a row without a better validation score, or loss where
    ``selection`` is by it; None never stops."""
    patience_steps: int = 150
    """Never stop before so many steps without a better one, where epochs are short."""

    def fixed(self) -> Recipe:
        """Return the same as a plain recipe, as records keep it."""
        return Recipe(**asdict(self))


def _cannot_run(problems: list[str]) -> ConfigError:
    return ConfigError("Recipe cannot run:\n" + "\n".join(f"  - {problem}" for problem in problems))
