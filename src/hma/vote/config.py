"""Every number that shapes a memory whose rows vote."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from hma.options.config import SHARE, Config, Rule, SlotInit, at_least

KeyView = Literal["inputs", "features"]
Solved = Literal["none", "keys", "view", "both"]
View = Literal["keys", "view"]


@dataclass(frozen=True, kw_only=True)
class VoteConfig(Config):
    """Which rows are kept, what they are found by, and how that is learned.

    Example:
        >>> VoteConfig(key_dim=0)
        Traceback (most recent call last):
        hma.options.config.ConfigError: VoteConfig cannot run:
          - key_dim must be at least 1, got 0
    """

    memory_size: int | None = None
    """Training rows kept, the oldest overwritten first; None keeps all, 0 leaves the slots to
    vote alone."""
    key_view: KeyView = "inputs"
    """What keys are made of: the 'inputs', where the backbone offers a view of them or a
    ``key_encoder`` is given, or the 'features' that the head reads."""
    key_dim: int = 128
    """Width of the keys that distances are measured between."""
    key_dropout: float = 0.3
    """Share of its view that a key does without while keys are learned."""
    solved: Solved = "both"
    """Where stored rows also say what was solved for, beside their labels: by the learned 'keys',
    by the 'view' that keys are made of, by 'both', or not at all ('none')."""
    candidates: int | None = 512
    """Stored rows drawn for a step of learning keys; None takes all."""
    leave_self_out: bool = True
    """Whether a row does without its own stored copy while keys are learned."""
    slots_per_class: int = 0
    """Learned rows of each class that vote beside the stored ones."""
    slot_init: SlotInit = "normal"
    """Start of the slots: 'normal' or 'zeros'; from the training rows of each class: 'samples',
    'class_means', 'kmeans' or 'distilled', rows with the class's statistics."""
    check_finite: bool = False
    """Raise on NaN or infinite features; costs a device sync per call."""

    numbers: ClassVar[dict[str, Rule]] = {
        "memory_size": at_least(0, " or None"),
        "key_dim": at_least(1),
        "key_dropout": SHARE,
        "candidates": at_least(1, " or None"),
        "slots_per_class": at_least(0),
    }

    @property
    def solved_views(self) -> tuple[View, ...]:
        """Where rows lie that say what was solved for."""
        if not self.has_real_memory or self.solved == "none":
            return ()
        return ("keys", "view") if self.solved == "both" else (self.solved,)

    @property
    def has_real_memory(self) -> bool:
        """Whether training rows are kept."""
        return self.memory_size != 0

    def conflicts(self) -> list[str]:
        """Return which fields do not go together."""
        if self.has_real_memory or self.slots_per_class:
            return []
        return [
            "memory_size and slots_per_class are both 0, so nobody votes; turn one on, or take "
            "the backbone without a memory"
        ]
