"""From a source to a task: splits made by seed, a preparation fitted on the training rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hma.data.graph.preparation import GraphPreparation, fit_graphs
from hma.data.image.folder import ImageFolder
from hma.data.image.preparation import ImagePreparation, fit_images, read_all
from hma.data.image.split import AUGMENTATIONS
from hma.data.labels import class_names, encode, expect_learnable
from hma.data.preparation import Preparation, PreparationOptions
from hma.data.source import Source
from hma.data.table.preparation import fit_table
from hma.data.task import Kind, Split, Task
from hma.data.text.preparation import fit_texts
from hma.errors import UserError

Fit = Callable[[Source, Sequence[int], tuple[str, ...], PreparationOptions], Preparation]
FITS: dict[Kind, Fit] = {
    "table": fit_table,
    "image": fit_images,
    "graph": fit_graphs,
    "text": fit_texts,
}
ADVICE: dict[Kind, str] = {
    "table": "name the column of the labels with --target",
    "image": "put the images into one folder for each class, or add y to the .npz",
    "graph": "add NAME_graph_labels.txt",
    "text": 'add "label" to every line',
}


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
    """Split a source by class and seed, fit a preparation on the training rows, make a task.

    Args:
        source: Rows with labels.
        seed: Decides the split.
        validation, test: Shares of the rows; without ``test`` the task has no test split.
        options: Choices about the input.
    """
    if source.labels is None:
        raise UserError(f"{source.name} has no labels to learn from; {ADVICE[source.kind]}")
    expect_learnable(source.labels)
    classes = class_names(source.labels)
    places = stratified(encode(source.labels, classes), seed, validation=validation, test=test)
    share = {"train": 1 - validation - test, "validation": validation, "test": test}
    shares = ", ".join(f"{100 * share[name]:g}% {name}" for name in places)
    facts = {"split": f"stratified by class, by seed: {shares}; every class in train", "seed": seed}
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
        classes: Names of the classes.
        seed: Decides what training sees of rows that are augmented.
        facts: How the splits came about.
        options: Choices about the input.
    """
    options = options or PreparationOptions()
    options.expect_for(source.kind)
    preparation = FITS[source.kind](source, places["train"], classes, options)
    if isinstance(source, ImageFolder) and isinstance(preparation, ImagePreparation):
        read_all(source, preparation.shape)
    splits = _splits(preparation, source, places, options, seed)
    about = {
        "source": source.name,
        "rows": {name: len(rows) for name, rows in places.items()},
        "skipped files": len(source.skipped),
        "fingerprint": source.fingerprint(),
        "preparation": preparation.facts(),
        **_augmentation(preparation, options),
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
    )
    kept = {name: [int(row) for row in rows] for name, rows in places.items()}
    return Prepared(task, preparation, kept, source)


def stratified(
    labels: Tensor, seed: int, *, validation: float, test: float
) -> dict[str, list[int]]:
    """Divide rows by seed so that every split has its share of every class, and train all classes.

    Training rows come in an order of their own, all others as in the file.

    Example:
        >>> parts = stratified(torch.tensor([0, 1] * 10), seed=0, validation=0.2, test=0.2)
        >>> {name: len(rows) for name, rows in parts.items()}
        {'train': 12, 'validation': 4, 'test': 4}
    """
    if not (validation > 0 and test >= 0 and validation + test < 1):
        raise UserError(
            "validation must be above 0, test at least 0, and both together below 1, got "
            f"{validation} and {test}"
        )
    counts = torch.bincount(labels)
    in_test = quotas(counts, test, room=counts - 1)
    in_validation = quotas(counts, validation, room=counts - 1 - in_test)
    generator = torch.Generator().manual_seed(seed)
    parts: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
    for label, (tested, validated) in enumerate(zip(in_test, in_validation, strict=True)):
        rows = (labels == label).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        sizes = [int(tested), int(validated), len(rows) - int(tested) - int(validated)]
        for name, part in zip(
            ("test", "validation", "train"), torch.split(rows, sizes), strict=True
        ):
            parts[name].append(part)
    if test == 0:
        del parts["test"]
    divided = {}
    for name, found in parts.items():
        rows = torch.cat(found)
        if len(rows) == 0:
            raise UserError(f"{len(labels)} rows are too few: none is left for {name}; add rows")
        drawn = rows[torch.randperm(len(rows), generator=generator)].tolist()
        divided[name] = drawn if name == "train" else sorted(drawn)
    return divided


def quotas(counts: Tensor, share: float, *, room: Tensor) -> Tensor:
    """Return how many rows of each class go into a split, by largest remainder.

    Args:
        counts: Rows of each class, ``(C,)``.
        share: Share of all rows wanted.
        room: Most that a class can give, ``(C,)``.

    Example:
        >>> quotas(torch.tensor([10, 5, 2]), 0.2, room=torch.tensor([9, 4, 1])).tolist()
        [2, 1, 0]
    """
    exact = counts.double() * share
    given = torch.minimum(exact.floor().long(), room)
    wanted = min(int(float(exact.sum()) + 0.5), int(room.sum()))
    while int(given.sum()) < wanted:
        lack = (exact - given).masked_fill(given >= room, -torch.inf)
        given[lack.argmax()] += 1
    return given


def _splits(
    preparation: Preparation,
    source: Source,
    places: Mapping[str, Sequence[int]],
    options: PreparationOptions,
    seed: int,
) -> dict[str, Split]:
    if isinstance(preparation, GraphPreparation):
        return dict(zip(places, preparation.splits(source, list(places.values())), strict=True))
    if isinstance(preparation, ImagePreparation):
        return {
            name: preparation.split(
                source,
                rows,
                augment_seed=seed if options.augment and name == "train" else None,
            )
            for name, rows in places.items()
        }
    return {name: preparation.split(source, rows) for name, rows in places.items()}


def _augmentation(preparation: Preparation, options: PreparationOptions) -> dict[str, str]:
    if options.augment and isinstance(preparation, ImagePreparation):
        return {"augmentation": AUGMENTATIONS[preparation.augmentation]}
    return {}
