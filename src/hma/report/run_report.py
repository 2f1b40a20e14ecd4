"""What the page of a run shows, and the sections that it is made of."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from hma.metrics.resampling import Interval
from hma.report.statistics import Calibration, Floats, Integers
from hma.targets import Number, Target, YesNo

if TYPE_CHECKING:
    from markupsafe import Markup

    from hma.report.run_facts import RunFacts

PLAIN, MEMORY, MIXTURE, DEPLOYED = "plain backbone", "memory", "mixture", "deployed"
SERIES = {
    PLAIN: ("plain",),
    MEMORY: ("memory", "memory second", "memory third"),
    MIXTURE: ("mixture",),
    DEPLOYED: ("deployed",),
}
"""Classes of colour and dash in the style sheet, for each method's contexts."""


def colour_of(method: str) -> str:
    """Return the colour of a method, as the style sheet has it for light and dark pages."""
    return f"var(--{method if method in (MEMORY, MIXTURE) else 'plain'})"


def style_of(method: str, place: int = 0) -> str:
    """Return the style of a method's context at ``place`` among its contexts."""
    styles = SERIES.get(method, ("simple",))
    return f"series {styles[min(place, len(styles) - 1)]}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one method came to on a test set, in one inference context.

    Args:
        method: ``PLAIN``, ``MEMORY``, ``MIXTURE`` or the name of another candidate.
        context: Inference context, such as 'batch' or 'alone'.
        scores: Metric by name, the headline first; over several seeds their means.
        by_seed: Metric by name -> its score with each seed.
    """

    method: str
    context: str
    scores: Mapping[str, Interval]
    by_seed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


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
    """A method in one context against another method, on the same rows.

    Args:
        context: Inference context of the method.
        differences: The method minus the base for each metric, by the paired bootstrap.
        method: Which method.
        base: The other method.
        only_plain, only_other: Rows that only one of them gets right; of classes only.
        p_value: McNemar's exact test on those rows; None where rows are not right or wrong.
        p_over_seeds: Paired t-test over seeds of the first metric; None where there is one.
    """

    context: str
    differences: Mapping[str, Interval]
    method: str = MEMORY
    base: str = PLAIN
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
    """What simple baselines come to on the same rows: row -> metric -> value."""
    seed_rows: tuple[int, ...] = ()
    """Rows that were tested with each seed."""
    same_rows: bool = True
    """Whether every seed was tested on the same rows."""

    @property
    def named_results(self) -> list[tuple[Result, str, str]]:
        """Each result with its name, in its context where it has several, and its style."""
        count, seen = Counter(result.method for result in self.results), Counter[str]()
        found = []
        for r in self.results:
            name = f"{r.method}, {r.context}" if count[r.method] > 1 else r.method
            found.append((r, name, style_of(r.method, seen[r.method])))
            seen[r.method] += 1
        return found

    @property
    def main_results(self) -> list[tuple[Result, str, str]]:
        """The results that are looked at closely: the two networks and what is deployed."""
        looked = (PLAIN, MEMORY, self.deployed)
        return [one for one in self.named_results if one[0].method in looked]

    @property
    def own(self) -> list[tuple[Result, str]]:
        """Plain backbone, memory and what is deployed, each in its own context and style."""
        wanted = dict.fromkeys((PLAIN, MEMORY, self.deployed))
        found = {method: self.result(method) for method in wanted}
        return [(one, style_of(method)) for method, one in found.items() if one is not None]

    def result(self, method: str) -> Result | None:
        """Return the result of a method in its own context; None without one."""
        return next((result for result in self.results if result.method == method), None)

    def comparison(self, method: str, base: str = PLAIN) -> Comparison | None:
        """Return a method in its own context against another; None where there is none."""
        both = (method, base)
        return next((c for c in self.comparisons if (c.method, c.base) == both), None)


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
        parts: What each section shows, by its key.
        version: Which version of the memory answers, in a line; empty where it is as trained.
        rows: Number of rows of each split.
        splits: Rows of each group in each split, ``(C,)``.
        options: Resolved options of each method, as flat names and values.
        provenance: Versions, commit, fingerprint, seed and the like.
        resamples: Draws of the bootstrap.
        deployed: Which method answers new rows, and why.
        candidates: Everything that was trained, with its share of the mixture.
        notes: What a reader must know before believing the numbers.
    """

    title: str
    kind: str
    target: Target
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    metric: str
    tests: tuple[Trial, ...]
    parts: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    rows: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, Integers] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    resamples: int = 0
    deployed: str = ""
    candidates: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.tests:
            raise ValueError("tests must hold at least one test set, got none")
        if self.tests[0].result(MEMORY) is None:
            raise ValueError(f"tests[0] must hold a result of {MEMORY!r}, got none")

    @property
    def context(self) -> str:
        """The memory's own inference context."""
        found = self.tests[0].result(MEMORY)
        assert found is not None
        return found.context

    @property
    def labels_are(self) -> str:
        """What is shown of labels: 'number', 'labels' for yes and no, or 'classes'."""
        kinds = {Number: "number", YesNo: "labels"}
        return kinds.get(type(self.target), "classes")

    @property
    def group(self) -> str:
        """What a group of rows is called."""
        return "class" if self.groups == self.classes else "group"


class Section(NamedTuple):
    """A section of the page of a run: gathers what it shows, and draws it.

    Args:
        key: Its address on the page, and its name in ``RunReport.parts``.
        name: In the navigation.
        title: Above it.
        gather: From what is known of a run to what is shown, in plain values; what is empty or
            None leaves the section out.
        draw: From the report and what was gathered to HTML.
    """

    key: str
    name: str
    title: str
    gather: "Callable[[RunFacts], Any]"
    draw: "Callable[[RunReport, Any], Markup]"
