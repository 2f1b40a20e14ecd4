"""A run without steps: a learner that is fitted to all its rows at once, tested and recorded."""

import math
from typing import TYPE_CHECKING, Any

from hma.data import Task
from hma.methods.frozen_state import changing_state, load_changing_state
from hma.methods.learner import FittedAtOnce
from hma.training.conclusion import Outcome, conclude
from hma.training.evaluation import evaluate
from hma.training.folder import RunFolder
from hma.training.identity import Identity
from hma.training.progress import Progress, counted
from hma.training.recipe import Recipe
from hma.training.record import EpochResult, Record, Scores
from hma.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from lightning.fabric import Fabric

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
    """
    watch = Stopwatch(fabric.device)
    fabric.to_device(learner.module)
    with counted(progress, task.name) as tick:
        fitted = learner.fit_at_once(task, run["seed"], tick) if fabric.is_global_zero else {}
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
    return conclude(learner.module, run, outcome, watch=watch, home=home, fabric=fabric)
