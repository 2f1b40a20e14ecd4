"""From a source to a task: splits drawn or given, a preparation fitted on the training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from hma.data.division import Division
from hma.data.graph.preparation import GraphPreparation
from hma.data.image.preparation import ImagePreparation
from hma.data.preparation import FORMAT, Preparation, Selection
from hma.data.source import Source, expect_kind
from hma.data.table.preparation import TablePreparation
from hma.data.task import Task
from hma.data.text.preparation import TextPreparation
from hma.errors import UserError
from hma.options.preparation import Kind, PreparationOptions

KINDS: dict[Kind, type[Preparation]] = {
    "table": TablePreparation,
    "image": ImagePreparation,
    "graph": GraphPreparation,
    "text": TextPreparation,
}


def preparation_from_json(values: Any) -> Preparation:
    """Return the preparation that ``to_json`` wrote.

    Args:
        values: What ``to_json`` returned, or ``json.loads`` of it.
    """
    if not isinstance(values, dict):
        raise UserError("the preparation is damaged: it is no JSON object; train again")
    if values.get("format") != FORMAT:
        raise UserError(
            f"the preparation has format {values.get('format')!r}, this version of hma reads "
            f"{FORMAT}; train again, or use the version that wrote it"
        )
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"the preparation is for data of an unknown kind, {kind!r}; train again")
    try:
        return KINDS[kind].from_json(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(f"the preparation is damaged: {error}; train again") from error


@dataclass(frozen=True)
class Prepared:
    """A task and where it came from.

    Args:
        task: What is to be learned.
        preparation: What was fitted on the training rows.
        places: For each split, the row of its source behind each sample id.
        source: The rows as they were; splits that were given have sources of their own.
    """

    task: Task
    preparation: Preparation
    places: dict[str, list[int]]
    source: Source


def prepare(
    source: Source,
    *,
    seed: int,
    validation: float | Source = 0.15,
    test: float | Source = 0.2,
    options: PreparationOptions | None = None,
    group: str | None = None,
    time: str | None = None,
    shift: str | None = None,
) -> Prepared:
    """Divide a source into splits, fit a preparation on the training rows, make a task.

    Splits that come with the source, such as folders for them, are taken as they are. Others are
    drawn from its rows by class and seed, by a column of a table, or by what graphs look like.

    Args:
        source: Rows with labels.
        seed: Decides the split.
        validation, test: Share of the rows, or rows of their own; with 0 for ``test`` the task has
            no test split.
        options: Choices about the input.
        group: Column whose equal values stay in one split; it is not learned from.
        time: Column that orders the rows, numbers or dates: the earliest train, the latest test.
        shift: Divide graphs by size or degree instead of by shares, see
            :class:`hma.data.division.ShiftedGraphs`.
    """
    asked = {"validation": validation, "test": test}
    given = {**source.given, **{n: v for n, v in asked.items() if isinstance(v, Source)}}
    shares = {n: v for n, v in asked.items() if not isinstance(v, Source) and n not in given}
    if shares.get("test") == 0:
        del shares["test"]
    division = Division(shares=shares, group=group, time=time, shift=shift)
    for one in (source, *given.values()):
        one.load()
    rows, classes = _expect_learnable(source)
    kind = source.label_kind
    groups = kind.groups(source.encode_labels(rows, classes))
    places = division.places(source, groups, rows, seed)
    kind.expect_all_in_train(source.encode_labels(places["train"], classes), classes)
    facts = {**division.facts(source, places), "seed": seed}
    if given and shares:
        facts["split"] += f"; {' and '.join(given)} as given"
    if len(rows) < len(source):
        facts["rows without a label left out"] = len(source) - len(rows)
    if group is not None:
        options = options or PreparationOptions()
        options = replace(options, drop=(*options.drop, group))
    return prepare_splits(
        source, places, classes=classes, seed=seed, facts=facts, options=options, given=given
    )


def prepare_splits(
    source: Source,
    places: Mapping[str, Sequence[int]],
    *,
    classes: tuple[str, ...],
    seed: int,
    facts: Mapping[str, Any],
    options: PreparationOptions | None = None,
    given: Mapping[str, Source] = MappingProxyType({}),
) -> Prepared:
    """Make a task of splits that are given.

    Args:
        source: Rows with labels.
        places: Rows of "train", "validation" and any number of tests.
        classes: Names of the classes, or of what else the target has.
        seed: Decides what training sees of rows that are augmented.
        facts: How the splits came about.
        options: Choices about the input.
        given: Splits that are sources of their own.
    """
    options = options or PreparationOptions()
    options.expect_for(source.kind)
    for one in given.values():
        expect_kind(one, source.kind)
    target = source.label_kind.target(source.encode_labels(places["train"], classes), classes)
    preparation = KINDS[source.kind].fit(
        Selection(source, places["train"]), classes, target, options
    )
    parts = {name: Selection(source, rows) for name, rows in places.items()}
    parts |= {
        name: Selection(one, _expect_given(name, one, classes)) for name, one in given.items()
    }
    splits = dict(preparation.splits(source, places, options, seed))
    for name, one in given.items():
        splits |= preparation.splits(one, {name: parts[name].places}, options, seed)
    task = Task(
        name=source.name,
        kind=source.kind,
        classes=classes,
        shape=preparation.shape,
        train=splits["train"],
        validation=splits["validation"],
        tests={name: splits[name] for name in parts if name not in ("train", "validation")},
        facts={**facts, **_facts(source, given, parts, preparation, options)},
        target=target,
    )
    kept = {name: [int(row) for row in part.places] for name, part in parts.items()}
    return Prepared(task, preparation, kept, source)


def _facts(
    source: Source,
    given: Mapping[str, Source],
    parts: Mapping[str, Selection],
    preparation: Preparation,
    options: PreparationOptions,
) -> dict[str, Any]:
    """Return in JSON values where the rows of a task are from and what is done to them."""
    facts = {
        "source": source.name,
        "rows": {name: len(part.places) for name, part in parts.items()},
        "skipped files": sum(len(one.skipped) for one in (source, *given.values())),
        "fingerprint": source.fingerprint(),
        **source.facts(),
        "preparation": preparation.facts(),
        **preparation.training_facts(options),
    }
    if given:
        facts["given"] = {
            name: {"source": one.name, "fingerprint": one.fingerprint()}
            for name, one in given.items()
        }
    if odd := preparation.suspicions(parts["train"], parts["validation"]):
        facts["suspicious columns"] = odd
    return facts


def _expect_learnable(source: Source) -> tuple[list[int], tuple[str, ...]]:
    """Return the rows that have labels, and the names of the classes."""
    labels, kind = source.labels, source.label_kind
    if labels is None:
        raise UserError(
            f"{source.name} has no labels to learn from; {KINDS[source.kind].unlabelled}"
        )
    rows = labelled_rows(source)
    known = [labels[row] for row in rows]
    kind.expect_learnable(known, source.label_names, source.labels_from)
    return rows, kind.names(known, source.label_names)


def labelled_rows(source: Source) -> list[int]:
    """Return the rows of a source that have the labels they must have."""
    missing = source.label_kind.is_missing
    return [place for place, label in enumerate(source.labels or ()) if not missing(label)]


def _expect_given(name: str, source: Source, classes: tuple[str, ...]) -> list[int]:
    """Return the labelled rows of a split that has its own source; raise if there are none."""
    rows = labelled_rows(source)
    if not rows:
        raise UserError(f"{source.name}, given for {name}, has no labelled row; add labels")
    try:
        source.encode_labels(rows, classes)
    except UserError as error:
        raise UserError(f"{source.name}, given for {name}: {error}") from error
    return rows
