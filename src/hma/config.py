"""Every number that shapes an HMA module, checked once, where it is written down."""

from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from hma.config_checks import problems_of
from hma.errors import wrong_choice

SlotInit = Literal["normal", "zeros", "samples", "class_means", "kmeans", "distilled"]
QueueLabels = Literal["live", "frozen"]
Scale = Literal["head", "token"]
Readout = Literal["all", "features", "label"]
Context = Literal["batch", "alone", "anchors"]
EmptyReads = Literal["skip", "keep"]
Similarity = Literal["dot", "distance"]
Vote = Literal["mixed", "added", "gated", "alone"]
KeyView = Literal["inputs", "features"]
Stages = Literal["two", "one"]
Attention = Literal["exact", "linear"]

PAPER: dict[str, Any] = {"similarity": "dot", "queue_size": 512, "slots_per_class": 16}

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

    By default the rows nearest to a query vote for their labels; the paper's design is
    :meth:`paper`.

    Example:
        >>> HMAConfig(num_heads=0, context="alnoe")
        Traceback (most recent call last):
        hma.config.ConfigError: HMAConfig cannot run:
          - num_heads must be at least 1, got 0
          - context must be one of 'batch', 'alone', 'anchors', got 'alnoe'; did you mean 'alone'?
    """

    similarity: Similarity = "distance"
    """'distance' lets the rows that are nearest to a query vote for their labels; 'dot' is the
    paper's attention over both memories."""
    queue_size: int | None = None
    """Real-memory rows kept; 0 turns the real memory off. None keeps a row for every sample, for
    'distance'."""
    slots_per_class: int = 0
    """Learnable rows for each class."""
    vote: Vote = "mixed"
    """For 'distance': 'mixed' learns the keys after backbone and head, and answers with the
    probabilities of both, each with the share that held-out rows give it. The others train keys
    and backbone together: votes are 'added' to the head's logits, 'gated' (added through a gate
    that starts at 0), or answer 'alone'."""
    values: bool = False
    """For votes that are 'added' or 'gated': rows near a query add to the features of the head too,
    through a gate that starts at 0: by their labels, and by where they lie from it."""
    key_view: KeyView = "inputs"
    """For 'distance': keys are made of the inputs, where the backbone offers a view of them or a
    ``key_encoder`` is given, or of the 'features' that the head reads."""
    key_dim: int = 128
    """For 'distance': width of the keys that distances are measured between."""
    key_dropout: float = 0.3
    """For 'distance': share of the features that a key does without in training."""
    candidates: int | None = 512
    """For 'distance': stored rows drawn for a training step; None takes all."""
    leave_self_out: bool = True
    """For 'distance': in training no row reads its own stored copy, which needs sample ids."""
    label_dim: int = 64
    """For 'dot': width of the label part of a token; 0 leaves labels out of the tokens."""
    num_heads: int = 4
    """For 'dot': attention heads in both reads; must divide feature_dim + label_dim, or width."""
    width: int | None = None
    """For 'dot': tokens are narrowed to this width to be read, and the result is widened and added
    to them, from 0 on; 256 costs 3 M weights at most beside 2,048 features and 10 classes. None
    reads whole tokens."""
    feed_forward: int = 4
    """For 'dot': the hidden layer of a read is as many times as wide as what is read; for values
    as many times as wide as a key."""
    stages: Stages = "two"
    """For 'dot': 'two' reads the queue, then slots and batch; 'one' reads all in one softmax."""
    attention: Attention = "exact"
    """For 'dot': 'linear' reads memories through random features, whatever their size."""
    linear_features: int = 256
    """For 'linear': random features of each read; the more, the nearer to 'exact'."""
    dropout: float = 0.1
    """For 'dot' and for values: dropout on hidden activations, never on attention weights."""
    momentum: float = 0.999
    """For 'dot': share of itself the momentum encoder keeps per step; 0 writes the backbone's own
    features."""
    momentum_warmup: bool = False
    """For 'dot': at its t-th step, from 0, the momentum encoder keeps (1 + t) / (10 + t) of itself
    as long as that is less than momentum."""
    batch_attention: bool = True
    """Whether rows see the others of their batch; for 'distance' in training only."""
    alone_share: float = 0.0
    """For 'dot': share of the training batches whose rows do not see each other, so that 'alone'
    is learned too."""
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
    """For 'dot': 'live' embeds the stored class ids at every read; 'frozen' keeps the value of
    write time."""
    scale: Scale = "head"
    """For 'dot': scores are divided by the root of the head's width, or of the whole 'token'."""
    readout: Readout = "all"
    """What the linear head sees of the final token."""
    context: Context = "batch"
    """For 'dot': what a row sees of others in eval mode: its batch, nobody, or the stored
    anchors; for 'distance' it is always nobody."""
    top_k: int | None = None
    """For 'dot': keep only the largest weights of each query, not renormalised; None keeps all."""
    empty_reads: EmptyReads = "skip"
    """For 'dot': 'skip' leaves out a read that has nothing to read; 'keep' lets it see the query
    alone."""
    gather_batch: bool = True
    """In training under torch.distributed, a row's batch is the batch of all ranks together."""
    check_finite: bool = False
    """Raise on NaN or infinite features; costs a device sync per call."""

    def __post_init__(self) -> None:
        problems = problems_of(self)
        if problems:
            lines = "\n".join(f"  - {problem}" for problem in problems)
            raise ConfigError(f"HMAConfig cannot run:\n{lines}")

    @property
    def votes(self) -> bool:
        """Whether rows vote by distance, instead of being attended to."""
        return self.similarity == "distance"

    @property
    def mixes(self) -> bool:
        """Whether the vote is learned apart and mixed with what the head says."""
        return self.votes and self.vote == "mixed"

    @property
    def sees_batch(self) -> bool:
        """Whether a prediction may depend on the other rows of its batch."""
        return self.batch_attention and not self.votes

    @property
    def reads_anything(self) -> bool:
        """Whether either read has something to look at besides the query itself."""
        return self.has_real_memory or self.has_synthetic_memory

    @property
    def has_real_memory(self) -> bool:
        """Whether there is a queue."""
        return self.queue_size != 0

    @property
    def has_synthetic_memory(self) -> bool:
        """Whether there are slots or neighbours."""
        return self.slots_per_class > 0 or self.batch_attention

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Return the paper's design: attention over a queue, then over slots and the batch."""
        return cls.from_dict(PAPER | changes)

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
        return cls.paper(**changes | fixed)

    @classmethod
    def from_before(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return values that were written when there were fewer fields, with what they meant."""
        values = {"similarity": "dot"} | values
        return values if values["similarity"] == "dot" else {"key_view": "features"} | values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build a configuration from plain values; an unknown name is an error, not ignored."""
        known = tuple(field.name for field in fields(cls))
        unknown = [wrong_choice("field", name, known) for name in values if name not in known]
        if unknown:
            raise ConfigError("HMAConfig cannot run:\n" + "\n".join(f"  - {u}" for u in unknown))
        return cls(**values)
