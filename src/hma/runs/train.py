"""Train into a run folder: candidates side by side, then the mixture of them that answers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hma.backbones.by_name import default_backbone
from hma.data import Prepared, Split, Task
from hma.errors import UserError
from hma.io.checkpoint import is_saved, save
from hma.io.json_files import write_json
from hma.methods import Learner
from hma.methods.cached_features import Known, augments, with_known_features
from hma.methods.memory import WithMemory
from hma.methods.mixture import Mixture
from hma.metrics import scores
from hma.options.run import Refit
from hma.runs.audits import audit_if_cheap, read_audits
from hma.runs.coverage import Calibration, calibrated, calibration_key, read_calibration
from hma.runs.deployment import (
    MEMORY,
    MIXTURE,
    PARAM,
    PLAIN,
    SIMPLE,
    Deployment,
    Which,
    fitted_deployment,
    new_learners,
    read_deployment,
    title,
)
from hma.runs.folder import (
    BEFORE,
    ENCODED,
    FEATURES,
    MODEL,
    PLACES,
    PREPARATION,
    Run,
)
from hma.runs.held_out import keep_hashes
from hma.runs.kept_answers import CandidateAnswers, keep_answers
from hma.runs.options import RunOptions, claim
from hma.runs.source import features_of_run, prepared_from
from hma.targets import Number, YesNo
from hma.training import (
    Progress,
    Record,
    all_logits,
    curve_note,
    ending_together,
    fabric_for,
    first_process,
    fit,
    progress_ticker,
)

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Says = Callable[[str], None]


def train(
    options: RunOptions,
    folder: Path,
    *,
    compare: bool = True,
    param: bool = False,
    deploy: Which | None = None,
    features: Path | None = None,
    before: Run | None = None,
    download: bool = False,
    accelerator: str = "auto",
    devices: int | None = None,
    progress: Progress | None = None,
    say: Says = lambda line: None,
) -> Run:
    """Train what ``options`` say into ``folder``; the same call again goes on where it stopped.

    With several devices the program starts again for each of the others, once all that can be
    wrong with data and options has been looked at.

    Args:
        options: Data, backbone, memory, recipe, seed.
        folder: The run folder; made if needed. One with other options is refused untouched.
        compare: Also train the plain backbone and simple baselines, and mix their answers.
        param: Also train PARAM, the paper's blocks without a memory; it is never deployed.
        deploy: Who answers new rows; None for the mixture, or for what a finished run has.
        features: Where the features of a frozen backbone are kept, for runs that share them; in
            ``folder`` if not given.
        before: A finished run on the same rows, otherwise divided: what its frozen backbone made
            of them is not made again.
        download: Fetch built-in data that is not there.
        accelerator, devices: Where to compute, see :func:`hma.training.fabric_for`.
        progress: Shows how far the training is.
        say: Called with a line for each thing that is done.
    """
    options = options.as_weights_want()
    shown = progress if first_process() else None
    prepared = prepared_from(options, download=download, progress=shown)
    task = prepared.task
    if options.backbone is None:
        options = replace(options, backbone=default_backbone(task.kind, task.shape))
    make = partial(
        new_learners,
        task,
        options.seed,
        backbone=options.backbone_factory(options.weights),
        config=options.config,
        compare=compare,
        param=param,
    )
    options, learners = replace(options, refit=_refit(options, task)), make()
    again = make() if options.refit == "yes" else None
    _expect_deployable(deploy, learners)
    if first_process():
        claim(folder, options)
        _describe(prepared, options, say)
    fabric = fabric_for(options.recipe, accelerator=accelerator, devices=devices)
    with ending_together(fabric):
        fitted = partial(
            _trained,
            task=task,
            options=options,
            features=features or folder / FEATURES,
            known=None if before is None else partial(features_of_run, before, prepared),
            progress=progress,
            fabric=fabric,
            say=say,
        )
        records, seen = fitted(learners, folder if again is None else folder / BEFORE)
        judged = learners  # validation rows judge these alone
        if again is not None:
            rows_in_all = len(task.train) + len(task.validation)
            if first_process():
                say(f"fitting every candidate again on all {rows_in_all} rows")
            learners = again
            records, seen = fitted(learners, folder, like=records)
        rows = options.recipe.eval_batch_size
        deployed, asked = _deployed(learners, judged, records, seen, folder, rows)
        deployed = deployed.asked(deploy)
        calibration, key = _calibrated(judged, deployed, seen[MEMORY].validation, folder, rows)
        if fabric.is_global_zero:
            memory = learners[MEMORY]
            asks = memory if task.tests else judged[MEMORY]
            audit_if_cheap(asks, seen[MEMORY], records[MEMORY], options, folder, progress)
            if calibration is not None:
                calibration.write(folder, key)
            keep_hashes(folder, task)
            _conclude(folder, prepared, memory, deployed)
    run = Run.open(folder)
    if first_process():
        if asked is not None:
            keep_answers(run, asked)
        say(run.deployed.why)
        for audit in list(read_audits(run).values())[:1]:
            say(f"does the model use its memory? {audit.verdict}")
    return run


def _refit(options: RunOptions, task: Task) -> Refit:
    """Return whether candidates are to be fitted again: yes or no."""
    if options.refit == "yes" and not len(task.validation):
        raise UserError(
            "--refit yes fits again on training and validation rows, and there are no validation "
            "rows; leave it out"
        )
    if options.refit != "auto":
        return options.refit
    cheap = task.kind == "table" or (options.frozen_backbone and not augments(task.train))
    return "yes" if cheap and len(task.validation) else "no"


def _trained(
    learners: Mapping[Which, Learner],
    folder: Path,
    *,
    task: Task,
    options: RunOptions,
    features: Path,
    known: Known | None,
    progress: Progress | None,
    fabric: "Fabric",
    say: Says,
    like: Mapping[Which, Record] = MappingProxyType({}),
) -> tuple[dict[Which, Record], dict[Which, Task]]:
    """Train every candidate; return its record, and the rows as it sees them.

    With the records of an earlier training, ``like``, they learn from the validation rows too.
    """
    records: dict[Which, Record] = {}
    seen: dict[Which, Task] = {}
    for which, learner in learners.items():
        shown = progress if fabric.is_global_zero else None
        if which in SIMPLE:
            seen[which] = seen[PLAIN]  # they share its encoder
        else:
            with fabric.rank_zero_first(), progress_ticker(shown, "encoding") as tick:
                seen[which] = with_known_features(
                    task, learner, features, batch_size=ENCODED, tick=tick, known=known
                )
        record = records[which] = fit(
            learner,
            seen[which],
            options.recipe,
            seed=options.seed,
            folder=folder / which,
            resolved=options.to_json(),
            progress=progress,
            fabric=fabric,
            like=like.get(which),
        )
        if not like and fabric.is_global_zero and (note := curve_note(record)):
            say(f"{title(which, task.target)}: {note}")
    return records, seen


def _deployed(
    learners: Mapping[Which, Learner],
    judged: Mapping[Which, Learner],
    records: Mapping[Which, Record],
    seen: Mapping[Which, Task],
    folder: Path,
    batch_size: int,
) -> tuple[Deployment, CandidateAnswers | None]:
    """Return the mixture that the validation rows decide, and what was said of the test rows.

    What the folder has of the mixture is taken as it is, and nobody is asked. All processes take
    part.

    Args:
        learners: What is to answer new rows.
        judged: The same as validation rows can judge them, before they learned from these.
        records: Of the learners.
        seen: The rows as each of them sees them.
        folder: Of the run.
        batch_size: Rows per batch.
    """
    task = seen[MEMORY]
    weights = {which: records[which].weights_sha256 for which in learners if which != PARAM}
    before = read_deployment(folder, task.target)
    if before is not None and before.weights == weights:
        return before, None
    said = {which: _logits(judged[which], seen[which].validation, batch_size) for which in weights}
    found = fitted_deployment(said, task.validation.labels, task.target, weights)
    asking = learners if task.tests else judged
    asked = CandidateAnswers.ask(asking, seen.__getitem__, batch_size)
    tests = {
        test: scores(asked.mixed(task.target, found.mixed, test), labels, target=task.target)
        for test, labels in asked.labels.items()
        if test in task.tests
    }
    found = replace(found, tests=tests)
    return found.asked(None if before is None else before.which), asked


def _logits(learner: Learner, split: Split, batch_size: int) -> Tensor:
    """Return what a candidate says of rows, as it answers new ones."""
    if not len(split):
        return torch.empty(0, learner.target.outputs)
    logits = all_logits(learner, split, batch_size=batch_size)
    learner.use(learner.contexts[0])
    return logits


def _calibrated(
    learners: Mapping[Which, Learner],
    deployed: Deployment,
    validation: Split,
    folder: Path,
    batch_size: int,
) -> tuple[Calibration | None, str]:
    """Return what the validation rows say of what is deployed, if the folder lacks it; and its key.

    All processes take part. The learners are those that had not seen these rows.
    """
    weights = {which: deployed.weights[which] for which in {*deployed.counted, MEMORY}}
    counted, memory = deployed.counted, learners[MEMORY]
    assert isinstance(memory, WithMemory)
    asked: Learner = learners[next(iter(counted))]
    if deployed.which == MIXTURE:
        shares: dict[str, float] = dict(counted.items())
        asked = Mixture({which: learners[which] for which in counted}, shares)
        asked.module.to(memory.model.device)
    key = calibration_key(counted, weights, asked.contexts[0])
    if read_calibration(folder, key) is not None:
        return None, key
    return calibrated(asked, memory.model, validation, batch_size=batch_size), key


def _conclude(folder: Path, prepared: Prepared, memory: Learner, deployed: Deployment) -> None:
    """Write what a finished run has beside its records; the model, which marks it so, last."""
    assert isinstance(memory, WithMemory)
    if deployed != read_deployment(folder, prepared.task.target):
        deployed.write(folder)
    if not is_saved(memory.model, folder / MODEL):
        write_json(folder / PREPARATION, prepared.preparation.to_json(), sealed=True)
        write_json(folder / PLACES, prepared.places, sealed=True)
        stored = folder / MEMORY / "weights.safetensors"
        save(memory.model, folder / MODEL, overwrite=True, stored=stored)


def _expect_deployable(deploy: Which | None, learners: Iterable[Which]) -> None:
    able = (MIXTURE, *(which for which in learners if which != PARAM))
    if deploy is not None and deploy not in able:
        known = ", ".join(able)
        raise UserError(f"--deploy must be one of {known} for this run, got {deploy}")


def _describe(prepared: Prepared, options: RunOptions, say: Says) -> None:
    """Tell what is about to be trained."""
    task = prepared.task
    rows = ", ".join(f"{len(places)} {name}" for name, places in prepared.places.items())
    learned = f"{len(task.classes)} classes"
    if isinstance(task.target, Number):
        learned = f"the number {task.classes[0]}"
    elif isinstance(task.target, YesNo):
        learned = f"{len(task.classes)} yes/no labels"
    say(f"{task.name}: {learned}, rows {rows}; backbone {options.backbone}")
    if task.facts.get("skipped files"):
        say(f"left out {task.facts['skipped files']} unreadable files")
    if unlabelled := task.facts.get("rows without a label left out"):
        say(f"left out {unlabelled} rows without a label")
    for line in task.facts.get("suspicious columns", ()):
        say(f"note: {line}")
