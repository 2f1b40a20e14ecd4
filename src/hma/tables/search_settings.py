"""Search the settings of a row on validation data alone; the test splits are not even built."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from hma.errors import UserError
from hma.extras import needed
from hma.files import HeldError, held
from hma.tables.measure_cell import measure
from hma.tables.results import UNFINISHED, Results
from hma.tables.table import Cell, Problem, Row, Table
from hma.training import Progress, Record

SEARCHES = "search"


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and their validation score in percent, a mean over seeds."""

    settings: Mapping[str, Any]
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
    estimator chooses. The log is kept beside the results: the same call again goes on, in the
    middle of a trial if one was interrupted.

    Args:
        table: What the row is of.
        cell: Task, method and budget; its seed is not used.
        results: Where the log goes.
        trials: Most trials, those before included; None for all combinations.
        seeds: Seeds for each trial, from the front of the table's.
        progress: Told how far each training is.
        say: Told of each trial.
    """
    row = table.rows[cell.method]
    if not row.search:
        able = ", ".join(name for name, other in table.rows.items() if other.search) or "none"
        raise UserError(f"{cell.method} has nothing to search in {table.key}; rows that do: {able}")
    combinations = math.prod(len(values) for values in row.search.values())
    wanted = combinations if trials is None else min(trials, combinations)
    place = results.folder / SEARCHES / cell.table / cell.budget / cell.task / f"{cell.method}.log"
    place.parent.mkdir(parents=True, exist_ok=True)

    def attempt(settings: Mapping[str, Any]) -> float:
        return _score(table, cell, settings, results, seeds, progress)

    try:
        with held(place.with_suffix(".lock")):
            return _completed(_study(place), row, attempt, wanted, say)
    except HeldError as error:
        raise UserError(
            f"another search of {cell.task}/{cell.method} is running; wait for it"
        ) from error


def _completed(
    study: Any, row: Row, attempt: Callable[[Mapping[str, Any]], float], wanted: int, say: Says
) -> list[Trial]:
    """Try settings until enough are tried: one combination after the other if all are wanted."""
    combinations = [
        dict(zip(row.search, one, strict=True)) for one in product(*row.search.values())
    ]
    while len(done := _finished(study)) < wanted:
        if wanted == len(combinations):
            tried = [trial.settings for trial in done]
            study.enqueue_trial(next(one for one in combinations if one not in tried))
        trial = study.ask()
        chosen = {name: trial.suggest_categorical(name, v) for name, v in row.search.items()}
        score = attempt(chosen)
        study.tell(trial, score)
        say(Trial(chosen, score), len(done) + 1, wanted)
    return sorted(done, key=lambda one: -one.score)


def _score(
    table: Table,
    cell: Cell,
    chosen: Mapping[str, Any],
    results: Results,
    seeds: int,
    progress: Progress | None,
) -> float:
    """Return the mean validation score of settings over seeds, in percent."""
    changed = _without_tests(table, cell, table.rows[cell.method].changed(chosen))
    label = "_".join(f"{name}={value}" for name, value in chosen.items())
    found = []
    for seed in table.seeds[:seeds]:
        one = cell._replace(seed=seed)
        folder = results.folder / UNFINISHED / SEARCHES / one.path / label
        found.append(validation_score(measure(changed, one, folder, progress), table.metric))
    return 100 * mean(found)


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
    problem = table.problems[cell.task]
    blind = Problem(
        task=lambda seed: replace(problem.task(seed), tests={}), backbone=problem.backbone
    )
    return replace(
        table,
        problems={**table.problems, cell.task: blind},
        rows={**table.rows, cell.method: row},
    )


def _study(place: Path) -> Any:
    """Open the study; a trial that an interruption left open is the next to be asked for."""
    optuna = needed("optuna", "hma search", extra="tables")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        backend = optuna.storages.journal.JournalFileBackend(str(place))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            sampler=optuna.samplers.TPESampler(seed=0),
            study_name="search",
            direction="maximize",
            load_if_exists=True,
        )
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
    return study


def _finished(study: Any) -> list[Trial]:
    found: dict[str, Trial] = {}
    for trial in study.get_trials(deepcopy=False):
        if trial.value is not None:
            found[repr(sorted(trial.params.items()))] = Trial(dict(trial.params), trial.value)
    return list(found.values())
