"""Search the settings of a row on validation data alone; the test splits are not even built."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from hma.errors import UserError
from hma.extras import needed
from hma.io.files import HeldError, hold_lock
from hma.io.json_files import finite_or_none, none_to_nan, read_json, write_json
from hma.metrics import METRICS
from hma.paper.cells import measure
from hma.paper.results import UNFINISHED, Results
from hma.paper.table import Cell, Problem, Row, Table
from hma.training import Progress, Record
from hma.training.identity import differences

SEARCHES = "search"
MOST_PROPOSALS = 100
"""How often in a row Optuna may propose what was tried; then the next combination is taken."""
Settings = dict[str, Any]
SHAPE = {"protocol": dict, "trying": dict, "trials": [{"settings": dict, "score": float | None}]}


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and their validation score as tables print it, a mean over seeds.

    The score is not a number where the training diverged.
    """

    settings: Settings
    score: float


Says = Callable[[Trial, int, int], None]
"""Told of each trial, how many are done, and of how many."""


def search(
    table: Table,
    cell: Cell,
    results: Results,
    *,
    trials: int | None = None,
    seeds: int = 1,
    progress: Progress | None = None,
    say: Says = lambda trial, done, total: None,
) -> list[Trial]:
    """Try settings of a row and return the trials, best first.

    All combinations are tried where ``trials`` allows, else Optuna's tree-structured Parzen
    estimator chooses. What was tried is kept beside the results: the same call again goes on, in
    the middle of a trial if one was interrupted.

    Args:
        table: What the row is of.
        cell: Task, method and budget; its seed is not used.
        results: Where the trials are kept.
        trials: Most trials, those before included; None for all combinations.
        seeds: Seeds for each trial, from the front of the table's.
        progress: Told how far each training is.
        say: Told of each trial.
    """
    row = table.rows[cell.method]
    if not row.search:
        able = ", ".join(name for name, other in table.rows.items() if other.search) or "none"
        raise UserError(f"{cell.method} has nothing to search in {table.key}; rows that do: {able}")
    if not 1 <= seeds <= len(table.seeds):
        raise UserError(f"seeds must be 1 to {len(table.seeds)} for {table.key}, got {seeds}")
    if trials is not None and trials < 1:
        raise UserError(f"trials must be at least 1, got {trials}")
    space = [dict(zip(row.search, one, strict=True)) for one in product(*row.search.values())]
    wanted = len(space) if trials is None else min(trials, len(space))
    file = results.folder / SEARCHES / cell.table / cell.budget / cell.task / f"{cell.method}.json"
    try:
        with hold_lock(file.with_suffix(".lock")):
            log = _Log(file, _protocol(table, cell, seeds))
            while len(done := [one for one in log.trials if one.settings in space]) < wanted:
                untried = [one for one in space if all(one != tried.settings for tried in done)]
                if log.trying not in untried:  # else it was interrupted
                    whole = wanted == len(space)
                    log.begin(untried[0] if whole else _proposed(row, done, untried, table.metric))
                score = _score(table, cell, log.trying, results, seeds, progress)
                log.finish(score)
                shutil.rmtree(_folder(results, cell, log.trials[-1].settings), ignore_errors=True)
                say(log.trials[-1], len(done) + 1, wanted)
    except HeldError as error:
        raise UserError(
            f"another search of {cell.task}/{cell.method} is running; wait for it"
        ) from error
    sign = 1 if METRICS[table.metric].larger_is_better else -1
    return sorted(done, key=lambda one: (math.isnan(one.score), -sign * one.score))


class _Log:
    """The trials of a search on disk; the file is whole whenever a process ends.

    Args:
        file: Where; made by the first trial.
        protocol: What all its trials have in common; a file with another one is refused.
    """

    def __init__(self, file: Path, protocol: Mapping[str, Any]) -> None:
        self.file, self.protocol = file, protocol
        self.trials: list[Trial] = []
        self.trying: Settings = {}
        if file.exists():
            self._read()

    def begin(self, settings: Settings) -> None:
        """Write what is tried now."""
        self.trying = settings
        self._write()

    def finish(self, score: float) -> None:
        """Write what it came to."""
        self.trials.append(Trial(self.trying, score if math.isfinite(score) else math.nan))
        self.trying = {}
        self._write()

    def _read(self) -> None:
        values = read_json(self.file, SHAPE, remedy="move it away to search anew")
        if differing := differences(values["protocol"], self.protocol):
            raise UserError(
                f"{self.file} was searched with other settings: {'; '.join(differing)}. Move it "
                "away to search anew, or give another --results"
            )
        self.trying = values["trying"]
        self.trials = [
            Trial(one["settings"], none_to_nan(one["score"])) for one in values["trials"]
        ]

    def _write(self) -> None:
        trials = [finite_or_none(asdict(one)) for one in self.trials]
        values = {"protocol": self.protocol, "trying": self.trying, "trials": trials}
        write_json(self.file, values)


def _protocol(table: Table, cell: Cell, seeds: int) -> dict[str, Any]:
    """Return what a score depends on beside the settings that are searched, in JSON values."""
    row = table.rows[cell.method]

    def but_searched(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: "searched" if name in row.search else v for name, v in values.items()}

    return {
        "metric": table.metric,
        "seeds": seeds,
        "rows": table.budget(cell.budget).rows,
        "settings": but_searched(row.settings),
        "recipe": but_searched(table.recipe(cell).to_json()),
    }


def _proposed(row: Row, done: list[Trial], untried: list[Settings], metric: str) -> Settings:
    """Return what Optuna would try next, a function of what is done: going on changes nothing."""
    optuna = needed("optuna", "hma search", extra="tables")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    categorical = optuna.distributions.CategoricalDistribution
    space = {name: categorical(values) for name, values in row.search.items()}
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=len(done)),
        direction="maximize" if METRICS[metric].larger_is_better else "minimize",
    )
    for one in done:
        if not math.isnan(one.score):
            study.add_trial(
                optuna.create_trial(params=one.settings, distributions=space, value=one.score)
            )
    for _ in range(MOST_PROPOSALS):
        settings: Settings = study.ask(space).params
        if settings in untried:
            return settings
    return untried[0]


def _score(
    table: Table,
    cell: Cell,
    settings: Settings,
    results: Results,
    seeds: int,
    progress: Progress | None,
) -> float:
    """Return the mean validation score of settings over seeds, as tables print it."""
    changed = _without_tests(table, cell, table.rows[cell.method].changed(settings))
    scores = []
    for seed in table.seeds[:seeds]:
        folder = _folder(results, cell, settings) / str(seed)
        record = measure(changed, cell._replace(seed=seed), folder, progress)
        scores.append(validation_score(record, table.metric))
    return METRICS[table.metric].scale * mean(scores)


def _folder(results: Results, cell: Cell, settings: Settings) -> Path:
    """Return where settings are tried, a folder for each seed inside."""
    name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    return results.folder / UNFINISHED / SEARCHES / cell.path.parent / name


def validation_score(record: Record, metric: str) -> float:
    """Return the validation score of the epoch that was kept, in the method's first context."""
    scores = record.epochs[record.selected_epoch]["validation"]
    if not scores:
        raise UserError(
            f"{record.name} was not validated in the epoch that it kept, so there is nothing to "
            "search by; give the table's tasks a validation split"
        )
    return next(iter(scores.values()))[metric]


def _without_tests(table: Table, cell: Cell, row: Row) -> Table:
    problem, budget = table.problem(cell.task, cell.budget), table.budget(cell.budget)
    blind = Problem(
        task=lambda seed: replace(problem.task(seed), tests={}), backbone=problem.backbone
    )
    return replace(
        table,
        budgets={
            **table.budgets,
            cell.budget: replace(budget, problems={**budget.problems, cell.task: blind}),
        },
        rows={**table.rows, cell.method: replace(row, measure=None, keep_weights=False)},
    )
