"""A run's memory after training: taught, made to forget, brought back; each change a version."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from hma.data import Batch, Source, labelled_rows
from hma.data.content_hashes import content_hashes
from hma.data.source import expect_kind
from hma.errors import UserError
from hma.memory.keyed_rows import KeyedRows
from hma.model import MemoryModel
from hma.runs.folder import Run, rows_for
from hma.runs.forgetting import chosen_ids, expect_rows_left, what_remains
from hma.runs.held_out import counts_in_words, places_of
from hma.runs.memory_scores import LoadedRun, change_scores
from hma.runs.memory_versions import WAIT, Change, Living
from hma.runs.remembered import MemoryRow, RememberedRows, rows_in_words
from hma.runs.row_conditions import parse_conditions
from hma.runs.taught_rows import Cells, TaughtRows
from hma.runs.teaching import change_by, encoded_labels, new_classes_of, rows_of_source
from hma.runs.version import Score, Verb, Version
from hma.runs.version_in_use import keyed_rows, with_classes
from hma.training import Progress

Says = Callable[[str], None]


class LivingMemory:
    """The memory of a run, to be changed and looked into; ``run`` answers with its last version.

    Args:
        run: A finished run.
        say: Called with a line for each thing that a person should know.
        progress: Shows how far slow work is.
        wait: Seconds to wait for another writer.
        before_commit: Called when a version is about to be written; nothing is if it raises.
    """

    def __init__(
        self,
        run: Run,
        say: Says = lambda line: None,
        progress: Progress | None = None,
        *,
        wait: float = WAIT,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self.run = run
        self.say, self.progress = say, progress
        self.wait, self.before_commit = wait, before_commit
        self._loaded = LoadedRun(run)

    @classmethod
    def open(
        cls, run: Run | Path, say: Says = lambda line: None, progress: Progress | None = None
    ) -> "LivingMemory":
        """Open the memory of a run with the version in use."""
        return cls(Run.open(run) if isinstance(run, Path) else run, say, progress)

    def history(self) -> list[Version]:
        """Return every version after what training left, the oldest first."""
        try:
            self.run.versions.current()
        except UserError as error:
            self.say(f"note: {error}")
        return self.run.versions.history()

    def rows_at_first(self) -> int:
        """Return how many rows training left in the memory."""
        return len(LivingMemory(self.run.at(Living())).store().order())

    def store(self) -> KeyedRows:
        """Return the rows of the memory as it keeps them."""
        return keyed_rows(self._now().memory.model, str(self.run.folder))

    def rows(self, ids: Sequence[int] | None = None) -> list[MemoryRow]:
        """Return the rows of the memory in the order they came; those of ``ids`` if given."""
        store = self.store()
        if ids is None:
            places = store.order()
        else:
            places = store.find(torch.tensor(list(ids), dtype=torch.long))
        return rows_in_words(store, places, RememberedRows(self.run))

    # -------------------------------------------------------------------------- verbs

    def remember(
        self,
        source: Source | str,
        *,
        new_classes: bool = False,
        yes: bool = False,
        note: str = "",
        name: str | None = None,
    ) -> Version:
        """Teach the memory labelled rows; those that it holds already are left out.

        Args:
            source: Rows of the run's kind, or what :func:`hma.data.open_source` takes.
            new_classes: Let classes in that training never saw.
            yes: Go on where rows are validation or test rows of the run.
            note: Kept with the version.
            name: Where the rows are said to come from; the name of the source if not given.
        """
        name = name or (source if isinstance(source, str) else source.name)
        if isinstance(source, str):
            source = rows_for(self.run, source, labelled=True)
        expect_kind(source, self.run.preparation.kind)
        places = labelled_rows(source)
        if source.labels is None or not places:
            raise UserError(f"{name} has no labelled row to teach; give rows with labels")
        raw = [source.labels[place] for place in places]
        with self._writing() as model:
            known = self.run.preparation
            names = new_classes_of(known, model, raw, new_classes, source.labels_from)
            rows = rows_of_source(with_classes(known, names), model, source, places, self.progress)
            about = {"source": name, "note": note, "fingerprint": source.fingerprint()}
            return self._teach(model, rows, names, about, yes=yes)

    def remember_rows(
        self,
        batch: Batch,
        labels: Sequence[Any],
        what: Sequence[str],
        *,
        pictures: Sequence[str | None] | None = None,
        cells: Cells | None = None,
        new_classes: bool = False,
        yes: bool = False,
        where: str = "taught by hand",
        note: str = "",
        scored: bool = True,
    ) -> Version:
        """Teach the memory rows that are prepared already.

        Args:
            batch: Rows as ``run.preparation`` makes them; its labels are not looked at.
            labels: Raw label of each.
            what: What each is, in words.
            pictures: What each looks like, see :func:`hma.runs.remembered.kept_picture`.
            cells: Of tables, what each column holds.
            new_classes: Let classes in that training never saw.
            yes: Go on where rows are validation or test rows of the run.
            where: Where they came from.
            note: Kept with the version.
            scored: Whether to score validation rows before and after, which opens the run's data.
        """
        with self._writing() as model:
            known = self.run.preparation
            names = new_classes_of(known, model, labels, new_classes, where)
            made = batch.features
            made = model.encode_for_memory(batch.x) if made is None else made
            rows = TaughtRows(
                features=made,
                labels=encoded_labels(with_classes(known, names), labels, where),
                ids=torch.arange(len(made)),
                hashes=content_hashes(batch.x),
                what=tuple(what),
                where=(where,) * len(made),
                pictures=(None,) * len(made) if pictures is None else tuple(pictures),
                cells=cells or {},
            )
            about = {"source": where, "note": note}
            return self._teach(model, rows, names, about, yes=yes, scored=scored)

    def forget(
        self,
        *,
        ids: Sequence[int] | None = None,
        where: str | None = None,
        label: str | None = None,
        yes: bool = False,
        note: str = "",
        scored: bool = True,
    ) -> Version:
        """Take rows out of the memory: one of ``ids``, ``where`` and ``label`` says which.

        Args:
            ids: Sample ids, as :meth:`rows` has them.
            where: A condition on the columns of a table, see :mod:`hma.runs.row_conditions`.
            label: Name of a class, all of whose rows go.
            yes: Go on where no row of a class would be left.
            note: Kept with the version.
            scored: Whether to score validation rows before and after.
        """
        conditions = None if where is None else parse_conditions(where)
        with self._writing() as model:
            store = keyed_rows(model)
            gone, said = chosen_ids(self.run, store, ids=ids, where=conditions, label=label)
            if not yes:
                expect_rows_left(self.run, store, gone)
            about = {"source": said, "note": note, "remains": what_remains(self.run, gone)}
            return self._change("forget", Change(forgotten=gone), about, scored)

    def restore(self, number: int, *, note: str = "", scored: bool = True) -> Version:
        """Let an earlier version answer again: a new version that says so.

        Args:
            number: The version; 0 for what training left.
            note: Kept with the version.
            scored: Whether to score validation rows before and after.
        """
        versions = self.run.versions
        with versions.writing(self.say, self.wait):
            versions.expect(number, versions.newest()[0])
            before: LoadedRun | None = None
            try:
                before = self._refresh()
            except UserError as error:  # what answers now is damaged: that is why
                self.say(f"note: {error}")
            if before is not None and number == before.run.living.number:
                raise UserError(f"version {number} answers already; nothing was changed")
            living = versions.living(number)
            about = {"restored": number, "note": note, "source": f"version {number}"}
            return self._commit("restore", Change(), living, about, before if scored else None)

    # ------------------------------------------------------------------------ writing

    @contextmanager
    def _writing(self) -> Iterator[MemoryModel]:
        """Hold the memory against other writers and give it as it is now."""
        self.store()  # or say why it cannot be changed, before anything is waited for
        with self.run.versions.writing(self.say, self.wait):
            yield self._refresh().memory.model

    def _refresh(self) -> LoadedRun:
        """Return the run with the version in use: what is loaded already, if nobody changed it."""
        if self.run.living.number != self.run.versions.current()[0]:
            self.run = self.run.at(self.run.versions.living())
        return self._now()

    def _now(self) -> LoadedRun:
        """Return ``run`` with what is loaded of it."""
        if self._loaded.run is not self.run:
            self._loaded = LoadedRun(self.run)
        return self._loaded

    def _teach(
        self,
        model: MemoryModel,
        rows: TaughtRows,
        names: tuple[str, ...],
        about: dict[str, Any],
        *,
        yes: bool,
        scored: bool = True,
    ) -> Version:
        first_id = self.run.versions.newest()[1]
        change = change_by(keyed_rows(model), rows, names, about["source"], first_id)
        if left_out := len(rows) - len(change.rows):
            self.say(f"left out {left_out} rows that the memory holds already")
        places = places_of(self.run, change.rows.hashes)
        known = counts_in_words({name: len(own) for name, own in places.items()})
        if places and not yes:
            raise UserError(
                f"{about['source']} holds {known} of this run, which could no longer judge the "
                "memory: scores, audits and promises leave out what it was taught; pass --yes to "
                "do it"
            )
        if places:
            self.say(f"taught {known} of this run: scores, audits and promises leave them out")
        return self._change("remember", change, about | {"held_out": places}, scored)

    def _change(self, verb: Verb, change: Change, about: dict[str, Any], scored: bool) -> Version:
        versions, before = self.run.versions, self.run.living
        versions.trained.expect_change(change, before, versions.newest()[1] + len(change.rows))
        living = before.after(change, before.number + 1)
        return self._commit(verb, change, living, about, self._now() if scored else None)

    def _commit(
        self,
        verb: Verb,
        change: Change,
        living: Living,
        about: dict[str, Any],
        before: LoadedRun | None,
    ) -> Version:
        """Write one more version.

        Args:
            verb: What is done.
            change: To the version before.
            living: What the memory holds then.
            about: More to keep with the version.
            before: The run as it answers now, to be scored beside; None leaves that out.
        """
        newest, next_id = self.run.versions.newest()
        after = LoadedRun(self.run.at(replace(living, number=newest + 1)))
        scores: tuple[Score, ...] = ()
        if before is not None:
            scores = change_scores(before, after, change.rows, self.progress)
        version = Version(
            number=newest + 1,
            parent=newest,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            verb=verb,
            added=len(change.rows),
            forgotten=len(change.forgotten),
            classes=change.classes,
            rows=len(keyed_rows(after.memory.model).order()),
            scores=scores,
            next_id=next_id + len(change.rows),
            **about,
        )
        self.before_commit()
        written = self.run.versions.write(version, change, living)
        self.run, self._loaded = after.run, after
        return written
