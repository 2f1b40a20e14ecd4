"""A run folder, opened: its options, its preparation, its trained candidates."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from hma.backbones import Frozen
from hma.data import (
    InMemory,
    Preparation,
    Task,
    preparation_from_json,
)
from hma.errors import UserError
from hma.io.checkpoint import MANIFEST, load
from hma.io.files import remove_abandoned
from hma.io.json_files import Default, read_json
from hma.memory.rows import KeyedRows, MemoryRows
from hma.methods import Learner
from hma.methods.memory import WithMemory, with_memory
from hma.methods.mixture import Completed, Mixture
from hma.model import MemoryModel
from hma.options.config import ConfigError
from hma.runs.deployment import (
    CANDIDATES,
    DEPLOYMENT,
    MEMORY,
    MIXTURE,
    PARAM,
    SIMPLE,
    Deployment,
    Which,
    method_of,
    read_deployment,
    title,
)
from hma.runs.memory_versions import CURRENT, VERSIONS, Living, Trained, VersionStore
from hma.runs.options import OPTIONS, REMEDY, RunOptions
from hma.training import Record
from hma.training.run_folder import load_weights


@dataclass(frozen=True)
class RowShape:
    """What a backbone needs to know of the data."""

    name: str
    kind: Any
    shape: tuple[int, ...]


def bare_task(preparation: Preparation) -> Task:
    """Return the task that a preparation was fitted for, without its rows."""
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


WRITTEN_AT_ONCE = 1024


def keyed_rows(model: MemoryModel, what: str = "this run") -> KeyedRows:
    """Return the rows of a memory that can be taught and made to forget, or say what is needed."""
    try:
        return model.stored_samples("this")
    except ConfigError as error:
        raise UserError(
            f"{what} has no memory that keeps a row for each sample, which is needed to list, "
            "teach or forget rows; train again with --memory vote"
        ) from error


@torch.no_grad()
def with_version(model: MemoryModel, living: Living) -> MemoryModel:
    """Return ``model``, as training left it, with the rows and classes of a version.

    It holds the rows that training stored, without the forgotten ones, then those it was taught:
    a row that was forgotten leaves no trace, as if it had never been stored.
    """
    if not living.chain:
        return model
    if living.classes:
        model.add_classes(len(living.classes))
    store, rows = keyed_rows(model), living.rows
    store.forget(living.forgotten)
    for some in torch.split(torch.arange(len(rows)), WRITTEN_AT_ONCE):
        store.write(MemoryRows(rows.features[some], rows.labels[some], rows.ids[some]))
    store.trim()
    model.reproject()
    return model


def with_classes(preparation: Preparation, names: tuple[str, ...]) -> Preparation:
    """Return a preparation that knows classes which were added after training."""
    if not names:
        return preparation
    grown = preparation.target.grown(len(names))
    return replace(preparation, classes=(*preparation.classes, *names), target=grown)


PREPARATION, PLACES = "preparation.json", "places.json"
VALIDATION = "validation"
MODEL = f"{MEMORY}/model"
BEFORE = "before_refit"
"""Where a run that was fitted again keeps its candidates as validation judged them."""
FEATURES = "features"
ENCODED = 32
"""Rows that a frozen backbone encodes at a time: few, so that a person sees it go on."""


@dataclass(frozen=True)
class Run:
    """What ``hma train`` left behind in ``folder``, and what its memory was taught since.

    Args:
        folder: Where.
        options: What was asked for.
        held: What the memory holds; that of the version in use, as it is when it is first asked
            for, if not given.
    """

    folder: Path
    options: RunOptions
    held: Living | None = None
    judged: bool = False
    """Whether its models are those that validation rows judged, before they learned from them."""

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """Open a finished run, or say what is missing."""
        path = folder / OPTIONS
        if not path.is_file():
            raise UserError(
                f"{folder} is not a run: it has no run.json; give a folder that hma train wrote"
            )
        run = cls(folder, RunOptions.read(path))
        remove_abandoned(folder, below=True)
        if not (folder / MODEL / MANIFEST).is_file():
            raise UserError(f"the run in {folder} did not finish; run its hma train command again")
        return run

    def at(self, held: Living | None) -> "Run":
        """Return the run with another version of its memory; None for that in use.

        What was read of what training left is not read again.
        """
        found = replace(self, held=held)
        left = ("versions", "trained_preparation", "places", "_frozen")
        found.__dict__.update({name: self.__dict__[name] for name in left if name in self.__dict__})
        return found

    @property
    def refitted(self) -> bool:
        """Whether its models learned from the validation rows too."""
        return self.options.refit == "yes" and not self.judged

    @cached_property
    def before(self) -> "Run":
        """The run with the models that its validation rows can judge.

        They are those of before they learned from these rows, the memory with what it was taught
        since. Where none learned from them it is the run itself.
        """
        if not self.refitted:
            return self
        found = replace(self, judged=True, held=self.living)
        shared = ("versions", "trained_preparation", "places", "_frozen")
        found.__dict__.update({name: getattr(self, name) for name in shared})
        return found

    @property
    def judging(self) -> "Run":
        """The run whose models its test rows judge; where it has none its validation rows do."""
        return self if set(self.places) - {"train", VALIDATION} else self.before

    def candidate_folder(self, which: Which) -> Path:
        """Return where the record and the weights of a candidate are."""
        return (self.folder / BEFORE if self.judged else self.folder) / which

    @property
    def learned(self) -> dict[str, list[int]]:
        """Row of its source behind each sample id that training gave, by split, in this order."""
        names = ("train", VALIDATION) if self.refitted else ("train",)
        return {name: self.places.get(name, []) for name in names}

    @property
    def learned_rows(self) -> int:
        """How many rows training stored: ids of rows that are taught count on."""
        return sum(map(len, self.learned.values()))

    @cached_property
    def versions(self) -> VersionStore:
        """The versions of the memory."""
        shape = {"feature_dim": int, "key_width": Default(int, 0)}
        saved = read_json(self.folder / MODEL / MANIFEST, shape, remedy=REMEDY)
        trained = Trained(
            weights=self.record(MEMORY).weights_sha256,
            rows=self.learned_rows,
            width=saved["feature_dim"] + saved["key_width"],
            classes=self.trained_preparation.classes,
            target=self.trained_preparation.target,
        )
        return VersionStore(self.folder / MEMORY, trained)

    @cached_property
    def living(self) -> Living:
        """What the memory that answers holds besides what training left."""
        if self.held is not None:
            return self.held
        changed = any((self.folder / MEMORY / name).exists() for name in (CURRENT, VERSIONS))
        return self.versions.living() if changed else Living()

    @cached_property
    def preparation(self) -> Preparation:
        """What was fitted on the training rows, with the classes that the memory was taught."""
        return with_classes(self.trained_preparation, self.living.classes)

    @cached_property
    def trained_preparation(self) -> Preparation:
        """What was fitted on the training rows."""
        path = self.folder / PREPARATION
        values = read_json(path, dict, sealed=True, remedy=REMEDY)
        try:
            return preparation_from_json(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Row of the source behind each sample id, for each split."""
        shape = dict[str, list[int]]
        found: dict[str, list[int]] = read_json(
            self.folder / PLACES, shape, sealed=True, remedy=REMEDY
        )
        return found

    @property
    def candidates(self) -> tuple[Which, ...]:
        """What was trained side by side, the plain backbone first."""
        return tuple(n for n in CANDIDATES if (self.candidate_folder(n) / "record.json").is_file())

    @property
    def answering(self) -> tuple[Which, ...]:
        """Everything that can be asked: the candidates, and their mixture if there is one."""
        mixed = len(set(self.candidates) - {PARAM}) > 1 and (self.folder / DEPLOYMENT).exists()
        return (*self.candidates, *((MIXTURE,) if mixed else ()))

    def record(self, which: Which) -> Record:
        """Return the record of one of the trainings."""
        return Record.read(self.candidate_folder(which) / "record.json")

    @property
    def deployed(self) -> Deployment:
        """What answers new rows by default, and why."""
        found = read_deployment(self.folder, self.preparation.target)
        if found is None:
            raise UserError(
                f"{self.folder / DEPLOYMENT} is missing; run the hma train command of this run "
                "again, which repeats no training"
            )
        return found

    @property
    def simple_rows(self) -> dict[str, dict[str, dict[str, float]]]:
        """Scores of simple baselines on the test rows: test split -> row -> metric -> value."""
        target = self.preparation.target
        kept = {title(n, target): self.record(n) for n in (*SIMPLE, PARAM) if n in self.candidates}
        tests = dict.fromkeys(test for record in kept.values() for test in record.tests)
        return {
            test: {row: record.tests[test]["alone"] for row, record in kept.items()}
            for test in tests
        }

    def learner(self, which: Which, memory: WithMemory | None = None) -> Learner:
        """Return one of the trained candidates, or their mixture, in eval mode.

        A frozen backbone is one and the same object for all of them.

        Args:
            which: The candidate.
            memory: The memory of this version, where it is loaded already.
        """
        if which not in self.answering:
            known = ", ".join(self.answering)
            raise UserError(f"{self.folder} has no {which!r}; it has {known}")
        if which == MIXTURE:
            return self._mixture(self._learners(self._shares, memory))
        return self._learners([which], memory)[which]

    def learners(self) -> dict[Which, Learner]:
        """Return every candidate, and the mixture of the same objects if there is one."""
        found = self._learners(self.candidates)
        if MIXTURE in self.answering:
            found[MIXTURE] = self._mixture(found)
        return found

    def _learners(
        self, names: Iterable[Which], memory: WithMemory | None = None
    ) -> dict[Which, Learner]:
        """Return candidates; classes that were added are the memory's to answer for."""
        names = list(names)
        if memory is None and (MEMORY in names or self.living.classes):
            memory = WithMemory(self._model(self._backbone), alone=True)
        found: dict[Which, Learner] = {}
        for which in names:
            if which == MEMORY and memory is not None:
                found[which] = memory
                continue
            found[which] = self._as_trained(which)
            if memory is not None and self.living.classes:
                found[which] = Completed(found[which], memory)
        return found

    def _as_trained(self, which: Which) -> Learner:
        task = bare_task(self.trained_preparation)
        method = method_of(which, task, self._backbone, self.options.config)
        learner = method(task, self.options.seed)
        self._load(which, learner)
        return learner

    def _load(self, which: Which, learner: Learner) -> None:
        path = self.candidate_folder(which) / "weights.safetensors"
        load_weights(learner, path, self.record(which).weights_sha256, REMEDY)
        learner.module.eval()

    @property
    def _shares(self) -> Mapping[Which, float]:
        shares = self.deployed.mixed
        if lost := [name for name in shares if name not in self.candidates]:
            raise UserError(
                f"there is no record in {self.folder / lost[0]}, which counts in the mixture of "
                "this run; restore it from a copy, or give the run's hma train command again"
            )
        return shares

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
        return backbone(RowShape(self.folder.name, self.preparation.kind, self.preparation.shape))

    def _model(self, backbone: nn.Module) -> MemoryModel:
        if not self.judged:
            return with_version(load(self.folder / MODEL, backbone), self.living)
        method = with_memory(lambda task: backbone, self.options.config, alone=True)
        learner = method(bare_task(self.trained_preparation), self.options.seed)
        self._load(MEMORY, learner)
        return with_version(cast("WithMemory", learner).model, self.living.as_judged())
