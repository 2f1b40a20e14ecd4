"""Train into a run folder: the plain backbone first, then the same backbone with memory."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from hma.backbones.named import Described, backbone_for, default_backbone
from hma.checkpoint import save
from hma.data import Prepared
from hma.errors import UserError
from hma.methods import erm, with_hma
from hma.methods.memory import WithMemory
from hma.runs.folder import MEMORY, PLAIN, Run, prepared_from, read_json, write_json
from hma.runs.options import RunOptions
from hma.training import Progress, Record, fit

Says = Callable[[str], None]


def train(
    options: RunOptions,
    folder: Path,
    *,
    compare: bool = True,
    progress: Progress | None = None,
    say: Says = lambda line: None,
) -> Run:
    """Train what ``options`` say into ``folder``; the same call again goes on where it stopped.

    Args:
        options: Data, backbone, memory, recipe, seed.
        folder: The run folder; made if needed. One with other options is refused untouched.
        compare: Also train the plain backbone, for an honest comparison.
        progress: Shows how far the training is.
        say: Called with a line for each thing that is done.
    """
    prepared = prepared_from(options)
    task = prepared.task
    if options.backbone is None:
        options = replace(options, backbone=default_backbone(task.kind, task.shape))
    _claim(folder, options)
    rows = ", ".join(f"{len(places)} {name}" for name, places in prepared.places.items())
    say(f"{task.name}: {len(task.classes)} classes, rows {rows}; backbone {options.backbone}")
    if prepared.source.skipped:
        say(f"left out {len(prepared.source.skipped)} unreadable files")
    write_json(folder / "preparation.json", prepared.preparation.to_json())
    write_json(folder / "places.json", prepared.places)
    if compare:
        _train_plain(options, prepared, folder, progress)
    _train_memory(options, prepared, folder, progress)
    return Run.open(folder)


def _claim(folder: Path, options: RunOptions) -> None:
    """Make ``folder`` that of ``options``, or refuse it if it holds something else."""
    path = folder / "run.json"
    if path.exists():
        differing = RunOptions.from_json(read_json(path), path).differences(options)
        if differing:
            raise UserError(
                f"{folder} holds a run with other options: {'; '.join(differing)}. Give the same "
                "options to continue it, or another folder with --output"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty and no run of hma; give another --output")
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_json(path, options.to_json())


def _train_plain(
    options: RunOptions, prepared: Prepared, folder: Path, progress: Progress | None
) -> Record:
    learner = erm(_backbone(options))(prepared.task, options.seed)
    return fit(
        learner,
        prepared.task,
        options.recipe,
        seed=options.seed,
        folder=folder / PLAIN,
        resolved=options.to_json(),
        progress=progress,
    )


def _train_memory(
    options: RunOptions, prepared: Prepared, folder: Path, progress: Progress | None
) -> Record:
    learner = with_hma(_backbone(options), options.config)(prepared.task, options.seed)
    record = fit(
        learner,
        prepared.task,
        options.recipe,
        seed=options.seed,
        folder=folder / MEMORY,
        resolved=options.to_json(),
        progress=progress,
    )
    assert isinstance(learner, WithMemory)
    save(learner.model, folder / MEMORY / "model", overwrite=True)
    return record


def _backbone(options: RunOptions) -> Callable[[Described], nn.Module]:
    assert options.backbone is not None
    return backbone_for(options.backbone, weights=options.weights, frozen=options.frozen_backbone)
