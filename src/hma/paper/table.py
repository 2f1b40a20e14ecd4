"""What a table of the paper is: tasks across, methods down, budgets to run it with."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from hma.attention.config import ABLATIONS, HMAConfig
from hma.data import Task
from hma.errors import UserError, wrong_choice
from hma.methods import Method, with_memory
from hma.methods.learner import BackboneFactory, Learner
from hma.metrics import METRICS
from hma.options.config import ConfigError
from hma.training import Progress, Recipe, Record

Published = tuple[float, float]
"""Mean and standard deviation as the paper prints them, in percent for shares."""
Measure = Callable[[Learner, Task], Mapping[str, Any]]
FULL = ("paper", "full")
"""The whole protocol of the paper, or of a suite that no paper has."""
TINY = "tiny"
"""A budget that only some tables have: a smaller backbone, on data that is at hand."""
BUDGETS = ("smoke", TINY, "small", *FULL)
"""How much of a protocol can be run, the least first."""
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
SLOT_MAP = "slot map"
"""Where the points of :class:`SlotMap` are among a record's ``measures``."""
ATTENTION_MAP = "attention map"
"""Where the shares of :class:`AttentionMap` are."""
WORDS = {
    "param": "the two blocks without memory and without neighbours",
    "rma": "real memory",
    "abd": "attention between datapoints",
    "abd+syn": "attention between datapoints and synthetic memory",
    "abd+rma": "attention between datapoints and real memory",
    "hma": "real and synthetic memory",
}


class Cell(NamedTuple):
    """One number of a table: a task, a method and a seed under a budget; safe in paths.

    Example:
        >>> print(Cell("F2", "small", "mlp-14", "HMA", 3))
        F2 small mlp-14/HMA seed 3
    """

    table: str
    budget: str
    task: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """Its name within its table, ``BUDGET/TASK/METHOD/SEED``."""
        return f"{self.budget}/{self.task}/{self.method}/{self.seed}"

    @property
    def path(self) -> PurePosixPath:
        """Where its files are, below a folder of results, without their suffix."""
        return PurePosixPath(self.table, self.name)

    def __str__(self) -> str:
        return f"{self.table} {self.budget} {self.task}/{self.method} seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A column: data, and the backbone that all methods share on it.

    Args:
        task: From a seed to the data.
        backbone: From a task to a fresh encoder; rows may give it keywords of their own.
        shown: As ``task``, to be looked at, where ``task`` has only features of the same rows.
    """

    task: Callable[[int], Task]
    backbone: BackboneFactory
    shown: Callable[[int], Task] | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a row with work of its own is given for a cell.

    Args:
        cell: Which number.
        problem: The column.
        settings: Of the row.
        recipe: How to train.
        folder: Where to work; one that is there already holds what was done before an interruption.
        shared: A folder that the row's other seeds on this task share.
        progress: Told how far it is.
    """

    cell: Cell
    problem: Problem
    settings: Mapping[str, Any]
    recipe: Recipe
    folder: Path
    shared: Path
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class Row:
    """A method of a table.

    Args:
        build: ``build(backbone, **settings)`` returns the method, which is trained and tested.
        work: Instead of ``build``: ``work(job)`` returns the record of a cell by itself. It can be
            interrupted, and called again it goes on from what is in its folder.
        settings: What the method is built with, in JSON values; goes into every record.
        recipe: Fields of the recipe that are this row's own.
        search: What ``hma search`` tries, by name of a setting or of a field of the recipe.
        what: The method in a few words.
        task: ``task(data, seed)`` returns the row's own view of the column's data, such as with
            environments; None for the data as it is.
        measure: ``measure(learner, task)`` returns what else than scores is measured, in JSON
            values, for the record's ``measures``; the learner has the weights that are tested.
        keep_weights: Whether the weights are kept beside the record.
        retired: Instead of ``build``: the commit at which a method was measured that is no longer
            part of the package. Its records are shown, and never made again.
        instead_of: Of a retired row: the row of today whose published numbers it is compared with
            where that one is not measured.
    """

    build: Callable[..., Method] | None = None
    work: Callable[[Job], Record] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    what: str = ""
    task: Callable[[Task, int], Task] | None = None
    measure: Measure | None = None
    keep_weights: bool = False
    retired: str = ""
    instead_of: str = ""

    def changed(self, changes: Mapping[str, Any]) -> "Row":
        """Return the row with other settings; names that are no setting are of the recipe."""
        settings = {name: value for name, value in changes.items() if name in self.settings}
        recipe = {name: value for name, value in changes.items() if name not in self.settings}
        return replace(
            self, settings={**self.settings, **settings}, recipe={**self.recipe, **recipe}
        )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much of the protocol is run.

    Args:
        what: What is less than in the protocol, in a sentence; the whole of it in ``FULL`` ones.
        recipe: How every method is trained.
        seeds: Number of seeds, taken from the front of the table's.
        per_task, per_method: Fields of the recipe that differ by task, and by row.
        rows: Most rows of each split; None for all.
        tasks, methods: Patterns of what is run; ``*`` for all. ``TASK/METHOD`` among the methods
            is a row of some tasks only.
        problems: Columns that have other data or another backbone under this budget, by task.
        differs: Of a whole protocol: what is not the paper's all the same, such as other data, so
            that no number of it is a published one.
    """

    what: str
    recipe: Recipe
    seeds: int
    per_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    per_method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rows: int | None = None
    tasks: tuple[str, ...] = ("*",)
    methods: tuple[str, ...] = ("*",)
    problems: Mapping[str, Problem] = field(default_factory=dict)
    differs: str = ""


Kind = Literal["more", "no more", "no less", "seen"]
"""Of a claim: a row is better, is not, is no worse; or something is seen in a picture."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper that records can speak for or against.

    Tables that make the same claim are looked at together.

    Args:
        says: What the paper says.
        where: In which part of it.
        kind: What has to be so.
        rows: Each row, and the one that it is compared with; of tables.
        every: Whether it is said of every task, so that one task can refute it.
        seen: Of a picture: name of the number that checks it, for a sweep how its reading begins.
    """

    says: str
    where: str
    kind: Kind = "more"
    rows: tuple[tuple[str, str], ...] = ()
    every: bool = False
    seen: str = ""

    def on(self, *rows: tuple[str, str]) -> "Claim":
        """Return the claim for a table that calls the rows so."""
        return replace(self, rows=rows)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Rows that have one thing more each; the last of them is answered alone and in its batch.

    Args:
        plain: The backbone and a linear head.
        layer_norm: With a LayerNorm before the head; None where the table has no such row.
        param: The blocks of the memory, without memory and without neighbours.
        memory: With the paper's memories.
    """

    plain: str = "ERM"
    layer_norm: str | None = "LayerNorm"
    param: str = "PARAM"
    memory: str = "HMA"

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of its rows, from below."""
        found = (self.plain, self.layer_norm, self.param, self.memory)
        return tuple(name for name in found if name is not None)


@dataclass(frozen=True, kw_only=True)
class SlotMap:
    """Slots alone, and beside features of real rows, as points on a plane.

    Args:
        title: What it shows.
        rows: Rows of the table with such a measure, in order.
    """

    title: str
    rows: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AttentionMap:
    """Who looks at whom in the synthetic read: samples downwards, samples and slots across.

    Args:
        title: What it shows.
        rows: Rows of the table with such a measure, in order.
    """

    title: str
    rows: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SizeSweep:
    """Scores over the sizes of both memories: lines and a heat map, beside reference lines.

    Args:
        title: What it shows.
        sizes: Real memory and slots of a class -> the row of these sizes.
        references: Rows without a memory.
    """

    title: str
    sizes: Mapping[tuple[int, int], str]
    references: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> tuple[str, ...]:
        """All rows that it shows."""
        return (*self.sizes.values(), *self.references)


Picture = SlotMap | AttentionMap | SizeSweep
"""A new kind: a class here, and a file in ``hma/report/pictures/`` that turns records into it."""


@dataclass(frozen=True, kw_only=True)
class PublishedCost:
    """Figures of the paper for a row; None where it has none.

    Args:
        parameters: All weights.
        trainable: Those that train.
        mebibytes: Peak of memory.
        seconds: Of a training step.
        times_plain: Time of a whole run over that of the plain backbone.
        note: What a reader must know of them.
    """

    parameters: float | None = None
    trainable: float | None = None
    mebibytes: float | None = None
    seconds: float | None = None
    times_plain: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table or figure of the paper.

    Args:
        key: Short name, as in ``hma run KEY``.
        title: What it shows.
        problems: Its columns, by name of the task.
        rows: Its methods, by name.
        budgets: Under the names of ``BUDGETS``; ``TINY`` may be left out.
        baseline: The row that others are compared with, seed by seed.
        published: Row -> task -> mean and standard deviation, where the paper prints them.
        metric: What is reported, as a mean over the test splits.
        beside: Other metrics that records hold, shown besides.
        seeds: Seeds of the protocol.
        notes: What a reader of the numbers must know.
        curves: For a figure: name of a curve -> its tasks, in order.
        ranked: For a suite: the row whose ranks over tasks the others are compared with.
        ladders: Rows whose differences say what of a memory's gain is memory.
        pictures: Drawn from what its records measure, see :mod:`hma.paper.table`.
        published_costs: Task -> row -> what the paper says it costs.
        page: Name of the document of its results, which tables may share; its key if not given.
        claims: What the paper reads off it.
        unmeasured: Why a column has no record: patterns of tasks -> the reason.
        recorded_key, recorded_names: What its records say, where that is not its key and the names
            of its rows: name of a row -> its name in records. Records keep what they say;
            :class:`hma.paper.results.Results` translates.
    """

    key: str
    title: str
    problems: Mapping[str, Problem]
    rows: Mapping[str, Row]
    budgets: Mapping[str, Budget]
    baseline: str
    published: Mapping[str, Mapping[str, Published]] = field(default_factory=dict)
    metric: str = "accuracy"
    beside: tuple[str, ...] = ()
    seeds: tuple[int, ...] = tuple(range(10))
    notes: tuple[str, ...] = ()
    curves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranked: str | None = None
    ladders: tuple[Ladder, ...] = ()
    pictures: tuple[Picture, ...] = ()
    published_costs: Mapping[str, Mapping[str, PublishedCost]] = field(default_factory=dict)
    page: str | None = None
    claims: tuple[Claim, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    recorded_key: str | None = None
    recorded_names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = list(self._mistakes())
        if problems:
            lines = "\n".join(f"  - {problem}" for problem in problems)
            raise ConfigError(f"table {self.key} cannot run:\n{lines}")

    def _mistakes(self) -> Iterator[str]:
        tasks, rows = tuple(self.problems), tuple(self.rows)
        named = {"key": (self.key,), "page": (self.page or self.key,), "task": tasks, "row": rows}
        for kind, names in named.items():
            for name in names:
                if not SAFE.fullmatch(name):
                    yield f"{kind} {name!r} must be letters, digits and + . _ - (it names files)"
        wanted = [("baseline", self.baseline), ("ranked", self.ranked or self.baseline)]
        wanted += [("ladders", name) for ladder in self.ladders for name in ladder.rows]
        wanted += [("pictures", name) for picture in self.pictures for name in picture.rows]
        wanted += [("claims", name) for one in self.claims for pair in one.rows for name in pair]
        wanted += [("instead_of", row.instead_of or self.baseline) for row in self.rows.values()]
        for kind, name in wanted:
            if name not in rows:
                yield wrong_choice(kind, name, rows)
        for metric in (self.metric, *self.beside):
            if metric not in METRICS:
                yield wrong_choice("metric", metric, tuple(METRICS))
        if set(self.budgets) - {TINY} not in ({"smoke", "small", whole} for whole in FULL):
            whole = " or ".join(FULL)
            given = ", ".join(self.budgets)
            yield f"budgets must be smoke, small and {whole}, with or without {TINY}, got {given}"
        for name, budget in self.budgets.items():
            if not 1 <= budget.seeds <= len(self.seeds):
                yield f"budget {name}: seeds must be 1 to {len(self.seeds)}, got {budget.seeds}"
            for field_name, named_ones, known in (
                ("per_task", budget.per_task, tasks),
                ("per_method", budget.per_method, rows),
                ("problems", budget.problems, tasks),
            ):
                for one in named_ones:
                    if one not in known:
                        yield f"budget {name}: " + wrong_choice(field_name, one, known)
        yield from self._wrong_rows()
        for row in self.published:
            if row not in rows:
                yield "published: " + wrong_choice("row", row, rows)
        mentioned = [(f"published {row}", t) for row, at in self.published.items() for t in at]
        mentioned += [("published_costs", task) for task in self.published_costs]
        mentioned += [("curves", task) for curve in self.curves.values() for task in curve]
        for kind, task in mentioned:
            if task not in tasks:
                yield f"{kind}: " + wrong_choice("task", task, tasks)

    def _wrong_rows(self) -> Iterator[str]:
        for name, row in self.rows.items():
            if sum(map(bool, (row.build, row.work, row.retired))) != 1:
                yield f"row {name}: give it one of build, work and retired"
            if row.instead_of and not row.retired:
                yield f"row {name}: instead_of is for a retired row"
            if row.work is not None and (row.task or row.measure or row.keep_weights or row.search):
                yield f"row {name}: task, measure, keep_weights and search are for one with build"
            for budget, one in self.budgets.items() if row.work is not None else ():
                if one.rows is not None:
                    yield f"budget {budget}: rows must be None, {name} has work of its own"

    def budget(self, name: str) -> Budget:
        """Return a budget by name."""
        if name not in self.budgets:
            raise UserError(wrong_choice("budget", name, tuple(self.budgets)))
        return self.budgets[name]

    def problem(self, task: str, budget: str) -> Problem:
        """Return a column as a budget has it."""
        return self.budget(budget).problems.get(task, self.problems[task])

    def recipe(self, cell: Cell) -> Recipe:
        """Return how a cell is trained: the budget's recipe, the task's in it, then the row's."""
        budget = self.budget(cell.budget)
        fields = budget.recipe.to_json()
        fields |= budget.per_task.get(cell.task, {})
        fields |= budget.per_method.get(cell.method, {})
        return Recipe.from_json(fields | dict(self.rows[cell.method].recipe))

    def cells(
        self,
        budget: str,
        only: str | None = None,
        seeds: int | None = None,
        *,
        retired: bool = True,
    ) -> tuple[Cell, ...]:
        """Return the cells of a budget, seed by seed, so that every row has its first one early.

        Args:
            budget: Name of the budget.
            only: ``TASK/METHOD``, ``TASK`` or ``METHOD``, patterns with ``*``, several with
                commas between; None for what the budget runs. What is outside the budget's own
                choice may be asked for by name.
            seeds: Number of seeds; None for the budget's.
            retired: Whether rows that can no longer be measured are among them.
        """
        chosen = self.budget(budget)
        count = chosen.seeds if seeds is None else seeds
        if not 1 <= count <= len(self.seeds):
            raise UserError(f"seeds must be 1 to {len(self.seeds)} for {self.key}, got {count}")
        if only is None:
            places = set(self._budgeted(chosen))
        else:
            places = {place for pattern in only.split(",") for place in self._only(pattern)}
        return tuple(
            Cell(self.key, budget, task, method, seed)
            for seed in self.seeds[:count]
            for task in self.problems
            for method in self.rows
            if (task, method) in places and (retired or not self.rows[method].retired)
        )

    def _budgeted(self, budget: Budget) -> Iterator[tuple[str, str]]:
        tasks = dict.fromkeys(_matching("task", self.problems, budget.tasks))
        for pattern in budget.methods:
            task, _, method = pattern.rpartition("/")
            for one in _matching("task", tasks, (task or "*",)):
                for other in _matching("method", self.rows, (method,)):
                    yield one, other

    def _only(self, pattern: str) -> Iterator[tuple[str, str]]:
        task, slash, method = pattern.strip().partition("/")
        if not slash and any(fnmatchcase(row, task) for row in self.rows):
            task, method = "*", task
        for one in _matching("task", self.problems, (task,)):
            for other in _matching("method", self.rows, (method or "*",)):
                yield one, other


def _matching(kind: str, names: Mapping[str, object], patterns: tuple[str, ...]) -> list[str]:
    matching = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not matching:
        raise UserError(wrong_choice(kind, ", ".join(patterns), tuple(names)))
    return matching


def memory_row(
    ablation: str,
    *,
    recipe: Mapping[str, Any] | None = None,
    search: Mapping[str, tuple[Any, ...]] | None = None,
    measure: Measure | None = None,
    anchors: int = 0,
    **config: Any,
) -> Row:
    """Return an HMA row of the paper's tables; fields that the ablation fixes are left out.

    Args:
        ablation: As :meth:`hma.HMAConfig.ablation` takes it.
        recipe: Fields of the recipe that are this row's own.
        search: What may be searched.
        measure: What else than scores is measured.
        anchors: Training rows of the context 'anchors', where rows see their batch.
        config: Fields of :class:`hma.HMAConfig`.

    Example:
        >>> memory_row("abd+syn", queue_size=256, slots_per_class=8).settings
        {'ablation': 'abd+syn', 'slots_per_class': 8}
    """
    fixed = ABLATIONS[ablation]
    free = {name: value for name, value in config.items() if name not in fixed}
    searched = {name: values for name, values in (search or {}).items() if name not in fixed}
    if anchors and fixed.get("batch_attention", True):
        free = {"anchors": anchors} | free
    return Row(
        build=_with_memory,
        settings={"ablation": ablation} | free,
        recipe=recipe or {},
        search=searched,
        what=WORDS[ablation],
        measure=measure,
    )


def _with_memory(
    backbone: BackboneFactory, *, ablation: str, anchors: int = 0, **config: Any
) -> Method:
    return with_memory(backbone, HMAConfig.ablation(ablation, **config), anchors=anchors)
