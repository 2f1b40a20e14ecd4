"""From a source to a task: splits made by seed, a preparation fitted on the training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hma.data.kinds import KINDS
from hma.data.label_kinds import LABEL_KINDS
from hma.data.options import PreparationOptions
from hma.data.preparation import Preparation
from hma.data.source import Source
from hma.data.splitting import stratified
from hma.data.task import Task
from hma.errors import UserError


@dataclass(frozen=True)
class Prepared:
    """A task and where it came from.

    Args:
        task: What is to be learned.
        preparation: What was fitted on the training rows.
        places: For each split, the row of the source behind each sample id.
        source: The rows as they were.
    """

    task: Task
    preparation: Preparation
    places: dict[str, list[int]]
    source: Source


def prepare(
    source: Source,
    *,
    seed: int,
    validation: float = 0.15,
    test: float = 0.2,
    options: PreparationOptions | None = None,
) -> Prepared:
    """Split a source by label and seed, fit a preparation on the training rows, make a task.

    Args:
        source: Rows with labels.
        seed: Decides the split.
        validation, test: Shares of the rows; without ``test`` the task has no test split.
        options: Choices about the input.
    """
    labels, kind = source.labels, LABEL_KINDS[source.label_kind]
    if labels is None:
        raise UserError(
            f"{source.name} has no labels to learn from; {KINDS[source.kind].unlabelled}"
        )
    kind.expect_learnable(labels, source.label_names, source.labels_from)
    classes = kind.names(labels, source.label_names)
    groups = kind.groups(kind.encoded(labels, classes, source.labels_from))
    places = stratified(groups, seed, validation=validation, test=test)
    share = {"train": 1 - validation - test, "validation": validation, "test": test}
    shares = ", ".join(f"{100 * share[name]:g}% {name}" for name in places)
    facts = {"split": kind.divided.format(shares=shares), "seed": seed}
    return prepare_splits(source, places, classes=classes, seed=seed, facts=facts, options=options)


def prepare_splits(
    source: Source,
    places: Mapping[str, Sequence[int]],
    *,
    classes: tuple[str, ...],
    seed: int,
    facts: Mapping[str, Any],
    options: PreparationOptions | None = None,
) -> Prepared:
    """Make a task of splits that are given.

    Args:
        source: Rows with labels.
        places: Rows of "train", "validation" and any number of tests.
        classes: Names of the classes, or of what else the target has.
        seed: Decides what training sees of rows that are augmented.
        facts: How the splits came about.
        options: Choices about the input.
    """
    options = options or PreparationOptions()
    options.expect_for(source.kind)
    labels, kind = source.labels or (), LABEL_KINDS[source.label_kind]
    learned = [labels[place] for place in places["train"]]
    target = kind.target(kind.encoded(learned, classes, source.labels_from), classes)
    preparation = KINDS[source.kind].fit(source, places["train"], classes, target, options)
    splits = preparation.splits(source, places, options, seed)
    about = {
        "source": source.name,
        "rows": {name: len(rows) for name, rows in places.items()},
        "skipped files": len(source.skipped),
        "fingerprint": source.fingerprint(),
        "preparation": preparation.facts(),
        **preparation.training_facts(options),
    }
    task = Task(
        name=source.name,
        kind=source.kind,
        classes=classes,
        shape=preparation.shape,
        train=splits["train"],
        validation=splits["validation"],
        tests={name: splits[name] for name in places if name not in ("train", "validation")},
        facts={**facts, **about},
        target=target,
    )
    kept = {name: [int(row) for row in rows] for name, rows in places.items()}
    return Prepared(task, preparation, kept, source)
