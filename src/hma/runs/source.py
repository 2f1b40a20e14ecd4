"""The rows of a run: opened as its options say; opened again only if they are still the same."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hma.backbones import Frozen
from hma.data import (
    Preparation,
    Prepared,
    Source,
    Split,
    Task,
    builtin,
    is_builtin,
    labelled_rows,
    open_source,
    prepare,
)
from hma.data.table.source import is_table
from hma.data.task import split_hashes
from hma.errors import UserError
from hma.io.tensor_files import read_features
from hma.methods import Learner
from hma.methods.cached_features import with_known_features
from hma.methods.memory import WithMemory
from hma.runs.deployment import MEMORY
from hma.runs.folder import ENCODED, FEATURES, PLACES, VALIDATION, Run
from hma.runs.options import REMEDY, RunOptions
from hma.training import Progress, progress_ticker


def prepared_from(
    options: RunOptions, *, download: bool = False, progress: Progress | None = None
) -> Prepared:
    """Open the data that ``options`` name, split and prepare it.

    Args:
        options: What to open.
        download: Fetch built-in data that is not there.
        progress: Shows how many rows were encoded or decoded before they could be prepared.
    """
    root = None if options.data_root is None else Path(options.data_root)
    if is_builtin(options.source):
        _expect_own_splits(options)
        with progress_ticker(progress, "encoding") as told:
            return builtin(
                options.source,
                seed=options.seed,
                data_root=root,
                download=download,
                options=options.preparation,
                shift=options.shift,
                told=told,
            )
    if download:
        raise UserError(
            f"download is for built-in data such as mnist or tu:PROTEINS, got {options.source}"
        )
    source = source_from(options)
    with progress_ticker(progress, "decoding") as source.told:
        return prepare(
            source,
            seed=options.seed,
            validation=_share_or_rows(options, "validation"),
            test=_share_or_rows(options, "test"),
            options=options.preparation,
            group=options.group,
            time=options.time,
            shift=options.shift,
        )


def source_from(options: RunOptions, spec: str | None = None) -> Source:
    """Open the rows that ``options`` name, or those of ``spec`` as these are opened."""
    return open_source(
        spec or options.source,
        target=options.target,
        task=options.task,
        data_root=None if options.data_root is None else Path(options.data_root),
        skip_bad_files=options.skip_bad_files,
        skip_missing_labels=options.skip_missing_labels,
        encoding=options.encoding,
        text=options.text,
        seed=options.seed,
    )


def _share_or_rows(options: RunOptions, name: str) -> float | Source:
    """Return the share of the rows for a split, or its rows where they are given."""
    asked: float | str = getattr(options, name)
    if not isinstance(asked, str):
        return asked
    if not Path(asked).exists():
        raise UserError(
            f"--{name} must be a share of the rows such as 0.15, or a file or folder that is "
            f"there, got {asked}"
        )
    return source_from(options, asked)


def _expect_own_splits(options: RunOptions) -> None:
    """Raise if built-in data is to be divided otherwise."""
    for name in ("validation", "test", "group", "time"):
        value = getattr(options, name)
        if isinstance(value, str):
            raise UserError(
                f"{options.source} comes in splits of its own; leave --{name} {value} out"
            )


def training_source(run: Run) -> Source:
    """Open the rows the run was trained on."""
    source = source_from(run.options)
    _expect_unchanged(run, {"fingerprint": source.fingerprint()})
    return source


def training_task(run: Run) -> Prepared:
    """Open them and make the same task of them."""
    if not is_builtin(run.options.source):
        training_source(run)  # first of all: other rows may make no sense as this task
    prepared = prepared_from(run.options)
    facts = prepared.task.facts
    _expect_unchanged(run, {name: facts.get(name) for name in ("fingerprint", "given")})
    return prepared


def learned_sources(run: Run, training: Source) -> dict[str, Source]:
    """Return where the rows of each split that a run learned from are.

    Args:
        run: A finished run.
        training: Its training rows, as :func:`training_source` opened them.
    """
    given = run.record(MEMORY).setup["task"]["facts"].get("given", {})
    found = dict.fromkeys(run.learned, training)
    if VALIDATION in found and VALIDATION in given:
        held = training.given.get(VALIDATION)
        held = source_from(run.options, str(run.options.validation)) if held is None else held
        if held.fingerprint() != given[VALIDATION]["fingerprint"]:
            raise _changed(run, "the validation data")
        found[VALIDATION] = held
    return found


def with_features(run: Run, task: Task, learner: Learner, progress: Progress | None = None) -> Task:
    """Return the task as the learner was trained on it: a frozen backbone's features are kept.

    Args:
        run: A finished run.
        task: Its task, with rows.
        learner: One of its learners.
        progress: Shows how far the backbone is, where the features are made again.
    """
    with progress_ticker(progress, "encoding") as tick:
        return with_known_features(
            task, learner, run.folder / FEATURES, batch_size=ENCODED, tick=tick
        )


@torch.no_grad()
def features_of(
    learner: WithMemory, split: Split, batch_size: int, places: Tensor | None = None
) -> Tensor:
    """Return the features of rows ``(N, F)``: those that are known, or what the backbone makes."""
    backbone = learner.model.backbone.eval()
    wanted = torch.arange(len(split)) if places is None else places
    batches = [split.batch(rows) for rows in torch.split(wanted, batch_size)]
    return torch.cat([backbone(b.x) if b.features is None else b.features for b in batches])


def training_features(run: Run, learner: WithMemory, samples: Sequence[int]) -> Tensor | None:
    """Return what a frozen backbone made of rows it learned from ``(N, F)``; None if that is gone.

    Args:
        run: A finished run, whose data has not changed.
        learner: Its memory.
        samples: Sample ids of the rows.
    """
    facts = run.record(MEMORY).setup["task"]["facts"].get("features")
    backbone = learner.model.backbone
    if not isinstance(facts, dict) or not isinstance(backbone, Frozen):
        return None
    width = learner.model.feature_dim
    shapes = {_feature_name(name): (len(places), width) for name, places in run.learned.items()}
    kept = read_features(run.folder / FEATURES, str(facts.get("key")), shapes)
    if kept is None:
        return None
    rows_asked = torch.as_tensor(list(samples), dtype=torch.long)
    return backbone.standardise(torch.cat([kept[name] for name in shapes])[rows_asked])


def features_of_run(run: Run, prepared: Prepared) -> dict[str, Tensor] | None:
    """Return what the frozen backbone of a run made of rows, in the order of another division.

    None where these were not kept, where the rows are prepared otherwise, or where the run did
    not see all of them.

    Args:
        run: A finished run.
        prepared: The same source, divided by another seed.
    """
    facts = run.record(MEMORY).setup["task"]["facts"]
    alike = _input_of(run.trained_preparation) == _input_of(prepared.preparation)
    if not alike or "features" not in facts:
        return None
    kept = read_features(run.folder / FEATURES, facts["features"]["key"], {})
    if kept is None:
        return None
    given = facts.get("given", {})
    known: dict[tuple[str, int], Tensor] = {}
    for split, places in run.places.items():
        made = kept.get(_feature_name(split))
        if made is None or len(made) != len(places):
            return None
        known |= {(_source_of(split, given), p): row for p, row in zip(places, made, strict=True)}
    wanted = {
        split: [(_source_of(split, given), place) for place in places]
        for split, places in prepared.places.items()
    }
    if not all(row in known for rows in wanted.values() for row in rows):
        return None
    return {
        _feature_name(split): torch.stack([known[row] for row in rows])
        for split, rows in wanted.items()
        if rows
    }


def _input_of(preparation: Preparation) -> dict[str, Any]:
    """Return what becomes of the input of a row, as JSON values."""
    return {name: value for name, value in preparation.to_json().items() if name != "labels"}


def _feature_name(split: str) -> str:
    return f"{split if split in ('train', 'validation') else f'test {split}'}/features"


def _source_of(split: str, given: Mapping[str, Any]) -> str:
    """Return where the rows of a split are from: a source of its own has the split's name."""
    return split if split in given else ""


def rows_trained_on(run: Run, source: Source) -> int:
    """Return how many rows of a source the model was trained on, or its memory was taught.

    Taught rows are recognised by what they hold. Of training rows that is as far as it can be told:
    all of them if it is the source of the training; of another table those that are equal once they
    are prepared. Of other kinds none is found.
    """
    fingerprint = source.fingerprint()
    if len(run.living.rows):
        hashes = split_hashes(run.preparation.split(source, labelled_rows(source)))
        if taught := int(torch.isin(hashes, run.living.rows.hashes).sum()):
            return taught
    if fingerprint == run.record(MEMORY).setup["task"]["facts"].get("fingerprint"):
        given = run.record(MEMORY).setup["task"]["facts"].get("given", {})
        return sum(len(places) for name, places in run.learned.items() if name not in given)
    if source.kind != "table" or is_builtin(run.options.source):
        return 0
    try:
        training = source_from(run.options)
    except UserError:  # it is no longer there
        return 0
    known: set[bytes] = set()
    sources = learned_sources(run, training)
    behind = [place_of(run, sources, i) for i in range(run.learned_rows)]
    for part, places in by_source(behind):
        known |= set(_rows(run, part, places))
    return sum(row in known for row in _rows(run, source, labelled_rows(source)))


def _rows(run: Run, source: Source, places: Sequence[int]) -> list[bytes]:
    split = run.preparation.split(source, places)
    return [row.numpy().tobytes() for row in split.batch(torch.arange(len(split))).x]


def _expect_unchanged(run: Run, found: Mapping[str, Any]) -> None:
    facts = run.record(MEMORY).setup["task"]["facts"]
    changed = [name for name, value in found.items() if facts.get(name) != value]
    if changed:
        what = "data to validate or test on" if changed == ["given"] else run.options.source
        raise _changed(run, what)


def _changed(run: Run, what: str) -> UserError:
    return UserError(
        f"{what} has changed since {run.folder} was trained on it, so its rows "
        "are not those the model remembers; put the old data back, or train again"
    )


def place_of(run: Run, sources: Mapping[str, Source], sample: int) -> tuple[Source, int]:
    """Return the source behind a sample id that training gave, and its row there.

    Args:
        run: A finished run.
        sources: As :func:`learned_sources` returned them.
        sample: The id.
    """
    first = 0
    for split, places in run.learned.items():
        at = sample - first
        if 0 <= at < len(places) and 0 <= places[at] < len(sources[split]):
            return sources[split], places[at]
        first += len(places)
    raise UserError(
        f"{run.folder / PLACES} is damaged: it has no row of {run.options.source} for sample "
        f"{sample}; {REMEDY}"
    )


def by_source(behind: Iterable[tuple[Source, int]]) -> Iterator[tuple[Source, list[int]]]:
    """Yield each source with its rows, in the order in which they come.

    Args:
        behind: As :func:`place_of` returned them.
    """
    for _, group in groupby(behind, key=lambda one: id(one[0])):
        rows = list(group)
        yield rows[0][0], [place for _, place in rows]


def rows_for(
    run: Run,
    source: str,
    *,
    labelled: bool,
    target: Sequence[str] = (),
    skip_bad_files: bool = False,
    skip_missing_labels: bool = False,
    encoding: str | None = None,
) -> Source:
    """Open new rows for a run; where labels are not needed they are not looked at.

    Args:
        run: The run that will answer.
        source: As :func:`hma.data.open_source` takes it.
        labelled: Whether labels are needed.
        target: Columns of the labels; those of training if not given.
        skip_bad_files: Leave out images that cannot be read.
        skip_missing_labels: Leave out rows without a label.
        encoding: How a text file is written; as the training rows if not given.
    """
    opened = open_source(
        source,
        target=(target or run.options.target) if labelled else None,
        task=run.options.task if labelled else None,
        data_root=None if run.options.data_root is None else Path(run.options.data_root),
        skip_bad_files=skip_bad_files,
        skip_missing_labels=skip_missing_labels,
        encoding=encoding or run.options.encoding,
        text=run.options.text if is_table(Path(source)) else None,
        seed=run.options.seed,
    )
    if opened.given:
        held = next(iter(opened.given.values()))
        raise UserError(f"{source} holds splits; give one of them, such as {source}/{held.name}")
    return opened if labelled else opened.without_labels()
