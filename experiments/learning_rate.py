"""Is one learning rate as good as a search? The rule of ``hma train`` against three rates.

Run it, with its cost on one core::

    hma run rates --budget smoke     # a minute
    hma run rates --budget small     # four tables, one seed
    hma run rates --budget full      # four tables and two sets of frozen features, two seeds

Published: nothing. ``hma train`` gives every method the rate 0.001 with warm-up, cosine, clipping
and selection by validation loss, and a wide read of a memory less. A row ``searched`` trains with
0.0003, 0.001 and 0.003 and keeps the one with the least validation loss: three times the cost, the
same for plain backbone and memory. If the rule loses nothing, nobody needs the search.

Data, under ``$HMA_DATA``: tables of the UCI collection; all of Flowers102 (ten images a class) on
frozen EfficientNet-lite0, and 200 sentences a class of Twitter on frozen MiniLM, as in M2.
"""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from hma.backbones import backbone_for
from hma.data import Task
from hma.methods import erm
from hma.methods.cached_features import with_known_features
from hma.paper.table import Budget, Job, Problem, Row, Table
from hma.runs import RunOptions
from hma.runs.source import prepared_from
from hma.training import Record, UserRecipe, fit

from ._real_data import table
from ._vote import PLAIN
from .m2_few_labels import encoder, few

RATES = (3e-4, 1e-3, 3e-3)
TABLES = ("Glass", "Ionosphere", "PimaIndiansDiabetes2", "Vowel")
FROZEN = {"Flowers102": 10, "Twitter": 200}
VOTE = asdict(replace(PLAIN, key_dim=64, key_view="features")) | {"vote": "added"}
MEMORY = {"config": VOTE}
"""Rows that vote while the backbone learns, which is no longer part of hma: a memory that is
learned after the backbone has its own rate."""
MEASURED = {"vote-added": "cb8311df", "vote-added-searched": "dd3b1904"}
"""Commit at which each was measured."""


def read(name: str, seed: int) -> Task:
    """Return a table as ``hma train`` prepares it."""
    return prepared_from(RunOptions(**table(name, Path()), seed=seed)).task


def searched(job: Job) -> Record:
    """Train with every rate and return the record with the least validation loss."""
    task = job.problem.task(job.cell.seed)
    method = erm(job.problem.backbone)
    records = {}
    for rate in RATES:
        learner = method(task, job.cell.seed)
        known = with_known_features(task, learner, job.shared / "features")
        records[rate] = fit(
            learner,
            known,
            replace(job.recipe, lr=rate),
            seed=job.cell.seed,
            folder=job.folder / str(rate),
            progress=job.progress,
        )
    losses = {rate: float(record.measures["validation_loss"]) for rate, record in records.items()}
    rate = min(losses, key=lambda rate: losses[rate])
    tried = {"rate": rate, "validation losses": {str(one): loss for one, loss in losses.items()}}
    best = records[rate]
    asked = best.setup | {"recipe": job.recipe.to_json()}  # of the row; the rate is in the measures
    return replace(best, name=task.name, setup=asked, measures=best.measures | tried)


TASKS = {
    name: Problem(task=partial(read, name), backbone=backbone_for("binned-mlp")) for name in TABLES
}
TASKS |= {
    name: Problem(task=partial(few, name, count), backbone=encoder)
    for name, count in FROZEN.items()
}
recipe = UserRecipe().fixed()

TABLE = Table(
    key="rates",
    title="One learning rate, or a search for each method",
    problems=TASKS,
    rows={
        "plain": Row(build=erm, what="the backbone at the rate 0.001"),
        "plain-searched": Row(work=searched, what="the backbone at the best of three rates"),
        "vote-added": Row(
            retired=MEASURED["vote-added"], settings=MEMORY, what="the memory at the rate 0.001"
        ),
        "vote-added-searched": Row(
            retired=MEASURED["vote-added-searched"],
            settings=MEMORY,
            what="the memory at the best of three rates",
        ),
    },
    budgets={
        "smoke": Budget(
            what="one table, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            tasks=("Glass",),
        ),
        "small": Budget(what="four tables, one seed", recipe=recipe, seeds=1, tasks=TABLES),
        "full": Budget(
            what="four tables and two sets of frozen features, two seeds", recipe=recipe, seeds=2
        ),
    },
    baseline="plain",
    recorded_names={"vote-added": "memory", "vote-added-searched": "memory-searched"},
    metric="nll",
    seeds=(0, 1),
    notes=("Flowers102 is tested on the first 1,020 of its 6,149 test images.",),
)
