"""What the endpoints do: readers answer with a version that does not change, writers in turn."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from threading import Event, Lock
from time import monotonic
from typing import Any

from hma.data.table.columns import CategoryColumn, EmptyColumn, NumberColumn
from hma.data.table.dates import DateColumn
from hma.data.table.preparation import TablePreparation
from hma.errors import UserError
from hma.runs import Run
from hma.runs.card import what_was_done
from hma.runs.coverage import Promising
from hma.runs.living import LivingMemory
from hma.runs.memory_versions import BusyError, Version
from hma.serve.answering import Answering
from hma.serve.requests import MOST_SHOWN
from hma.serve.rows import FIELD, OwnRows, asked_rows, raw_labels

TAUGHT_BY = "a request"
USUAL_COVERAGE = 0.95
POLL = 0.2
"""Seconds between two looks at whether a write should still wait for another writer."""
Values = dict[str, Any]


class ChangedError(UserError):
    """The memory is no longer at the version that was meant."""


class Service:
    """A run that answers requests; each method takes and returns JSON values.

    Args:
        run: A finished run.
        coverage: What sets of labels and intervals promise; None promises 0.95 where there are
            validation rows enough. An answer of which nothing is promised says why in its notes.
    """

    def __init__(self, run: Run, coverage: float | None = None) -> None:
        self.run = run
        self.own = OwnRows(run)
        self._promising = Promising(USUAL_COVERAGE if coverage is None else coverage)
        self._versions = run.versions
        self._opening, self._stopping = Lock(), Event()
        self._now = Answering(run, self.own.source, self._promising)
        if coverage is not None and self._now.unpromised:
            raise UserError(self._now.unpromised)

    def now(self) -> Answering:
        """Return the run with the version in use, whoever wrote it."""
        if self._versions.current()[0] != self._now.number:
            with self._opening:
                if self._versions.current()[0] != self._now.number:
                    self._now = Answering(self._fresh(), self.own.source, self._promising)
        return self._now

    def _fresh(self) -> Run:
        return Run(self.run.folder, self.run.options)

    # ------------------------------------------------------------------------ reading

    def health(self) -> Values:
        """Say that the server answers, and with which version."""
        return {"status": "ok", "version": self.now().number}

    def predict(self, values: Mapping[str, Any]) -> Values:
        """Answer rows, as ``hma predict`` does."""
        now = self.now()
        preparation = now.run.preparation
        asked = asked_rows(values, preparation, self.own)
        return {
            "version": now.number,
            "by": now.deployed.which,
            "predictions": now.predict(asked),
            "notes": [*preparation.notes(asked.source), *now.notes],
        }

    def explain(self, values: Mapping[str, Any]) -> Values:
        """Answer one row, with the stored rows that voted."""
        if not 1 <= values["top"] <= MOST_SHOWN:
            raise UserError(f"top must be from 1 to {MOST_SHOWN}, got {values['top']}")
        now = self.now()
        preparation = now.run.preparation
        asked = asked_rows(values, preparation, self.own)
        if len(asked) != 1:
            raise UserError(f"/explain takes one row, got {len(asked)}; ask for each alone")
        return {
            "version": now.number,
            "by": now.deployed.which,
            "what": asked.what()[0],
            "prediction": now.predict(asked)[0],
            **now.explain(asked, values["top"]),
            "notes": [*preparation.notes(asked.source), *now.notes],
        }

    def memory(self, values: Mapping[str, Any]) -> Values:
        """List rows of the memory."""
        now = self.now()
        return {
            "version": now.number,
            **now.rows(values["class"], values["first"], values["count"]),
        }

    def versions(self) -> Values:
        """List the versions of the memory."""
        now = self.now()
        history = LivingMemory(now.run).history()[: now.number]
        return {"version": now.number, "versions": [in_json(one) for one in history]}

    def about(self) -> Values:
        """Say what the run is, and what may be asked of it."""
        now = self.now()
        preparation, target = now.run.preparation, now.run.preparation.target
        return {
            "name": now.run.folder.resolve().name,
            "kind": preparation.kind,
            "field": FIELD[preparation.kind],
            "columns": columns_of(preparation),
            "labels": {"kind": target.kind, "names": list(preparation.classes)},
            "places": 0 if self.own.source is None else len(self.own.source),
            "deployed": now.deployed.why,
            "coverage": None if now.promise is None else now.promise.coverage,
            "version": now.number,
        }

    # ------------------------------------------------------------------------ writing

    def remember(self, values: Mapping[str, Any], until: float = math.inf) -> Values:
        """Teach rows with their right labels."""
        preparation = self.now().run.preparation
        asked = asked_rows(values, preparation, self.own)
        labels = raw_labels(preparation, values["labels"], len(asked))
        columns = preparation.label_columns if isinstance(preparation, TablePreparation) else ()

        def teach(memory: LivingMemory) -> Version:
            return memory.remember_rows(
                asked.batch,
                labels,
                asked.what(),
                pictures=asked.pictures(),
                cells=asked.cells(columns, labels),
                new_classes=values["new_classes"],
                yes=values["yes"],
                where=TAUGHT_BY,
                note=values["note"],
                scored=False,
            )

        return self._write(teach, until)

    def forget(self, values: Mapping[str, Any], until: float = math.inf) -> Values:
        """Take rows out of the memory."""

        def forget(memory: LivingMemory) -> Version:
            return memory.forget(
                ids=values["ids"],
                where=values["where"],
                label=values["class"],
                yes=values["yes"],
                note=values["note"],
                scored=False,
            )

        return self._write(forget, until)

    def restore(self, values: Mapping[str, Any], until: float = math.inf) -> Values:
        """Let an earlier version answer again; ``now`` guards against another's change between."""

        def restore(memory: LivingMemory) -> Version:
            now, meant = self.now().number, values["now"]
            if meant is not None and meant != now:
                raise ChangedError(
                    f"version {now} answers, not version {meant}: the memory was changed "
                    "meanwhile; look at /versions first"
                )
            return memory.restore(values["version"], scored=False)

        return self._write(restore, until)

    def stop(self) -> None:
        """Refuse every write that is not being committed yet."""
        self._stopping.set()

    def _write(self, change: Callable[[LivingMemory], Version], until: float) -> Values:
        """Change the memory, or raise :class:`BusyError` with nothing written.

        Args:
            change: What to do.
            until: The ``time.monotonic`` up to which other writers are waited for.
        """
        began = monotonic()
        while True:
            self._expect_running()
            left = max(0.0, until - monotonic())
            memory = LivingMemory(
                self.now().run, wait=min(POLL, left), before_commit=self._expect_running
            )
            try:
                return in_json(change(memory))
            except BusyError as error:
                self._expect_running()
                if left <= POLL:
                    raise BusyError(
                        "another process is changing the memory, and still was after "
                        f"{monotonic() - began:.1f} seconds; nothing was written: send it again "
                        "later"
                    ) from error

    def _expect_running(self) -> None:
        if self._stopping.is_set():
            raise BusyError("the server is stopping; nothing was written: send it again later")


def in_json(version: Version) -> Values:
    """Return a version as JSON values, with what was done in words."""
    names = ("number", "parent", "time", "verb", "added", "forgotten", "rows", "remains", "note")
    known = asdict(version)
    return {
        **{name: known[name] for name in names},
        "classes": list(version.classes),
        "said": what_was_done(version),
    }


def columns_of(preparation: Any) -> list[Values]:
    """Return the columns of a table for a form; nothing of other kinds."""
    if not isinstance(preparation, TablePreparation):
        return []
    found: list[Values] = []
    for column in preparation.columns:
        if isinstance(column, CategoryColumn):
            found.append({"name": column.name, "kind": "category", "values": list(column.values)})
        elif isinstance(column, NumberColumn):
            found.append({"name": column.name, "kind": "number", "like": f"{column.mean:.4g}"})
        elif isinstance(column, DateColumn):
            found.append({"name": column.name, "kind": "date", "like": column.format})
        else:
            assert isinstance(column, EmptyColumn)
            found.append({"name": column.name, "kind": "empty"})
    return found
