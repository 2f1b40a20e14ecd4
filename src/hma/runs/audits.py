"""Is the memory of a run read? The audit of its test rows, kept in the run folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hma.data import Source, Split, Task, labelled_rows
from hma.errors import UserError
from hma.io.files import FileError
from hma.io.json_files import Default, read_json, write_json
from hma.methods import Learner
from hma.methods.memory import WithMemory
from hma.questions.audit import Audit, metrics_to_audit
from hma.runs.deployment import MEMORY
from hma.runs.folder import Run
from hma.runs.held_out import judging_run, judging_splits, taught_held_out, without_rows
from hma.runs.options import RunOptions
from hma.runs.source import training_task, with_features
from hma.training import Progress, Record
from hma.training.evaluation import audit_split

AUDITS = "audit.json"
SCHEMA = 1
REMEDY = "remove it; hma audit makes it again"
SHAPE = {
    "schema": int,
    "weights_sha256": str | None,
    "tests": dict[str, dict[str, Any]],
    "changes": Default(list[str], []),
}
CHEAP = 100_000_000
"""Pairs of a test row and a stored row up to which an audit takes seconds."""


def audit_run(run: Run, progress: Progress | None = None) -> dict[str, Audit]:
    """Audit the memory of a run on its test rows, each asked alone, and keep that in its folder.

    Without test rows those of validation are asked; rows that the memory was taught never are. The
    data must be what it was.

    Args:
        run: A finished run.
        progress: Shows how far it is.
    """
    opened = training_task(run).task
    gone = taught_held_out(run, task=opened)
    learner = judging_run(run, without_rows(opened, gone)).learner(MEMORY)
    task = with_features(run, opened, learner, progress)
    tested = judging_splits(without_rows(task, gone))
    if not tested:
        none = "neither test nor validation rows"
        raise UserError(
            f"{run.folder} has {none}{' that its memory was not taught' * bool(gone)} to ask; give "
            "rows with --data"
        )
    found = _audits(learner, tested, task.metric, run.options, progress)
    _write(run.folder, found, run.record(MEMORY), run.versions.hashes(run.living.chain))
    return found


def audit_source(run: Run, source: Source, progress: Progress | None = None) -> Audit:
    """Audit the memory of a run on other labelled rows; nothing is written.

    Args:
        run: A finished run.
        source: The rows.
        progress: Shows how far it is.
    """
    rows = labelled_rows(source)
    if source.labels is None or not len(rows):
        raise UserError(f"{source.name} has no labelled rows to audit; give rows with labels")
    split = run.preparation.split(source, rows)
    metric = run.record(MEMORY).setup["task"].get("metric", "")
    return _audits(run.learner(MEMORY), {"": split}, metric, run.options, progress)[""]


def audit_if_cheap(
    learner: Learner,
    task: Task,
    record: Record,
    options: RunOptions,
    folder: Path,
    progress: Progress | None = None,
) -> None:
    """Audit a memory that was just trained, unless that is done or would take long.

    Args:
        learner: The memory, as it answers.
        task: Rows as it sees them.
        record: Of its training.
        options: Of the run.
        folder: Of the run.
        progress: Shows how far it is.
    """
    assert isinstance(learner, WithMemory)
    real = learner.model.real
    stored = 0 if real is None else min(int(real.queue.written), real.queue.size)
    tested = judging_splits(task)
    if not tested or sum(map(len, tested.values())) * stored > CHEAP:
        return
    if not _read(folder, record):
        found = _audits(learner, tested, task.metric, options, progress)
        _write(folder, found, record)


def read_audits(run: Run) -> dict[str, Audit]:
    """Return the audit of each test set; none where there is no file, or one of another memory."""
    return _read(run.folder, run.record(MEMORY), run.versions.hashes(run.living.chain))


def _audits(
    learner: Learner,
    tested: Mapping[str, Split],
    metric: str,
    options: RunOptions,
    progress: Progress | None,
) -> dict[str, Audit]:
    assert isinstance(learner, WithMemory)
    return {
        name: audit_split(
            learner.model,
            split,
            batch_size=options.recipe.eval_batch_size,
            context="alone",
            metrics=metrics_to_audit(learner.target, metric),
            seed=options.seed,
            progress=progress,
        )
        for name, split in tested.items()
    }


def _write(
    folder: Path, found: Mapping[str, Audit], record: Record, changes: Sequence[str] = ()
) -> None:
    values = {
        "schema": SCHEMA,
        "weights_sha256": record.weights_sha256,
        "tests": {name: audit.to_json() for name, audit in found.items()},
        **({"changes": list(changes)} if changes else {}),  # hashes of versions
    }
    write_json(folder / AUDITS, values, sealed=True)


def _read(folder: Path, record: Record, changes: Sequence[str] = ()) -> dict[str, Audit]:
    path = folder / AUDITS
    if not path.exists():
        return {}
    values = read_json(path, SHAPE, sealed=True, remedy=REMEDY)
    if values["schema"] != SCHEMA or values["weights_sha256"] != record.weights_sha256:
        return {}
    if values["changes"] != list(changes):
        return {}
    try:
        return {name: Audit.from_json(one) for name, one in values["tests"].items()}
    except ValueError as error:
        raise FileError(f"{path} is damaged: {error}; {REMEDY}") from error
