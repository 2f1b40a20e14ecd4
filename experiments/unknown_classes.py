"""Unknown classes: rows of classes that training never saw, told by distance, doubt or energy.

Run it, with its cost on one core::

    hma run unknown --budget smoke     # a minute
    hma run unknown --budget small     # digits and two tables, three seeds: half an hour
    hma run unknown --budget full      # Flowers102 as well, twenty seeds: some hours

Published: nothing. A seed holds classes out of training and validation: one in ten of them, at
least one. The default memory is trained on the rest, once for each row of this table, alike. The
score is how well unfamiliarity ranks test rows of the classes held out above the others: AUROC.
``distance`` is that to the rows that vote, :func:`hma.unfamiliarity`; ``max-softmax`` what the
answer's largest probability lacks to 1; ``energy`` the free energy of the head's logits.

Records also hold what thresholds of the validation rows came to on the test rows of known classes:
of sets of labels, and of rows that are called unknown, with the interval in which the share of
covered rows lies in 95 of 100 draws if both kinds of rows are drawn alike. Sets cover more where
the model is better than asked for, since none is empty; so the interval is that of their scores.

Data: scikit-learn's digits; under ``$HMA_DATA`` Vowel and LetterRecognition as M1 has them, and
Flowers102 as M2 has it, with ten labels a class.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hma import MemoryModel, unfamiliarity
from hma.data import InMemory, Split, Task
from hma.data.sets.digits import digits
from hma.methods import with_memory
from hma.methods.cached_features import with_known_features
from hma.methods.memory import WithMemory
from hma.metrics import scores
from hma.paper.table import Budget, Job, Problem, Row, Table
from hma.questions.conformal import class_scores, class_sets, coverage_interval, threshold
from hma.questions.unfamiliar import doubt, energy
from hma.targets import Classes, YesNo
from hma.training import Record, UserRecipe, fit
from hma.vote.config import VoteConfig

from ._vote import PLAIN
from .m1_tables import data as whole_table
from .m1_tables import encoder as network
from .m2_few_labels import encoder as standardised
from .m2_few_labels import few

COVERAGE = 0.9
HELD_OUT = 10
"""One class in so many is held out."""

WHOLE: dict[str, Callable[[int], Task]] = {
    "digits": digits,
    "Vowel": partial(whole_table, "Vowel"),
    "LetterRecognition": partial(whole_table, "LetterRecognition"),
    "Flowers102": partial(few, "Flowers102", 10),
}


def known_classes(classes: int, seed: int) -> Tensor:
    """Return the classes that training sees, drawn by seed, in their order."""
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(classes, generator=draw)
    return order[max(1, classes // HELD_OUT) :].sort().values


def data(name: str, seed: int) -> Task:
    """Return a task without the classes held out, but for the test rows of these: 'strange'."""
    whole = WHOLE[name](seed)
    known = known_classes(len(whole.classes), seed)
    (test,) = whole.tests.values()
    rows = vectors(test)
    strange = ~torch.isin(test.labels, known)
    facts = {**whole.facts, "classes held out": len(whole.classes) - len(known), "seed": seed}
    return replace(
        whole,
        name=f"{name}, {len(known)} of {len(whole.classes)} classes",
        kind="table",
        shape=(rows.shape[1],),
        classes=tuple(whole.classes[c] for c in known.tolist()),
        target=Classes(len(known)),
        train=of_known(whole.train, known),
        validation=of_known(whole.validation, known),
        tests={
            "known": of_known(test, known),
            "strange": InMemory(rows[strange], torch.zeros(int(strange.sum()), dtype=torch.long)),
        },
        facts=facts,
    )


def of_known(split: Split, known: Tensor) -> InMemory:
    """Return the rows of known classes, their classes counted anew."""
    kept = torch.isin(split.labels, known)
    return InMemory(vectors(split)[kept], torch.searchsorted(known, split.labels[kept]))


def vectors(split: Split) -> Tensor:
    """Return the rows of a split as vectors, ``(N, F)``."""
    batch = split.batch(torch.arange(len(split)))
    return (batch.x if batch.features is None else batch.features).flatten(1).float()


Score = Callable[[MemoryModel, Tensor], Tensor]
SCORES: dict[str, Score] = {
    "distance": lambda model, features: unfamiliarity(model, features=features),
    "max-softmax": lambda model, features: doubt(
        model.target.expected(model.classify(features, context="alone"))
    ),
    "energy": lambda model, features: energy(model.head_logits(features)),
}


def ranked(job: Job) -> Record:
    """Train the memory on known classes and rank the test rows."""
    task, seed = job.problem.task(job.cell.seed), job.cell.seed
    config = VoteConfig.from_dict(job.settings["config"])
    learner = with_memory(job.problem.backbone, config, alone=True)(task, seed)
    assert isinstance(learner, WithMemory)
    task = with_known_features(task, learner, job.shared / "features")
    folder = job.folder / "trained"
    record = fit(learner, task, job.recipe, seed=seed, folder=folder, progress=job.progress)
    model = learner.model.eval()
    score = SCORES[job.settings["score"]]
    splits = {"validation": task.validation, **task.tests}
    with torch.no_grad():
        features = {name: encoded(model, split) for name, split in splits.items()}
        far = {name: score(model, rows).double() for name, rows in features.items()}
        said = {n: model.target.expected(model.classify(rows)) for n, rows in features.items()}
    both = torch.cat([far["known"], far["strange"]])
    strange = torch.cat([torch.zeros(len(far["known"])), torch.ones(len(far["strange"]))])
    found = scores(both[:, None], strange[:, None], ("auroc",), target=YesNo(1))
    labels = {name: split.labels for name, split in splits.items()}
    return replace(
        record,
        setup={**record.setup, "method": {"contexts": ["alone"]}},
        tests={"classes held out": {"alone": found}},
        weights_sha256=None,
        measures={**record.measures, "coverage": covered(said, labels, far)},
    )


def encoded(model: MemoryModel, split: Split) -> Tensor:
    """Return the features of rows, ``(N, F)``."""
    batch = split.batch(torch.arange(len(split)))
    made: Tensor = model.backbone(batch.x) if batch.features is None else batch.features
    return made


def covered(
    said: dict[str, Tensor], labels: dict[str, Tensor], far: dict[str, Tensor]
) -> dict[str, Any]:
    """Return what thresholds of the validation rows come to on test rows, in JSON values."""
    rows, tested = len(labels["validation"]), len(labels["known"])
    wrong = {name: class_scores(said[name], labels[name]) for name in ("validation", "known")}
    most = threshold(wrong["validation"], COVERAGE)
    furthest = threshold(far["validation"], COVERAGE)
    sets = class_sets(said["known"], most)
    inside = sets[torch.arange(tested), labels["known"]].double()
    right = (wrong["known"] <= most).double()  # a set has the likeliest class besides
    accepted = (far["known"] <= furthest).double()
    low, high = coverage_interval(rows, COVERAGE, tested)
    return {
        "asked": COVERAGE,
        "validation rows": rows,
        "test rows": tested,
        "interval": [low, high],
        "of scores": float(right.mean()),
        "of sets": float(inside.mean()),
        "labels in a set": float(sets.double().sum(dim=1).mean()),
        "of known rows accepted": float(accepted.mean()),
        "of strange rows rejected": float((far["strange"] > furthest).double().mean()),
        "accepted is within": bool(low <= float(accepted.mean()) <= high),
        "scores are within": bool(low <= float(right.mean()) <= high),
    }


def row(score: str, what: str) -> Row:
    """Return a row that ranks by one score."""
    return Row(work=ranked, settings={"score": score, "config": asdict(PLAIN)}, what=what)


recipe = UserRecipe().fixed()

TABLE = Table(
    key="unknown",
    title="Rows of classes that training never saw",
    problems={
        name: Problem(
            task=partial(data, name),
            backbone=standardised if name == "Flowers102" else network,
        )
        for name in WHOLE
    },
    rows={
        "distance": row("distance", "distance to the rows that vote"),
        "max-softmax": row("max-softmax", "what the largest probability lacks to 1"),
        "energy": row("energy", "free energy of the head's logits"),
    },
    budgets={
        "smoke": Budget(
            what="digits, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            tasks=("digits",),
        ),
        "small": Budget(
            what="digits, Vowel and LetterRecognition, three seeds",
            recipe=recipe,
            seeds=3,
            tasks=("digits", "Vowel", "LetterRecognition"),
        ),
        "full": Budget(what="all four, twenty seeds", recipe=recipe, seeds=20),
    },
    baseline="max-softmax",
    metric="auroc",
    seeds=tuple(range(20)),
    page="living-memory",
    notes=(
        "All rows of a seed rank the answers of one and the same trained model.",
        "Vowel has speakers that a random split mixes.",
        "Flowers102 validates and tests on the same rows with every seed, but for the classes held "
        "out, so seeds share one draw and miss together. Validation rows weigh the vote too, so "
        "sets may cover less than asked for; they do not decide how unfamiliar a row is.",
    ),
)
