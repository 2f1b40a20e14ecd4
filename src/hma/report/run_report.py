"""What the page of a run shows: plain values and arrays, nothing of torch, nothing to compute."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hma.metrics.resampling import Interval
from hma.questions.audit import Audit
from hma.report import numbers
from hma.report.statistics import Calibration, Floats, Integers
from hma.targets import Target

PLAIN, MEMORY, MIXTURE = "plain backbone", "memory", "mixture"
KINDS = ("itself", "queue", "batch", "anchors", "slots")  # what is attended to, as it is shown
PointKind = Literal["test", "queue", "slot"]
POINT_KINDS: tuple[PointKind, ...] = ("test", "queue", "slot")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one method came to on a test set, in one inference context.

    Args:
        method: ``PLAIN``, ``MEMORY``, ``MIXTURE`` or the name of another candidate.
        context: Inference context, such as 'batch' or 'alone'.
        scores: Metric by name, the headline first.
    """

    method: str
    context: str
    scores: Mapping[str, Interval]


@dataclass(frozen=True, kw_only=True)
class ClassResult(Result):
    """The same of classes.

    Args:
        confusion: Rows of each true class (first axis) called each class, ``(C, C)``.
        calibration: How far its probabilities can be trusted.
    """

    confusion: Integers
    calibration: Calibration


@dataclass(frozen=True, kw_only=True)
class LabelsResult(Result):
    """The same of several yes/no labels.

    Args:
        yes, no: Rows whose label is known to be so, ``(T,)``.
        auroc: Area under the ROC curve of each label; NaN where all its rows are alike.
    """

    yes: Integers
    no: Integers
    auroc: tuple[Interval, ...]


@dataclass(frozen=True, kw_only=True)
class NumberResult(Result):
    """The same of a number.

    Args:
        true, said: The numbers and what was said of them, ``(N,)``.
    """

    true: Floats
    said: Floats


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A method in one context against the plain backbone, on the same rows.

    Args:
        context: Inference context of the method.
        differences: The method minus plain for each metric, by the paired bootstrap.
        method: Which method.
        only_plain, only_other: Rows that only one of them gets right; of classes only.
        p_value: McNemar's exact test on those rows; None where rows are not right or wrong.
        p_over_seeds: Paired t-test over seeds; None where there is one.
    """

    context: str
    differences: Mapping[str, Interval]
    method: str = MEMORY
    only_plain: int = 0
    only_other: int = 0
    p_value: float | None = None
    p_over_seeds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A test set and what came of it; the first context of a method is its own."""

    name: str
    rows: int
    results: tuple[Result, ...]
    comparisons: tuple[Comparison, ...]
    deployed: str = MEMORY
    """The method that answers new rows."""
    unclaimed: str = ""
    """Why nothing is claimed of it; empty where something may be."""
    simple: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What simple methods come to on the same rows: row -> metric -> value."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A method that was trained, or the mixture of them.

    Args:
        method: Its name.
        share: What it counts in the mixture; None for one that never answers.
        validation_loss: On the rows that decided the shares; None if it is not known.
    """

    method: str
    share: float | None
    validation_loss: float | None


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A coverage that was asked for, and what the test rows came to.

    Args:
        asked: The coverage.
        interval: Between what shares of test rows it lies in 95 of 100 draws, if these are drawn
            as the validation rows are.
        covered: Share of rows whose set or interval holds what is true; None without sets.
        size: Mean number of labels in a set, or width of the interval; None without sets.
        unknown: Share of rows that are called unknown; None where none can be.
    """

    asked: float
    interval: tuple[float, float]
    covered: float | None
    size: float | None
    unknown: float | None


@dataclass(frozen=True, kw_only=True)
class Promises:
    """Several coverages of the same rows.

    Args:
        test: Name of the test set.
        validation_rows, test_rows: Rows that thresholds are of, and rows they were tried on.
        size_is: What ``Promise.size`` is, in words.
        levels: The least coverage first.
    """

    test: str
    validation_rows: int
    test_rows: int
    size_is: str
    levels: tuple[Promise, ...]


@dataclass(frozen=True, kw_only=True)
class Against:
    """A row that speaks against the label of another.

    Args:
        id: Its sample id.
        label: Its own label.
        share: What it counts in the vote on the other.
        what: What it is.
    """

    id: int
    label: str
    share: float
    what: str

    def __str__(self) -> str:
        return f"{numbers.percent(self.share)} {self.label}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class SuspectRow:
    """A stored row and what all others say of its label.

    Args:
        id: Its sample id.
        label: As it was given.
        suggested: What the others vote for.
        sure: Their probability of that; NaN for a number.
        score: How far the label is from their answer; NaN where they cannot know.
        what: What the row is.
        where: Where it came from.
        against: The rows that speak most against the label, the strongest first.
        issue: Whether cleanlab takes the label for wrong; None where it was not asked.
    """

    id: int
    label: str
    suggested: str
    sure: float
    score: float
    what: str
    where: str
    against: tuple[Against, ...]
    issue: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SuspectRows:
    """Stored rows, the most suspicious label first.

    Args:
        rows: The first of them, or all.
        of: How many rows there are.
        unjudged: Rows whose label no other row has.
        issues: Labels that cleanlab takes for wrong; None where it was not asked.
        number: Whether labels are numbers.
    """

    rows: tuple[SuspectRow, ...]
    of: int
    unjudged: int
    issues: int | None = None
    number: bool = False

    @property
    def measure(self) -> str:
        """What the score is."""
        return "times the usual" if self.number else "doubt"

    @property
    def header(self) -> list[str]:
        """Names of the columns of a file."""
        asked = ["cleanlab"] if self.issues is not None else []
        names = ["id", "label", "suggested", "sure", self.measure, *asked]
        return [*names, "what", "where", "against"]

    def lines(self) -> list[list[str]]:
        """Return the cells of each row of a file."""
        return [
            [
                *(str(row.id), row.label, row.suggested, _cell(row.sure), _cell(row.score)),
                *([] if row.issue is None else ["wrong" if row.issue else ""]),
                *(row.what, row.where, " ".join(str(one.id) for one in row.against)),
            ]
            for row in self.rows
        ]

    def score_text(self, row: SuspectRow) -> str:
        """Return the score of a row for people."""
        if math.isnan(row.score):
            return "cannot be known"
        return numbers.times(row.score) if self.number else numbers.percent(row.score)

    def notes(self) -> list[str]:
        """Say what the list does not."""
        said = []
        if self.issues is not None:
            rows = numbers.counted(self.of, "row")
            said.append(f"cleanlab takes the labels of {self.issues} of {rows} for wrong")
        if self.unjudged:
            rows = numbers.counted(self.unjudged, "row")
            said.append(
                f"{rows} with a label that no other row has cannot be judged, and come last"
            )
        return said


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


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
