"""What the report of a table says, in plain numbers; how they look is decided elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hma.paper.results import Failure
from hma.report.pictures import Scene
from hma.report.table.step_costs import StepCosts

Place = tuple[str, str]
"""A task and a row."""


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; one seed has no deviation."""

    mean: float
    std: float | None
    count: int


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A row against the baseline over the seeds that both have.

    Args:
        pairs: Number of those seeds.
        difference: Mean of row minus baseline.
        low, high: Ends of the 95% bootstrap interval of that mean; None of a single pair.
        p: Of Wilcoxon's signed-rank test, two-sided, not corrected.
        p_holm: Corrected after Holm for the comparisons of the same task.
    """

    pairs: int
    difference: float
    low: float | None
    high: float | None
    p: float
    p_holm: float


@dataclass(frozen=True)
class EdgeHits:
    """How often the edges that count for a row are those that the label is made of.

    Args:
        measured: Share in percent, over seeds.
        over_chance: Beside as many edges drawn at random.
        over_baseline: Beside the baseline; None of the baseline itself.
    """

    measured: Spread
    over_chance: Paired
    over_baseline: Paired | None


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What thresholds promised and kept, over seeds; shares in percent.

    Args:
        asked: The coverage.
        sets: Rows whose set of labels holds theirs.
        set_size: Labels in a set.
        accepted: Rows of known classes that are not called unknown.
        rejected: Rows of other classes that are.
        sets_within: Seeds whose scores of labels lie in the interval of the promise.
        accepted_within: Seeds whose accepted rows do.
    """

    asked: float
    sets: Spread
    set_size: Spread
    accepted: Spread
    rejected: Spread
    sets_within: int
    accepted_within: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row on a task.

    Args:
        wanted: Number of seeds asked for.
        scores: Seed -> score in the row's own context, mean over the test splits.
        measured: The same over seeds; None if there is none.
        published: Mean and standard deviation in the paper, if it prints them.
        difference: Measured minus published.
        paired: Against the baseline; None for the baseline itself and without common seeds.
        context: What rows see at test in ``measured``.
        contexts: Every context that was measured, ``context`` first.
        splits: Every test split, in ``context``.
        failed: Seeds that failed at the last try.
        best: Whether no other row has a better mean on the task.
    """

    wanted: int
    scores: Mapping[int, float]
    measured: Spread | None
    published: tuple[float, float] | None
    difference: float | None
    paired: Paired | None
    context: str | None
    contexts: Mapping[str, Spread]
    splits: Mapping[str, Spread]
    failed: tuple[int, ...]
    best: bool


@dataclass(frozen=True)
class Average:
    """A row over all tasks of a group; what has a hole has no average.

    Args:
        measured: Over seeds, each averaged over the tasks; None if a task or a seed is missing.
        published: Mean of the published means; None if one is missing.
        difference: Measured minus published.
    """

    measured: Spread | None
    published: float | None
    difference: float | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tasks that belong together: a curve of a figure, or all of a table.

    Args:
        name: Of the curve; empty for a table.
        tasks: In order.
        labels: The tasks without what the name of the curve says already.
        averages: By row; empty for a single task.
    """

    name: str
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    averages: Mapping[str, Average]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a row took: mean seconds and largest peak of memory over its records."""

    records: int
    wanted: int
    failed: int
    seconds: float | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """What whole runs deploy on a task, against their candidates, in one metric.

    Args:
        measured: The deployed model over seeds.
        candidates: The same of each candidate that all seeds have.
        shares: What each of them has of the deployed model, mean over seeds.
        best_simple: The simple candidate with the best mean; None without one.
        difference: Deployed minus best simple, mean over seeds.
        seeds_error: Standard error of that mean over the seeds, paired; None of a single one.
        rows_error: The same over the test rows of all seeds, paired row by row.
        sign: 1 where a larger score is better, else -1.
    """

    measured: Spread
    candidates: Mapping[str, Spread]
    shares: Mapping[str, float]
    best_simple: str | None
    difference: float | None
    seeds_error: float | None
    rows_error: float | None
    sign: int

    def holds(self, error: float | None) -> bool | None:
        """Tell whether the deployed model is within one error of the best simple row, or better.

        None where there is nothing to compare with, or no error is known and it is worse.
        """
        if self.difference is None:
            return None
        ahead = self.sign * self.difference
        if error is None:
            return True if ahead >= 0 else None
        return ahead + error >= 0


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A row of a suite over its tasks.

    Args:
        rank: Mean over tasks, 1 for the best.
        ahead, behind: Tasks on which the first row is ahead of this one and behind it.
        p: Of Wilcoxon's signed-rank test of the first row against this one over tasks.
        p_holm: Corrected after Holm for the rows.
        harmed: Tasks on which it is behind the baseline by more than one standard error.
    """

    rank: float
    ahead: int | None
    behind: int | None
    p: float | None
    p_holm: float | None
    harmed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The rows of a suite, the best mean rank first.

    Args:
        first: The row that the others are compared with.
        baseline: The row that none should fall behind on any task.
        tasks: Those that all rows were measured on.
        critical: How far mean ranks must lie apart by Nemenyi's test at 0.05.
        rows: By name.
    """

    first: str
    baseline: str
    tasks: tuple[str, ...]
    critical: float
    rows: Mapping[str, Ranked]


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """A table as far as it is measured.

    Args:
        key, title, metric, baseline: As the table has them.
        budget, budget_what: Name of the budget and what it is.
        seeds: The seeds asked for.
        methods: Its rows, each with a few words on it.
        groups: Its tasks.
        entries: By task and row; a pair that was not asked for is not there.
        costs: By row.
        cells: Number of cells asked for.
        records: Number of them that are measured.
        retired: Number of the others whose method left the package, so that none measures them.
        failures: By name of the cell.
        command: Measures what is missing.
        outside: Tasks and rows of the table that were not asked for.
        commits: Commit of the source -> records made with it.
        versions: Package -> its versions, each with the number of records.
        notes: What a reader of the numbers must know.
        warnings: What is wrong with the records as a whole.
        deployments: Of whole runs: metric -> task -> what is deployed against its candidates.
        ranks: Of a suite that compares ranks over tasks.
        beside: Other metrics of the table -> by task and row, in the row's own context.
        selected_by_metric: Whether the metric selects epochs; rows with work of their own differ.
        permuted: Change of the score, by task and row, where labels of stored rows were permuted.
        edge_hits, coverages: By task, test split and row, and by task and row, where measured.
        scenes: Its pictures.
        step_costs: By task, of a table that compares costs.
    """

    key: str
    title: str
    metric: str
    baseline: str
    budget: str
    budget_what: str
    seeds: tuple[int, ...]
    methods: Mapping[str, str]
    groups: tuple[Group, ...]
    entries: Mapping[Place, Entry]
    costs: Mapping[str, Cost]
    cells: int
    records: int
    failures: Mapping[str, Failure]
    command: str
    outside: tuple[str, ...]
    commits: Mapping[str, int]
    versions: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    deployments: Mapping[str, Mapping[str, Deployed]] = field(default_factory=dict)
    ranks: Ranks | None = None
    beside: Mapping[str, Mapping[Place, Spread]] = field(default_factory=dict)
    selected_by_metric: bool = True
    permuted: Mapping[Place, Spread] = field(default_factory=dict)
    edge_hits: Mapping[tuple[str, str, str], EdgeHits] = field(default_factory=dict)
    coverages: Mapping[Place, Coverage] = field(default_factory=dict)
    scenes: tuple[Scene, ...] = ()
    step_costs: Mapping[str, StepCosts] = field(default_factory=dict)
    retired: int = 0

    @property
    def has_published(self) -> bool:
        """Whether the paper prints any of its scores."""
        return any(entry.published is not None for entry in self.entries.values())

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the test splits, over all records."""
        return tuple(dict.fromkeys(s for entry in self.entries.values() for s in entry.splits))

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Rows without a record or a failure on any task; none of a table without records."""
        if not self.records:
            return ()
        tried = {method for (_, method), e in self.entries.items() if e.scores or e.failed}
        return tuple(method for method in self.methods if method not in tried)

    @property
    def shown(self) -> tuple[str, ...]:
        """Rows that have a number to show, measured or published."""
        printed = {method for (_, method), e in self.entries.items() if e.published is not None}
        return tuple(m for m in self.methods if m in printed or m not in self.unmeasured)
