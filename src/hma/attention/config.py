"""Every number that shapes the paper's memory."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from hma.errors import wrong_choice
from hma.options.config import (
    POSITIVE,
    SHARE,
    WEIGHT,
    Config,
    ConfigError,
    Rule,
    SlotInit,
    at_least,
)

QueueLabels = Literal["live", "frozen"]
Scale = Literal["head", "token"]
Readout = Literal["all", "features", "label"]
Context = Literal["batch", "alone", "anchors"]
EmptyReads = Literal["skip", "keep"]
Stages = Literal["two", "one"]
Attention = Literal["exact", "linear"]

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


@dataclass(frozen=True, kw_only=True)
class HMAConfig(Config):
    """Sizes of the paper's two memories and of the reads over them.

    Example:
        >>> HMAConfig(num_heads=0, context="alnoe")
        Traceback (most recent call last):
        hma.options.config.ConfigError: HMAConfig cannot run:
          - num_heads must be at least 1, got 0
          - context must be one of 'batch', 'alone', 'anchors', got 'alnoe'; did you mean 'alone'?
    """

    queue_size: int = 512
    """Rows kept in the real memory; 0 turns it off."""
    slots_per_class: int = 16
    """Learnable rows for each class; 0 leaves attention between datapoints alone."""
    label_dim: int = 64
    """Width of the label part of a token; 0 leaves labels out of the tokens."""
    num_heads: int = 4
    """Attention heads in both reads; must divide feature_dim + label_dim, or width."""
    width: int | None = None
    """Tokens are narrowed to this width to be read, and the result is widened and added to them,
    from 0 on; 256 costs 3 M weights at most beside 2,048 features and 10 classes. None reads whole
    tokens."""
    feed_forward: int = 4
    """The hidden layer of a read is as many times as wide as what is read."""
    stages: Stages = "two"
    """'two' reads the queue, then slots and batch; 'one' reads all in one softmax."""
    attention: Attention = "exact"
    """'linear' reads memories through random features, whatever their size."""
    linear_features: int = 256
    """For 'linear': random features of each read; the more, the nearer to 'exact'."""
    dropout: float = 0.1
    """Dropout on hidden activations, never on attention weights."""
    momentum: float = 0.999
    """Share of itself the momentum encoder keeps per step; 0 writes the backbone's own features."""
    momentum_warmup: bool = False
    """At its t-th step, from 0, the momentum encoder keeps (1 + t) / (10 + t) of itself as long as
    that is less than momentum."""
    batch_attention: bool = True
    """Whether rows see the others of their batch."""
    alone_share: float = 0.0
    """Share of the training batches whose rows do not see each other, so that context 'alone' is
    learned too."""
    slot_init: SlotInit = "normal"
    """Start of the slots: 'normal' is N(0, 0.02), 'zeros' the released code's. From the training
    rows of each class: 'samples', 'class_means', 'kmeans' or 'distilled', rows with the class's
    statistics; until training or set_slots gives rows, such slots are 'normal'."""
    contrastive: float = 0.0
    """Weight of a supervised contrastive loss over batch, stored rows and slots; 0 leaves it
    out."""
    contrast_temperature: float = 0.1
    """What similarities are divided by in the contrastive loss."""
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

    numbers: ClassVar[dict[str, Rule]] = {
        "queue_size": at_least(0),
        "slots_per_class": at_least(0),
        "label_dim": at_least(0),
        "num_heads": at_least(1),
        "width": at_least(1, " or None"),
        "feed_forward": at_least(1),
        "linear_features": at_least(1),
        "dropout": SHARE,
        "momentum": SHARE,
        "alone_share": SHARE,
        "contrastive": WEIGHT,
        "contrast_temperature": POSITIVE,
        "top_k": at_least(1, " or None"),
    }

    @property
    def has_real_memory(self) -> bool:
        """Whether there is a queue."""
        return self.queue_size > 0

    @property
    def has_synthetic_memory(self) -> bool:
        """Whether there are slots or neighbours."""
        return self.slots_per_class > 0 or self.batch_attention

    @property
    def reads_anything(self) -> bool:
        """Whether either read has something to look at besides the query itself."""
        return self.has_real_memory or self.has_synthetic_memory

    def conflicts(self) -> list[str]:
        """Return which fields do not go together."""
        problems = []
        if self.label_dim == 0 and self.readout == "label":
            problems.append("readout='label' needs a label_dim of at least 1, got 0")
        if self.context == "anchors" and not self.batch_attention:
            problems.append(
                "context='anchors' needs batch_attention=True: anchors stand in for the batch"
            )
        if self.attention == "linear" and self.top_k is not None:
            problems.append(
                "attention='linear' has no weights of single rows to choose from, got "
                f"top_k={self.top_k}; leave it out, or take attention='exact'"
            )
        if not self.reads_anything and self.empty_reads == "skip":
            problems.append(
                "queue_size, slots_per_class and batch_attention are all off, so there is nothing "
                "to read; turn one on, or set empty_reads='keep' for the PARAM ablation"
            )
        return problems

    @classmethod
    def ablation(cls, row: str, **changes: Any) -> Self:
        """Return the configuration of one row of the paper's tables.

        | row | queue | slots | neighbours | blocks |
        |---|---|---|---|---|
        | 'hma' | yes | yes | yes | 2 |
        | 'rma' | yes | no | no | 1 |
        | 'abd' | no | no | yes | 1 |
        | 'abd+syn' | no | yes | yes | 1 |
        | 'abd+rma' | yes | no | yes | 2 |
        | 'param' | no | no | no, and no label embedding | 2 |

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
