"""The data a run was trained on, opened again: only if it is still the same."""

from collections.abc import Mapping
from typing import Any

from hma.data import Prepared, Source, is_builtin
from hma.errors import UserError
from hma.runs.folder import MEMORY, PLACES, Run, source_from
from hma.runs.options import REMEDY


def training_source(run: Run) -> Source:
    """Open the rows the run was trained on."""
    source = source_from(run.options)
    _expect_unchanged(run, {"fingerprint": source.fingerprint()})
    return source


def training_task(run: Run) -> Prepared:
    """Open them and make the same task of them."""
    if not is_builtin(run.options.source):
        training_source(run)  # first of all: other rows may make no sense as this task
    prepared = run.prepared()
    facts = prepared.task.facts
    _expect_unchanged(run, {name: facts.get(name) for name in ("fingerprint", "given")})
    return prepared


def _expect_unchanged(run: Run, found: Mapping[str, Any]) -> None:
    facts = run.record(MEMORY).setup["task"]["facts"]
    changed = [name for name, value in found.items() if facts.get(name) != value]
    if changed:
        what = "data to validate or test on" if changed == ["given"] else run.options.source
        raise UserError(
            f"{what} has changed since {run.folder} was trained on it, so its rows "
            "are not those the model remembers; put the old data back, or train again"
        )


def place_of(run: Run, training: Source, sample: int) -> int:
    """Return the row of the training data behind a sample id."""
    places = run.places.get("train", [])
    if sample >= len(places) or not 0 <= places[sample] < len(training):
        raise UserError(
            f"{run.folder / PLACES} is damaged: it has no row of {run.options.source} for sample "
            f"{sample}; {REMEDY}"
        )
    return places[sample]
