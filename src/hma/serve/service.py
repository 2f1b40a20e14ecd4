"""What the endpoints do: readers answer with a version that does not change, writers in turn."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Event, Lock, Semaphore
from time import monotonic
from typing import Any, TypeVar

import torch
from torch import Tensor

from hma.data import Source
from hma.data.table.columns import CategoryColumn, DateColumn, EmptyColumn, NumberColumn
from hma.data.table.preparation import TablePreparation
from hma.errors import UserError
from hma.model import Context
from hma.questions.explain import explain
from hma.questions.unfamiliar import unfamiliarity
from hma.runs import MEMORY, Run
from hma.runs.card import what_was_done
from hma.runs.coverage import Promising, Thresholds, rejecting_memory
from hma.runs.explanation import most_seen, seen_in_words
from hma.runs.folder import keyed_rows
from hma.runs.living import LivingMemory, ids_of_class
from hma.runs.memory_scores import memory_of
from hma.runs.memory_versions import BusyError, Version
from hma.runs.remembered import RememberedRows, rows_in_words
from hma.serve.requests import MOST_SHOWN
from hma.serve.rows import FIELD, Asked, OwnRows, asked_rows, raw_labels
from hma.targets import Target

MOST_AT_ONCE = 64
"""Requests that a group of threads works on or keeps waiting; more are told to come again."""
BUSY = "too many requests are waiting; nothing was done: send it again later"
STOPPING = "the server is stopping; send it again later"
Answer = TypeVar("Answer")


class Workers:
    """Some threads and the work that waits for them.

    Args:
        threads: How many.
        name: What they are called.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._places = Semaphore(MOST_AT_ONCE)

    async def run(
        self, work: Callable[..., Answer], *given: Any, within: float | None = None
    ) -> Answer:
        """Return what ``work`` returns, or raise :class:`BusyError` where it did not begin.

        Args:
            work: Called in a thread.
            given: Its arguments.
            within: Seconds in which it must begin.
        """
        if not self._places.acquire(blocking=False):
            raise BusyError(BUSY)
        future = self._pool.submit(work, *given)
        future.add_done_callback(lambda _: self._places.release())
        try:
            waited = asyncio.wrap_future(future)
            done, _ = await asyncio.wait([waited], timeout=within)
            if not done and future.cancel():
                raise BusyError(BUSY)
            return await waited
        except asyncio.CancelledError as error:  # what a server does that must stop
            raise BusyError(STOPPING) from error

    def start(self, work: Callable[[], Any]) -> None:
        """Do work for which nobody waits."""
        self._pool.submit(work)

    def stop(self) -> None:
        """Drop what has not begun; what has is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


CONTEXT: Context = "alone"


class Answering:
    """Answers to any number of threads at once, each as if it were alone.

    Args:
        run: The run, with the version of its memory that is to answer.
        training: Its training rows, to be shown; opened when they are needed if not given.
        promising: What promises a coverage of its answers.
    """

    def __init__(
        self, run: Run, training: Source | None, promising: Promising | None = None
    ) -> None:
        self.run, self.deployed = run, run.deployed
        self.number = run.living.number
        self.learner = run.learner(self.deployed.which)
        context = CONTEXT if CONTEXT in self.learner.contexts else self.learner.contexts[0]
        self.learner.use(context)
        self.model = memory_of(run, self.learner)
        self.model.context = CONTEXT
        for module in (self.learner.module, self.model):
            module.eval()
        self.remembered = RememberedRows(run, training)
        self.promise: Thresholds | None = None
        self.unpromised = ""
        self.rejecting = self.model if promising is None else rejecting_memory(run, self.model)
        if promising is not None:
            try:
                self.promise = promising(run, self.learner, self.model, context)
            except UserError as error:
                self.unpromised = str(error)

    @property
    def notes(self) -> list[str]:
        """What every answer says beside itself: why nothing is promised of it, where that is so."""
        return [f"nothing is promised of answers: {self.unpromised}"] if self.unpromised else []

    @torch.no_grad()
    def predict(self, asked: Asked) -> list[dict[str, Any]]:
        """Return what is answered for each row."""
        target, names = self.run.preparation.target, self.run.preparation.classes
        said = target.expected(self.learner.predict(asked.batch))
        answers = [answer_in_json(target, names, values) for values in said.tolist()]
        for answer, more in zip(answers, self._promised(asked, said), strict=True):
            answer.update(more)
        return answers

    def _promised(self, asked: Asked, said: Tensor) -> list[dict[str, Any]]:
        """Return what is promised of each answer: a set or an interval, and whether it is known."""
        found: list[dict[str, Any]] = [{} for _ in range(len(asked))]
        made = self.promise
        if made is None:
            return found
        if made.most_wrong is not None and not made.target.gives_probabilities:
            for one, (low, high) in zip(found, made.intervals(said), strict=True):
                one |= {"from": low, "to": high}
        elif made.most_wrong is not None:
            for one, labels in zip(found, made.sets(said), strict=True):
                one["labels"] = labels
        if made.most_unfamiliar is not None:
            far = unfamiliarity(self.rejecting, asked.batch.x, features=asked.batch.features)
            for one, value in zip(found, far.double().tolist(), strict=True):
                one |= {"unknown": made.is_unknown(value), "unfamiliarity": value}
        return found

    @torch.no_grad()
    def explain(self, asked: Asked, top: int) -> dict[str, Any]:
        """Return what the memory says of the first row, and the stored rows that voted."""
        shares = explain(self.model, asked.batch.x)
        target, names = self.run.preparation.target, self.run.preparation.classes
        most = [seen for seen in most_seen(shares, top) if seen.kind != "batch"]
        seen = seen_in_words(most, self.remembered, asked.source, asked.places[0])
        return {
            "memory": answer_in_json(target, names, shares.probabilities[0].tolist()),
            "memory_counts": self.deployed.counted.get(MEMORY, 0.0),
            "adds_up": shares.exact is not None,
            "voters": [
                {
                    "id": one.id,
                    "kind": one.kind,
                    "label": one.label,
                    "share": one.share,
                    "what": one.description,
                    "picture": one.picture,
                }
                for one in seen
            ],
        }

    def rows(self, label: str | None, first: int, count: int) -> dict[str, Any]:
        """Return rows of the memory in the order they came, and how many there are."""
        store = keyed_rows(self.model, str(self.run.folder))
        places = store.order()
        if label is not None:
            of_class = ids_of_class(self.run, store, label)
            places = places[torch.isin(store.ids[places], of_class)]
        found = rows_in_words(store, places[first : first + count], self.remembered)
        return {"of": len(places), "rows": [row._asdict() for row in found]}


def answer_in_json(target: Target, names: Sequence[str], expected: Any) -> dict[str, Any]:
    """Return a prediction as JSON values.

    Args:
        target: What a label is.
        names: Of the classes, the labels, or the number.
        expected: What :meth:`hma.targets.Target.expected` gives for the row.

    Example:
        >>> from hma.targets import Number
        >>> answer_in_json(Number(), ["price"], 12.5)
        {'answer': 'price 12.5', 'number': 12.5}
    """
    said: dict[str, Any] = {"answer": target.answer_text(names, expected)}
    if not target.gives_probabilities:
        return {**said, "number": expected}
    if target.picks_one:
        best = max(range(len(expected)), key=expected.__getitem__)
        said |= {"label": names[best], "probability": expected[best]}
    return {**said, "probabilities": dict(zip(names, expected, strict=True))}


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
