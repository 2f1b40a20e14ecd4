"""One loop for every method: it knows a learner, a task and a recipe, nothing else."""

import math
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from hma.data import Task
from hma.errors import Interrupted, UserError
from hma.methods import Learner
from hma.methods.frozen_state import changing_state, load_changing_state
from hma.methods.learner import FittedAtOnce
from hma.options.recipe import Recipe
from hma.targets import Classes
from hma.training.between_steps import BetweenSteps, StopRequests
from hma.training.checkpoints import expect_values, restore, snapshot
from hma.training.cost import Stopwatch
from hma.training.devices import fabric_for
from hma.training.evaluation import evaluate
from hma.training.identity import Identity, git_commit, identity, refuse_another_run, versions
from hma.training.log import NoLog, ScalarLog, TensorBoardLog
from hma.training.loop import Training, selecting_metric
from hma.training.progress import Progress, SilentProgress, progress_for_terminal, progress_ticker
from hma.training.randomness import preserve_random_state, seed_everything
from hma.training.record import EpochResult, Record, Scores
from hma.training.run_folder import RunFolder, load_weights, write_weights

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def fit(
    learner: Learner,
    task: Task,
    recipe: Recipe,
    *,
    seed: int,
    folder: Path | None = None,
    resolved: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    fabric: "Fabric | None" = None,
    like: Record | None = None,
) -> Record:
    """Train ``learner`` on ``task``, keep the selected epoch, and score every test split.

    The same call again, after an interruption of any kind, goes on from the last checkpoint and
    ends with the same weights and the same record, bit for bit on one device (a GPU needs
    ``torch.use_deterministic_algorithms``); after the end it returns the finished record. Ctrl-C
    and SIGTERM finish the step, write a checkpoint and raise :class:`Interrupted`. A learner that
    is fitted at once (:class:`hma.methods.learner.FittedAtOnce`) has no steps, so no
    optimizer, no epochs and no checkpoints either.

    Args:
        learner: What to train; afterwards its module holds the selected epoch's weights.
        task: What from.
        recipe: How.
        seed: Decides the order of rows and every random draw.
        folder: Where checkpoints, TensorBoard log, weights and ``record.json`` go; None keeps
            everything in memory.
        resolved: The caller's options, in JSON values, for the record; they must be the same
            for a run to continue.
        progress: Told how far the run is; by default a bar, where there is a terminal.
        fabric: Where to compute, launched; by default the best single device.
        like: Record of such a fit, whose validation rows chose epoch, temperature and settings: a
            fresh learner takes these and learns from all rows, the validation rows too. Its record
            keeps what validation came to before, and says ``refit`` in its measures.
    """
    fabric = fabric or fabric_for(recipe)
    _check(task, recipe, seed, fabric)
    run = identity(learner, task, recipe, seed, resolved)
    if like is not None:
        run["method"]["settings_of"] = like.weights_sha256
        task = task.with_validation_trained()
    home = None if folder is None else RunFolder(folder)
    if progress is None:
        progress = progress_for_terminal()
    with ExitStack() as stack:
        if home is not None and fabric.is_global_zero:
            stack.enter_context(home.locked())
        finished = home is not None and home.record.exists()
        fabric.barrier()
        if home is not None and finished:
            return _finished_before(learner, home, run, fabric)
        stack.enter_context(preserve_random_state(fabric.device))
        stack.callback(setattr, learner, "run", learner.run)  # led through Fabric for a while
        seed_everything(seed, fabric.global_rank)
        shown: Progress = progress if fabric.is_global_zero else SilentProgress()
        if isinstance(learner, FittedAtOnce):
            return run_at_once(
                learner, task, recipe, run, home=home, progress=shown, fabric=fabric, like=like
            )
        training = Training(learner, task, recipe, seed, fabric, like)
        return _Run(training, home, run, shown).complete()


class _Run:
    """A run from its first or its latest step to its record."""

    def __init__(
        self, training: Training, home: RunFolder | None, run: Identity, progress: Progress
    ) -> None:
        self.training, self.home, self.run, self.progress = training, home, run, progress
        self.fabric = training.fabric
        self.watch = Stopwatch(training.device)
        self.log: ScalarLog = NoLog()
        self.measures: dict[str, float] = {}
        if home is not None:
            self._continue(home)

    def _continue(self, home: RunFolder) -> None:
        """Go to the latest checkpoint, if there is one."""
        with self.fabric.rank_zero_first():
            checkpoint = home.checkpoints.latest()
        if checkpoint is not None:
            expect_values(checkpoint)
            where = f"the checkpoint in {home.checkpoints.folder}"
            refuse_another_run(where, checkpoint.values["run"], self.run)
            _warn_of_other_versions(checkpoint.values["versions"])
            restore(self.training, checkpoint, self.watch)

    def complete(self) -> Record:
        """Train to the end."""
        training, progress = self.training, self.progress
        if self.home is not None and self.fabric.is_global_zero:
            self.log = TensorBoardLog(self.home.tensorboard, training.step)
        progress.begin(training.task.name, training.steps, training.step)
        if training.step:
            progress.say(f"going on from step {training.step} of {training.steps}")
        try:
            with StopRequests() as stop:
                save = None if self.home is None else self._save
                between = BetweenSteps(
                    training, save=save, progress=progress, log=self.log, stop=stop
                )
                training.between_steps = between.run_callbacks
                training.begin()
                while not training.finished:
                    result = training.run_epoch()
                    self.watch.end_epoch()
                    self._log_epoch(result)
                tests = self._test()
                record = self._conclude(tests)
                if stop.received is not None:
                    raise Interrupted("stopped after the last step; the run is done", stop.received)
                return record
        finally:
            progress.end()
            self.log.close()

    def _save(self) -> None:
        checkpoint = snapshot(self.training, self.run, self.watch)
        if self.home is not None and self.fabric.is_global_zero:
            self.home.expect_present()
            self.home.checkpoints.write(checkpoint)

    def _log_epoch(self, result: EpochResult) -> None:
        if self.home is not None and self.fabric.is_global_zero:
            self.home.expect_present()
        values = {"train/epoch_loss": result["train_loss"], "train/lr": result["lr"]}
        self.log.add(self.training.step, values | _flat("validation", result["validation"]))

    def _test(self) -> dict[str, Scores]:
        training = self.training
        if training.best:
            load_changing_state(training.module, training.best)
        if training.recipe.calibrate:
            self.measures |= training.calibrate()
        self.measures |= training.learn_the_rest()
        tests = {n: training.evaluate(s) for n, s in training.task.tests.items()}
        for name, scores in tests.items():
            self.log.add(training.step, _flat(f"test/{name}", scores))
        return tests

    def _conclude(self, tests: dict[str, Scores]) -> Record:
        training, standing = self.training, self.training.standing
        selected = len(standing.epochs) - 1
        if training.recipe.selection != "last" and standing.best_epoch is not None:
            selected = standing.best_epoch
        rule = _selection_rule(training)
        outcome = Outcome(standing.epochs, selected, rule, tests, self.measures)
        if training.like is not None:
            outcome = _refitted(training.like, training.task, tests, self.measures)
        return conclude(
            training.module,
            self.run,
            outcome,
            watch=self.watch,
            home=self.home,
            fabric=self.fabric,
        )


def _finished_before(learner: Learner, home: RunFolder, run: Identity, fabric: "Fabric") -> Record:
    """Return the record of a run that has ended, its weights in the learner."""
    record = Record.read(home.record)
    stored = {"seed": record.seed, **record.setup, "resolved": record.resolved}
    refuse_another_run(str(home.record), stored, run)
    remedy = f"remove {home.record} to train again"
    load_weights(learner, home.weights, str(record.weights_sha256), remedy)
    fabric.to_device(learner.module)
    learner.module.eval()
    learner.use(learner.contexts[0])
    if fabric.is_global_zero:
        home.checkpoints.clear()  # a process killed after the record left them behind
    return record


def _check(task: Task, recipe: Recipe, seed: int, fabric: "Fabric") -> None:
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise UserError(f"seed must be a whole number from 0 to 2**32 - 1, got {seed!r}")
    _check_labels(task, recipe)
    least = 2 * fabric.world_size if fabric.world_size > 1 else 1
    if len(task.train) < least:
        raise UserError(
            f"the training split of {task.name!r} must have at least {least} rows for "
            f"{fabric.world_size} process(es), got {len(task.train)}"
        )
    if len(task.validation) == 0 and recipe.chooses_by_validation:
        raise UserError(
            f"the validation split of {task.name!r} is empty, so no epoch can be chosen by it; "
            "set selection='last' and patience=None, or give it rows"
        )
    empty = [name for name, split in task.tests.items() if len(split) == 0]
    if empty:
        raise UserError(
            f"the test split {empty[0]!r} of {task.name!r} must have at least one row, got none; "
            "leave it out, or give it rows"
        )
    precision = fabric.strategy.precision.precision
    if precision != recipe.precision:
        raise UserError(
            f"fabric must have the recipe's precision {recipe.precision!r}, got {precision!r}; "
            "make it with hma.training.fabric_for(recipe)"
        )


def _check_labels(task: Task, recipe: Recipe) -> None:
    """Raise where labels are not what the target says, or cannot be balanced."""
    if isinstance(task.target, Classes):
        return
    if recipe.balance != "none":
        raise UserError(
            f"balance must be 'none' for labels of the kind {task.target.kind!r}, got "
            f"{recipe.balance!r}; only classes can be made to count alike"
        )
    splits = {"training": task.train, "validation": task.validation, **task.tests}
    for name, split in splits.items():
        try:
            task.target.check(split.labels, len(split))
        except (TypeError, ValueError) as error:
            raise UserError(f"labels of the {name} rows of {task.name!r}: {error}") from error


def _warn_of_other_versions(before: Mapping[str, str]) -> None:
    now = versions()
    changed = [
        f"{name} {before.get(name)} then, {now.get(name)} now"
        for name in dict.fromkeys([*now, *before])
        if before.get(name) != now.get(name)
    ]
    if changed:
        warnings.warn(
            f"the run began with other versions ({'; '.join(changed)}), so its result may differ "
            "from that of an uninterrupted one",
            stacklevel=5,
        )


def _selection_rule(training: Training) -> str:
    recipe, context = training.recipe, training.learner.contexts[0]
    rule = f"last {recipe.round}"
    if recipe.selection != "last":
        metric = selecting_metric(training.task, recipe).name.replace("_", " ")
        rule = f"best validation {metric} in context {context!r}, earliest of equals"
    if recipe.patience is not None:
        rule += (
            f"; stopped after {recipe.patience} {recipe.round}s without a better one, counted from "
            f"{recipe.round} {recipe.patience_from}"
        )
    if recipe.evaluate_every_steps is not None:
        rule += f"; a round is {recipe.evaluate_every_steps} steps"
    return rule


def _flat(prefix: str, scores: Scores) -> dict[str, float]:
    return {
        f"{prefix}/{context}/{metric}": value
        for context, values in scores.items()
        for metric, value in values.items()
    }


RULE = "fitted at once, its settings chosen by validation loss"


def run_at_once(
    learner: FittedAtOnce,
    task: Task,
    recipe: Recipe,
    run: Identity,
    *,
    home: RunFolder | None,
    progress: Progress,
    fabric: "Fabric",
    like: Record | None = None,
) -> Record:
    """Fit a learner, score it and write its record; of the recipe only batches of tests count.

    The record has one epoch, with the scores on the validation rows. Nothing is kept on the way:
    a run that was killed is fitted again.

    Args:
        learner: What to fit.
        task: What to.
        recipe: How many rows are scored at a time.
        run: Which run this is.
        home: Where weights and record go; None for nowhere.
        progress: Told how many settings were tried.
        fabric: Where to compute; its first process fits.
        like: Record of an earlier fit, whose settings are taken.
    """
    watch = Stopwatch(fabric.device)
    fabric.to_device(learner.module)
    with progress_ticker(progress, task.name) as tick:
        settings = None if like is None else like.measures
        first = fabric.is_global_zero
        fitted = learner.fit_at_once(task, run["seed"], tick, settings) if first else {}
    measures: dict[str, Any] = fabric.broadcast(fitted)
    if fabric.world_size > 1:
        load_changing_state(learner.module, fabric.broadcast(changing_state(learner.module)))

    def scored(split: Any) -> Scores:
        return evaluate(learner, split, batch_size=recipe.eval_batch_size, target=task.target)

    validation = scored(task.validation) if len(task.validation) else {}
    fit = EpochResult(epoch=0, train_loss=math.nan, validation=validation, lr=math.nan)
    watch.end_epoch()
    tests = {name: scored(split) for name, split in task.tests.items()}
    learner.module.eval()
    outcome = Outcome([fit], 0, RULE, tests, measures, learner.packages)
    if like is not None:
        outcome = replace(_refitted(like, task, tests, measures), packages=learner.packages)
    return conclude(learner.module, run, outcome, watch=watch, home=home, fabric=fabric)


@dataclass(frozen=True)
class Outcome:
    """What a run came to; as in its record."""

    epochs: list[EpochResult]
    selected_epoch: int
    selection_rule: str
    tests: dict[str, Scores]
    measures: dict[str, Any]
    packages: tuple[str, ...] = ()
    """What its numbers depend on beside what those of all runs do."""
    before: Record | None = None
    """Of the fit that chose its settings, where that was another one."""


def _refitted(
    like: Record, task: Task, tests: dict[str, Scores], measures: Mapping[str, Any]
) -> Outcome:
    """Return what a second fit came to: validation is that of the first."""
    said = {"rows": len(task.train), "validation_is_of": like.weights_sha256}
    return Outcome(
        epochs=like.epochs,
        selected_epoch=like.selected_epoch,
        selection_rule=f"{like.selection_rule}; then fitted again on all {len(task.train)} rows",
        tests=tests,
        measures={**like.measures, **measures, "refit": said},
        before=like,
    )


def conclude(
    module: nn.Module,
    run: Identity,
    outcome: Outcome,
    *,
    watch: Stopwatch,
    home: RunFolder | None,
    fabric: "Fabric",
) -> Record:
    """Write the weights, then the record that names them; every process must call.

    Args:
        module: Holds the weights that were tested.
        run: Which run it was.
        outcome: What it came to.
        watch: What it took.
        home: Where the files go; None for nowhere.
        fabric: Where it was computed.
    """
    writes = home is not None and fabric.is_global_zero
    before = outcome.before
    sha256 = write_weights(home.weights, module) if home is not None and writes else None
    record = Record(
        name=str(run["resolved"].get("name", run["task"]["name"])),
        seed=run["seed"],
        setup={name: run[name] for name in ("task", "method", "recipe")},
        resolved=run["resolved"],
        git_commit=git_commit(),
        versions=dict(versions(*outcome.packages)),
        data_fingerprint=run["task"]["data_fingerprint"],
        epochs=outcome.epochs,
        selected_epoch=outcome.selected_epoch,
        selection_rule=outcome.selection_rule,
        tests=outcome.tests,
        weights_sha256=fabric.broadcast(sha256),
        seconds=watch.seconds + (before.seconds if before else 0.0),
        epoch_seconds=before.epoch_seconds if before else watch.epoch_seconds,
        peak_memory_bytes=max(watch.peak_memory_bytes, before.peak_memory_bytes if before else 0),
        measures=outcome.measures,
    )
    if home is not None and writes:
        record.write(home.record)
        home.checkpoints.clear()
    fabric.barrier()
    return record
