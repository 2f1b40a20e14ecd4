"""A run folder, opened: its options, its preparation, its trained candidates."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from hma.backbones import Frozen
from hma.checkpoint import MANIFEST, load
from hma.data import (
    InMemory,
    Preparation,
    Prepared,
    Source,
    Task,
    builtin,
    is_builtin,
    open_source,
    preparation_from_json,
    prepare,
)
from hma.errors import UserError
from hma.json_files import read_json
from hma.methods import Learner
from hma.methods.memory import WithMemory
from hma.methods.mixture import Mixture
from hma.model import HMA
from hma.runs.candidates import CANDIDATES, MEMORY, MIXTURE, PLAIN, Which, method_of
from hma.runs.deployment import Deployment, deployment_before, read_deployment
from hma.runs.options import OPTIONS, REMEDY, RunOptions
from hma.training import Record
from hma.training.kept_weights import load_weights

__all__ = ["MEMORY", "MIXTURE", "PLAIN", "Run", "Which", "prepared_from", "rows_for", "source_from"]

PREPARATION, PLACES = "preparation.json", "places.json"
MODEL = f"{MEMORY}/model"
SIMPLE = "simple.json"
FEATURES = "features"
ENCODED = 32
"""Rows that a frozen backbone encodes at a time: few, so that a person sees it go on."""


@dataclass(frozen=True)
class Run:
    """What ``hma train`` left behind in ``folder``."""

    folder: Path
    options: RunOptions

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """Open a finished run, or say what is missing."""
        path = folder / OPTIONS
        if not path.is_file():
            raise UserError(
                f"{folder} is no run of hma: it has no run.json; give a folder that hma train wrote"
            )
        run = cls(folder, RunOptions.read(path))
        if not (folder / MODEL / MANIFEST).is_file():
            raise UserError(f"the run in {folder} did not finish; run its hma train command again")
        return run

    @cached_property
    def preparation(self) -> Preparation:
        """What was fitted on the training rows."""
        path = self.folder / PREPARATION
        values = read_json(path, dict, remedy=REMEDY)
        try:
            return preparation_from_json(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Row of the source behind each sample id, for each split."""
        shape = dict[str, list[int]]
        found: dict[str, list[int]] = read_json(self.folder / PLACES, shape, remedy=REMEDY)
        return found

    @property
    def candidates(self) -> tuple[Which, ...]:
        """What was trained side by side, the plain backbone first."""
        return tuple(n for n in CANDIDATES if (self.folder / n / "record.json").is_file())

    def record(self, which: Which) -> Record:
        """Return the record of one of the trainings."""
        return Record.read(self.folder / which / "record.json")

    @property
    def deployed(self) -> Deployment:
        """What answers new rows by default, and why."""
        found = read_deployment(self.folder, self.preparation.target)
        if found is not None:
            return found
        plain = self.record(PLAIN) if PLAIN in self.candidates else None
        return deployment_before(self.record(MEMORY), plain, self.preparation.target)

    @property
    def simple_rows(self) -> dict[str, dict[str, dict[str, float]]]:
        """Scores of simple methods on the same rows: test split -> row -> metric -> value."""
        path = self.folder / SIMPLE
        if not path.is_file():
            return {}
        shape = dict[str, dict[str, dict[str, float]]]
        found: dict[str, dict[str, dict[str, float]]] = read_json(path, shape, remedy=REMEDY)
        return found

    def prepared(self) -> Prepared:
        """Open the training data again and make the same task of it."""
        return prepared_from(self.options)

    def learner(self, which: Which) -> Learner:
        """Return one of the trained candidates, or their mixture, in eval mode.

        A frozen backbone is one and the same object for all of them.
        """
        if which == MIXTURE:
            return self._mixture({name: self.learner(name) for name in self._shares})
        if which not in self.candidates:
            known = ", ".join((*self.candidates, MIXTURE))
            raise UserError(f"{self.folder} has no {which!r}; it has {known}")
        if which == MEMORY:
            return WithMemory(self._model(self._backbone), alone=True)
        method = method_of(which, lambda task: self._backbone)
        learner = method(_bare_task(self.preparation), self.options.seed)
        path = self.folder / which / "weights.safetensors"
        load_weights(learner, path, self.record(which).weights_sha256, REMEDY)
        learner.module.eval()
        return learner

    def learners(self) -> dict[Which, Learner]:
        """Return every candidate, and where there are several the mixture of the same objects."""
        found = {which: self.learner(which) for which in self.candidates}
        if len(found) > 1:
            found[MIXTURE] = self._mixture(found)
        return found

    @property
    def _shares(self) -> Mapping[Which, float]:
        return self.deployed.asked(MIXTURE).counted

    def _mixture(self, learners: Mapping[Which, Learner]) -> Mixture:
        shares: dict[str, float] = dict(self._shares.items())
        return Mixture({name: learners[name] for name in self._shares}, shares)

    @property
    def _backbone(self) -> nn.Module:
        """A backbone to give weights to, or the frozen one with its weights."""
        return self._frozen or self._fresh()

    @cached_property
    def _frozen(self) -> Frozen | None:
        if not self.options.frozen_backbone:
            return None
        backbone = self._fresh()
        self._model(backbone)  # it is kept once, with the memory
        return cast("Frozen", backbone)

    def _fresh(self) -> nn.Module:
        with warnings.catch_warnings():  # a frozen backbone gets its weights from the run
            warnings.simplefilter("ignore")
            backbone = self.options.backbone_factory()
        return backbone(_Shape(self.folder.name, self.preparation.kind, self.preparation.shape))

    def _model(self, backbone: nn.Module) -> HMA:
        return load(self.folder / MODEL, backbone)


@dataclass(frozen=True)
class _Shape:
    """What a backbone needs to know of the data."""

    name: str
    kind: Any
    shape: tuple[int, ...]


def _bare_task(preparation: Preparation) -> Task:
    """Return a task without rows: enough to build a learner whose weights are then replaced."""
    none = InMemory(torch.empty(0), torch.empty(0, dtype=torch.long))
    return Task(
        name="rows to come",
        kind=preparation.kind,
        classes=preparation.classes,
        shape=preparation.shape,
        train=none,
        validation=none,
        tests={},
        target=preparation.target,
    )


def prepared_from(options: RunOptions, *, download: bool = False) -> Prepared:
    """Open the data that ``options`` name, split and prepare it.

    Args:
        options: What to open.
        download: Fetch built-in data that is not there.
    """
    root = None if options.data_root is None else Path(options.data_root)
    if is_builtin(options.source):
        _expect_own_splits(options)
        return builtin(
            options.source,
            seed=options.seed,
            data_root=root,
            download=download,
            options=options.preparation,
        )
    if download:
        raise UserError(
            f"download is for built-in data such as mnist or tu:PROTEINS, got {options.source}"
        )
    return prepare(
        source_from(options),
        seed=options.seed,
        validation=_share_or_rows(options, "validation"),
        test=_share_or_rows(options, "test"),
        options=options.preparation,
        group=options.group,
        time=options.time,
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


def rows_for(
    run: Run,
    source: str,
    *,
    labelled: bool,
    target: Sequence[str] = (),
    skip_bad_files: bool = False,
    skip_missing_labels: bool = False,
) -> Source:
    """Open new rows for a run; where labels are not needed they are not looked at.

    Args:
        run: The run that will answer.
        source: As :func:`hma.data.open_source` takes it.
        labelled: Whether labels are needed.
        target: Columns of the labels; those of training if not given.
        skip_bad_files: Leave out images that cannot be read.
        skip_missing_labels: Leave out rows without a label.
    """
    opened = open_source(
        source,
        target=(target or run.options.target) if labelled else None,
        task=run.options.task if labelled else None,
        data_root=None if run.options.data_root is None else Path(run.options.data_root),
        skip_bad_files=skip_bad_files,
        skip_missing_labels=skip_missing_labels,
        seed=run.options.seed,
    )
    if opened.given:
        held = next(iter(opened.given.values()))
        raise UserError(f"{source} holds splits; give one of them, such as {source}/{held.name}")
    return opened
