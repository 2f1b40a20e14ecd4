"""The data a run was trained on, opened again: only if it is still the same."""

from hma.data import Prepared, Source, is_builtin
from hma.errors import UserError
from hma.runs.folder import MEMORY, Run, source_from


def training_source(run: Run) -> Source:
    """Open the rows the run was trained on."""
    source = source_from(run.options)
    _expect_unchanged(run, source.fingerprint())
    return source


def training_task(run: Run) -> Prepared:
    """Open them and make the same task of them."""
    if not is_builtin(run.options.source):
        training_source(run)  # first of all: other rows may make no sense as this task
    prepared = run.prepared()
    _expect_unchanged(run, prepared.task.facts.get("fingerprint"))
    return prepared


def _expect_unchanged(run: Run, fingerprint: str | None) -> None:
    facts = run.record(MEMORY).setup["task"]["facts"]
    if fingerprint != facts.get("fingerprint"):
        raise UserError(
            f"{run.options.source} has changed since {run.folder} was trained on it, so its rows "
            "are not those the model remembers; put the old data back, or train again"
        )
