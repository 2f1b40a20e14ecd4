"""What the endpoints do: readers answer with a version that does not change, writers in turn."""

from collections.abc import Mapping
from dataclasses import asdict
from threading import Lock
from typing import Any

from hma.data.table.columns import CategoryColumn, EmptyColumn, NumberColumn
from hma.data.table.dates import DateColumn
from hma.data.table.preparation import TablePreparation
from hma.errors import UserError
from hma.runs import Run
from hma.runs.coverage import Thresholds, kept_thresholds
from hma.runs.living import LivingMemory
from hma.runs.memory_lines import what_was_done
from hma.runs.version import Version
from hma.serve.answering import CONTEXT, Answering
from hma.serve.requests import MOST_SHOWN
from hma.serve.rows import FIELD, OwnRows, asked_rows, raw_labels

TAUGHT_BY = "a request"
USUAL_COVERAGE = 0.95
Values = dict[str, Any]


class ChangedError(UserError):
    """The memory is no longer at the version that was meant."""


class Service:
    """A run that answers requests; each method takes and returns JSON values.

    Args:
        run: A finished run.
        coverage: What sets of labels and intervals promise; None promises 0.95 where the run keeps
            what that needs, and nothing elsewhere.
    """

    def __init__(self, run: Run, coverage: float | None = None) -> None:
        self.run = run
        self.own = OwnRows(run)
        self.promise = _promise(run, coverage)
        self._versions = run.versions
        self._opening, self._writing = Lock(), Lock()
        self._now = Answering(run, self.own.source, self.promise)

    def now(self) -> Answering:
        """Return the run with the version in use, whoever wrote it."""
        if self._versions.current()[0] != self._now.number:
            with self._opening:
                if self._versions.current()[0] != self._now.number:
                    self._now = Answering(self._fresh(), self.own.source, self.promise)
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
            "notes": preparation.notes(asked.source),
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
            "notes": preparation.notes(asked.source),
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
        history = LivingMemory(self.now().run).history()
        return {"version": self.now().number, "versions": [in_json(one) for one in history]}

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
            "coverage": None if self.promise is None else self.promise.coverage,
            "version": now.number,
        }

    # ------------------------------------------------------------------------ writing

    def remember(self, values: Mapping[str, Any]) -> Values:
        """Teach rows with their right labels."""
        with self._writing:
            memory = LivingMemory(self.now().run)
            preparation = memory.run.preparation
            asked = asked_rows(values, preparation, self.own)
            labels = raw_labels(preparation, values["labels"], len(asked))
            columns = preparation.label_columns if isinstance(preparation, TablePreparation) else ()
            version = memory.remember_rows(
                asked.batch,
                labels,
                asked.what(),
                pictures=asked.pictures(),
                cells=asked.cells(columns, labels),
                new_classes=values["new_classes"],
                where=TAUGHT_BY,
                note=values["note"],
                scored=False,
            )
            return self._written(version)

    def forget(self, values: Mapping[str, Any]) -> Values:
        """Take rows out of the memory."""
        with self._writing:
            version = LivingMemory(self.now().run).forget(
                ids=values["ids"],
                where=values["where"],
                label=values["class"],
                yes=values["yes"],
                note=values["note"],
                scored=False,
            )
            return self._written(version)

    def restore(self, values: Mapping[str, Any]) -> Values:
        """Let an earlier version answer again; ``now`` guards against another's change between."""
        with self._writing:
            memory, meant = LivingMemory(self.now().run), values["now"]
            if meant is not None and meant != self.now().number:
                raise ChangedError(
                    f"version {self.now().number} answers, not version {meant}: the memory was "
                    "changed meanwhile; look at /versions first"
                )
            return self._written(memory.restore(values["version"], scored=False))

    def _written(self, version: Version) -> Values:
        self.now()  # opened now, not for the first who asks
        return in_json(version)


def _promise(run: Run, coverage: float | None) -> Thresholds | None:
    """Return what is promised of answers, by thresholds that the run keeps."""
    try:
        found = kept_thresholds(run, USUAL_COVERAGE if coverage is None else coverage, CONTEXT)
    except UserError:  # too few validation rows
        if coverage is None:
            return None
        raise
    if found is None and coverage is not None:
        raise UserError(
            f"--coverage needs thresholds, which {run.folder} does not keep; make them with "
            f"hma predict {run.folder} SOURCE --coverage {coverage:g}"
        )
    return found


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
