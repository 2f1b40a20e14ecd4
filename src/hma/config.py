"""Every number that shapes an HMA module, checked once, where it is written down."""

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, Self, get_args

SlotInit = Literal["normal", "zeros"]
QueueLabels = Literal["live", "frozen"]
Scale = Literal["head", "token"]
Readout = Literal["all", "features", "label"]
Context = Literal["batch", "alone", "anchors"]
EmptyReads = Literal["skip", "keep"]

CHOICES: dict[str, tuple[str, ...]] = {
    "slot_init": get_args(SlotInit),
    "queue_labels": get_args(QueueLabels),
    "scale": get_args(Scale),
    "readout": get_args(Readout),
    "context": get_args(Context),
    "empty_reads": get_args(EmptyReads),
}
LEAST = {"label_dim": 0, "queue_size": 0, "slots_per_class": 0, "num_heads": 1}

_NO_QUEUE: dict[str, Any] = {"queue_size": 0}
_NO_SLOTS: dict[str, Any] = {"slots_per_class": 0}
_NO_NEIGHBOURS: dict[str, Any] = {"batch_attention": False}
ABLATIONS: dict[str, dict[str, Any]] = {
    "rma": _NO_SLOTS | _NO_NEIGHBOURS,
    "abd": _NO_QUEUE | _NO_SLOTS,
    "abd+syn": _NO_QUEUE,
    "abd+rma": _NO_SLOTS,
    "hma": {},
    "param": _NO_QUEUE | _NO_SLOTS | _NO_NEIGHBOURS | {"empty_reads": "keep", "label_dim": 0},
}


class ConfigError(ValueError):
    """A configuration that cannot run. Lists every problem, not only the first."""


@dataclass(frozen=True, kw_only=True)
class HMAConfig:
    """Sizes of the two memories and of the reads over them.

    Example:
        >>> HMAConfig(num_heads=0, context="alnoe")
        Traceback (most recent call last):
        hma.config.ConfigError: HMAConfig cannot run:
          - num_heads must be at least 1, got 0
          - context must be one of 'batch', 'alone', 'anchors', got 'alnoe'; did you mean 'alone'?
    """

    label_dim: int = 64
    """Width of the label part of a token; 0 leaves labels out of the tokens."""
    queue_size: int = 512
    """Real-memory rows kept; 0 turns the real memory off."""
    slots_per_class: int = 16
    """Learnable tokens per class; 0 leaves attention between datapoints alone."""
    num_heads: int = 4
    """Attention heads in both reads; must divide feature_dim + label_dim."""
    dropout: float = 0.1
    """Dropout on hidden activations of both reads; attention weights are never dropped."""
    momentum: float = 0.999
    """Share of itself the momentum encoder keeps per step; 0 writes the backbone's own features."""
    batch_attention: bool = True
    """Whether the synthetic read sees the other rows of the batch."""
    slot_init: SlotInit = "normal"
    """Start of the slots: 'normal' is N(0, 0.02); 'zeros' is the released code's."""
    queue_labels: QueueLabels = "live"
    """'live' embeds the stored class ids at every read; 'frozen' keeps the value of write time."""
    scale: Scale = "head"
    """Scores are divided by the root of the head's width, or of the whole 'token'."""
    readout: Readout = "all"
    """What the linear head sees of the final token."""
    context: Context = "batch"
    """What a row sees of others in eval mode: its batch, nobody, or the stored anchors."""
    top_k: int | None = None
    """Keep only the largest weights of each query, not renormalised; None keeps all."""
    empty_reads: EmptyReads = "skip"
    """'skip' leaves out a read that has nothing to read; 'keep' lets it see the query alone."""
    gather_batch: bool = True
    """In training under torch.distributed, a row's batch is the batch of all ranks together."""
    check_finite: bool = False
    """Raise on NaN or infinite features; costs a device sync per call."""

    def __post_init__(self) -> None:
        problems = [*self._wrong_types(), *self._wrong_values()]
        if not problems and self.empty_reads == "skip" and not self.reads_anything:
            problems = [
                "queue_size, slots_per_class and batch_attention are all off, so there is nothing "
                "to read; turn one on, or set empty_reads='keep' for the PARAM ablation"
            ]
        if problems:
            lines = "\n".join(f"  - {problem}" for problem in problems)
            raise ConfigError(f"HMAConfig cannot run:\n{lines}")

    def _wrong_types(self) -> list[str]:
        problems = []
        for name in LEAST:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                problems.append(f"{name} must be a whole number, got {value!r}")
        for name in ("dropout", "momentum"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                problems.append(f"{name} must be a number, got {value!r}")
        for name in ("batch_attention", "gather_batch", "check_finite"):
            if not isinstance(getattr(self, name), bool):
                problems.append(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.top_k is not None and (
            not isinstance(self.top_k, int) or isinstance(self.top_k, bool)
        ):
            problems.append(f"top_k must be a whole number or None, got {self.top_k!r}")
        return problems

    def _wrong_values(self) -> list[str]:
        problems = []
        for name, least in LEAST.items():
            value = getattr(self, name)
            if isinstance(value, int) and value < least:
                problems.append(f"{name} must be at least {least}, got {value}")
        for name in ("dropout", "momentum"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not 0 <= value < 1:
                problems.append(f"{name} must be at least 0 and below 1, got {value}")
        if isinstance(self.top_k, int) and self.top_k < 1:
            problems.append(f"top_k must be at least 1 or None, got {self.top_k}")
        if self.label_dim == 0 and self.readout == "label":
            problems.append("readout='label' needs a label_dim of at least 1, got 0")
        if self.context == "anchors" and not self.batch_attention:
            problems.append(
                "context='anchors' needs batch_attention=True: anchors stand in for the batch"
            )
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                problems.append(wrong_choice(name, getattr(self, name), allowed))
        return problems

    @property
    def reads_anything(self) -> bool:
        """Whether either read has something to look at besides the query itself."""
        return self.has_real_memory or self.has_synthetic_memory

    @property
    def has_real_memory(self) -> bool:
        """Whether there is a queue."""
        return self.queue_size > 0

    @property
    def has_synthetic_memory(self) -> bool:
        """Whether there are slots or neighbours."""
        return self.slots_per_class > 0 or self.batch_attention

    @classmethod
    def ablation(cls, row: str, **changes: Any) -> Self:
        """Return the configuration of one row of the paper's tables.

        Args:
            row: One of 'rma', 'abd', 'abd+syn', 'abd+rma', 'hma', 'param'.
            changes: Fields to set besides; what makes the row that row cannot be changed.

        Example:
            >>> HMAConfig.ablation("abd+syn", slots_per_class=8).queue_size
            0
        """
        if row not in ABLATIONS:
            raise ConfigError(wrong_choice("row", row, tuple(ABLATIONS)))
        fixed = ABLATIONS[row]
        clashes = [name for name in fixed if name in changes and changes[name] != fixed[name]]
        if clashes:
            wanted = ", ".join(f"{name}={fixed[name]!r}" for name in clashes)
            raise ConfigError(f"the row {row!r} fixes {wanted}; leave {', '.join(clashes)} out")
        return cls.from_dict(changes | fixed)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build a configuration from plain values; an unknown name is an error, not ignored."""
        known = tuple(field.name for field in fields(cls))
        unknown = [wrong_choice("field", name, known) for name in values if name not in known]
        if unknown:
            raise ConfigError("HMAConfig cannot run:\n" + "\n".join(f"  - {u}" for u in unknown))
        return cls(**values)


def wrong_choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Say which values ``name`` takes and which of them was probably meant."""
    close = get_close_matches(str(value), allowed, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}{hint}"
