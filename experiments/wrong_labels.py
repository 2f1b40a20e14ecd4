"""Wrong labels found: the vote of the other rows beside cleanlab with cross-validation.

Run it::

    hma run suspects --budget smoke --workers 2     # a minute
    hma run suspects --budget small --workers 2     # four tables, three seeds
    hma run suspects --budget full --workers 2      # four tables, ten seeds

Published: nothing. In four real tables one label in twenty is changed to another class on purpose,
among the training rows and among the validation rows. Every row of this table ranks the training
rows; the score is how well the ranking finds the changed ones: AUROC, and the precision among the
first 5 % of them, as many as were changed.

``vote`` trains the default memory once on all training rows and asks the memory about each row
without that row: nothing is trained again. The others are what cleanlab asks for: a model that has
not seen the row, trained on the other four of five folds, and cleanlab's ranking by the probability
of the given label. Records hold the time of each, and what cleanlab's confident learning takes for
wrong when it is given these probabilities.

Data, under ``$HMA_DATA``: tables of the UCI collection; of LetterRecognition and DNA at most 2,000
rows train and 1,000 validate, drawn by seed.
"""

import time
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hma import suspects
from hma.data import InMemory, Split, Task
from hma.data.task import Part
from hma.extras import needed
from hma.methods import Method, erm, with_memory
from hma.methods.memory import WithMemory
from hma.methods.simple import logistic
from hma.metrics import scores
from hma.paper.table import Budget, Job, Problem, Row, Table
from hma.questions.suspects import PURPOSE, issues_of
from hma.targets import YesNo
from hma.training import Record, UserRecipe, all_logits, fit
from hma.training.identity import data_fingerprint
from hma.vote.config import VoteConfig

from ._vote import PLAIN
from .m1_tables import data as whole
from .m1_tables import encoder

CHANGED, FOLDS = 0.05, 5
TABLES = ("PimaIndiansDiabetes2", "Vowel", "DNA", "LetterRecognition")
METRICS = ("auroc", "r-precision")


def changed_rows(count: int, seed: int) -> Tensor:
    """Return which of so many rows have their label changed, one in twenty, ``(N,)``."""
    draw = torch.Generator().manual_seed(seed)
    some = torch.randperm(count, generator=draw)[: max(1, round(CHANGED * count))]
    return torch.zeros(count, dtype=torch.bool).index_fill(0, some, True)


def with_changes(split: Split, classes: int, seed: int) -> Split:
    """Return the rows with changed labels: each of the other classes is as likely."""
    count = len(split)
    rows = split.batch(torch.arange(count))
    draw = torch.Generator().manual_seed(seed + 1)
    step = torch.randint(1, classes, (count,), generator=draw)
    y = torch.where(changed_rows(count, seed), (rows.y + step) % classes, rows.y)
    return InMemory(rows.x, y)


def data(name: str, seed: int) -> Task:
    """Return a table of M1 with wrong labels, drawn by seed."""
    task = whole(name, seed)
    classes = len(task.classes)
    train, held = (with_changes(s, classes, seed) for s in (task.train, task.validation))
    facts = {**task.facts, "labels changed": CHANGED}
    return replace(task, train=train, validation=held, facts=facts)


def by_vote(job: Job) -> Record:
    """Train once; every training row is then asked of the memory without it."""
    task = job.problem.task(job.cell.seed)
    config = VoteConfig.from_dict(job.settings["config"])
    method = with_memory(job.problem.backbone, config, alone=True)
    learner = method(task, job.cell.seed)
    assert isinstance(learner, WithMemory)
    trained = fit(
        learner,
        task,
        job.recipe,
        seed=job.cell.seed,
        folder=job.folder / "trained",
        progress=job.progress,
    )
    start = time.perf_counter()
    found = suspects(learner.model)
    seconds = time.perf_counter() - start
    chances = torch.empty_like(found.expected)
    chances[found.ids] = found.expected  # in the order of the split
    return record_of(job, task, chances, [trained], ranking=seconds)


def cross_validated(job: Job) -> Record:
    """Train on four of five folds and ask about the fifth, five times."""
    task, seed = job.problem.task(job.cell.seed), job.cell.seed
    method: Method = METHODS[job.settings["method"]](job.problem.backbone)
    folds = needed("sklearn.model_selection", "cross-validation").StratifiedKFold
    cut = folds(FOLDS, shuffle=True, random_state=seed)
    labels = task.train.labels
    chances = torch.zeros(len(labels), len(task.classes))
    records = []
    for fold, (rest, held) in enumerate(cut.split(np.zeros(len(labels)), labels.numpy())):
        part = replace(task, train=Part(task.train, torch.from_numpy(rest)))
        learner = method(part, seed)
        folder = job.folder / str(fold)
        records.append(
            fit(learner, part, job.recipe, seed=seed, folder=folder, progress=job.progress)
        )
        places = torch.from_numpy(held)
        size = job.recipe.eval_batch_size
        logits = all_logits(learner, Part(task.train, places), batch_size=size)
        chances[places] = task.target.expected(logits)
    return record_of(job, task, chances, records)


def record_of(
    job: Job, task: Task, chances: Tensor, trained: list[Record], ranking: float = 0.0
) -> Record:
    """Return how well labels are ranked by the probability that others give to them.

    Args:
        job: The cell.
        task: Its rows, with wrong labels.
        chances: Probability of each class by a model that has not seen the row, ``(N, C)``.
        trained: Records of what was trained.
        ranking: Seconds beside these.
    """
    labels, wrong = task.train.labels, changed_rows(len(task.train), job.cell.seed)
    rank = needed("cleanlab.rank", PURPOSE, extra="labels").get_label_quality_scores
    quality = torch.from_numpy(rank(labels.numpy(), chances.double().numpy()))
    found = scores(-quality[:, None], wrong[:, None].float(), METRICS, target=YesNo(1))
    issues = issues_of(labels, chances)
    hits = int((issues & wrong).sum())
    measures: dict[str, Any] = {
        "trainings": len(trained),
        "rows": len(labels),
        "wrong": int(wrong.sum()),
        "taken for wrong": int(issues.sum()),
        "of them wrong": hits,
    }
    first = trained[0]
    return replace(
        first,
        setup={**first.setup, "method": {"contexts": ["alone"]}},
        selection_rule="",
        tests={"changed labels": {"alone": found}},
        epochs=[],
        selected_epoch=0,
        weights_sha256=None,
        data_fingerprint=data_fingerprint(task),  # of all folds, not of one
        seconds=sum(one.seconds for one in trained) + ranking,
        epoch_seconds=[],
        peak_memory_bytes=max(one.peak_memory_bytes for one in trained),
        measures=measures,
    )


METHODS = {"network": erm, "logistic": logistic}

recipe = UserRecipe().fixed()

TABLE = Table(
    key="suspects",
    title="Wrong labels found",
    problems={name: Problem(task=partial(data, name), backbone=encoder) for name in TABLES},
    rows={
        "vote": Row(
            work=by_vote,
            settings={"config": asdict(PLAIN)},
            what="the memory, trained once, asked about each row without it",
        ),
        "cleanlab-network": Row(
            work=cross_validated,
            settings={"method": "network"},
            what="cleanlab, five times the same network",
        ),
        "cleanlab-logistic": Row(
            work=cross_validated,
            settings={"method": "logistic"},
            what="cleanlab, five times logistic regression",
        ),
    },
    budgets={
        "smoke": Budget(
            what="one table, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            tasks=("PimaIndiansDiabetes2",),
        ),
        "small": Budget(what="four tables, three seeds", recipe=recipe, seeds=3),
        "full": Budget(what="four tables, ten seeds", recipe=recipe, seeds=10),
    },
    baseline="cleanlab-network",
    metric="auroc",
    beside=("r-precision",),
    page="living-memory",
    notes=(
        "One label in twenty is changed, so among the first 5 % a ranking by chance has 5 % and a "
        "perfect one 100 %. The tables have wrong and doubtful labels of their own, which count as "
        "false alarms.",
        "The time is of all that a row trains and asks; the vote's is that of one training which a "
        "user of the memory has done anyway.",
    ),
)
