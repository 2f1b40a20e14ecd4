"""What the page of a run shows: plain values and arrays, nothing of torch, nothing to compute."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hma.questions.audit import Audit
from hma.report.run.promises import Promises
from hma.report.run.suspect_rows import SuspectRows
from hma.report.run.trial import MEMORY, Candidate, Trial
from hma.report.statistics import Floats, Integers
from hma.targets import Target

KINDS = ("itself", "queue", "batch", "anchors", "slots")  # what is attended to, as it is shown
PointKind = Literal["test", "queue", "slot"]
POINT_KINDS: tuple[PointKind, ...] = ("test", "queue", "slot")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """How training went.

    Args:
        method: ``PLAIN`` or ``MEMORY``.
        epochs: Numbers of the epochs.
        train_loss: Mean training loss of each epoch; NaN where there is none.
        validation: Validation metric of each epoch, for each inference context.
        selected: Epoch whose weights were kept.
        rule: Why that one.
    """

    method: str
    epochs: tuple[int, ...]
    train_loss: tuple[float, ...]
    validation: Mapping[str, tuple[float, ...]]
    selected: int | None
    rule: str


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What the real memory holds.

    Args:
        size: Rows it can hold.
        rows: Rows it holds.
        per_class: Rows of each group, ``(C,)``.
        balance: Evenness of the groups, 1 is even and 0 one group only.
        staleness: Relative distance of stored features from today's, one number for each row
            that was compared; None where no row was.
    """

    size: int
    rows: int
    per_class: Integers
    balance: float
    staleness: Floats | None


@dataclass(frozen=True, kw_only=True)
class Slots:
    """What became of the synthetic memory.

    Args:
        per_class: Slots of each class.
        distinct: Different ones among them, ``(C,)``.
        used: Ones that draw at least a tenth of an even share, ``(C,)``; None if unknown.
        usage: Share of the attention on slots that each draws, ``(S,)``; None if unknown.
        classes: Class of each slot, ``(S,)``.
    """

    per_class: int
    distinct: Integers
    used: Integers | None
    usage: Floats | None
    classes: Integers


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Where the predictions of one context looked.

    Args:
        context: Inference context.
        rows: Test rows explained.
        overall: Mean share of each of ``KINDS``, ``(5,)``.
        by_class: The same over the rows answered as each class, ``(C, 5)``; NaN without rows.
        same_class: For 'queue' and 'slots', the part of the attention on them that goes to the
            class of the answer, and the part that an even look would give it.
    """

    context: str
    rows: int
    overall: Floats
    by_class: Floats
    same_class: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A training row that predictions look at.

    Args:
        text: What it is: a file name, a text, a row's values.
        picture: PNG of an image row.
        label: Its class.
        share: Part of the attention on the queue that it draws.
    """

    text: str
    picture: bytes | None
    label: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Attended:
    """The training rows of one class, or for one answer, that are looked at most.

    Args:
        label: The class.
        rows: Rows of that class in the queue, or test rows answered so.
        examples: The most attended first.
    """

    label: str
    rows: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class HeldRow:
    """A row that the memory holds.

    Args:
        id: Its sample id.
        label: Its class.
        share: Part of the attention on the queue that it draws.
        text: What it is.
        where: Where it came from.
    """

    id: int
    label: str
    share: float
    text: str
    where: str


@dataclass(frozen=True, kw_only=True)
class MemoryChange:
    """A version of the memory.

    Args:
        number: Its number.
        time: When.
        what: What was done.
        rows: Rows in the memory afterwards.
        scores: What it did, a line for each kind of rows.
        remains: What of forgotten rows is left in weights.
    """

    number: int
    time: str
    what: str
    rows: int
    scores: tuple[str, ...]
    remains: str


@dataclass(frozen=True, kw_only=True)
class Map:
    """Points of high dimension laid out on paper.

    Args:
        title: What is shown.
        places: Coordinates, ``(P, 2)``.
        kinds: Place in ``POINT_KINDS`` of each point, ``(P,)``.
        classes: Class id of each point, ``(P,)``; -1 where unknown.
    """

    title: str
    places: Floats
    kinds: Integers
    classes: Integers


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a method took."""

    method: str
    seconds: float | None
    epochs: int
    epoch_seconds: float | None
    peak_memory_bytes: int | None
    parameters: int | None


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Everything the page shows.

    Args:
        title: Name of the run, such as the task's.
        kind: What a row is: 'table', 'image', 'graph' or 'text'.
        target: What a label is.
        classes: Names of the classes in the order of their ids, of several labels, or of the
            number.
        groups: What rows are counted by and slots stand for: the classes, no and yes of each
            label, or ranges of the number.
        metric: Metric that the epoch was selected by and the verdict is about.
        tests: Test sets, the one of the headline first.
        curves: Training of each method.
        queue, slots: State of the memories; None where the model has none.
        attention: Where predictions looked, for each context.
        by_class: Most attended training rows of each group.
        by_answer: Most attended training rows of any class, for each answer.
        held: Rows of the memory, those that draw most attention first.
        version: Which version of the memory answers, in a line; empty where it is as trained.
        changes: Every version of the memory after training.
        promises: What coverages came to on the first test set.
        maps: t-SNE of slots and features.
        rows: Number of rows of each split.
        splits: Rows of each group in each split, ``(C,)``.
        facts: How the splits came about, as flat names and values.
        options: Resolved options of each method, as flat names and values.
        provenance: Versions, commit, fingerprint, seed and the like.
        costs: Seconds and memory of each method.
        resamples: Draws of the bootstrap.
        deployed: Which method answers new rows, and why.
        candidates: Everything that was trained, with its share of the mixture.
        audits: Whether the memory is read, by test set.
        suspects: Stored rows whose labels may be wrong; None where that was not asked.
        notes: What a reader must know before believing the numbers.
    """

    title: str
    kind: str
    target: Target
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    metric: str
    tests: tuple[Trial, ...]
    curves: tuple[Curve, ...] = ()
    queue: Queue | None = None
    slots: Slots | None = None
    attention: tuple[Attention, ...] = ()
    by_class: tuple[Attended, ...] = ()
    by_answer: tuple[Attended, ...] = ()
    held: tuple[HeldRow, ...] = ()
    version: str = ""
    changes: tuple[MemoryChange, ...] = ()
    promises: Promises | None = None
    maps: tuple[Map, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, Integers] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    costs: tuple[Cost, ...] = ()
    resamples: int = 0
    deployed: str = ""
    candidates: tuple[Candidate, ...] = ()
    audits: Mapping[str, Audit] = field(default_factory=dict)
    suspects: SuspectRows | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.tests:
            raise ValueError("tests must hold at least one test set, got none")
        if not any(result.method == MEMORY for result in self.tests[0].results):
            raise ValueError(f"tests[0] must hold a result of {MEMORY!r}, got none")
