"""A run's memory after training: taught, made to forget, brought back; each change a version."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from hma.data import Batch, Source, labelled_rows
from hma.data.source import expect_kind
from hma.errors import UserError
from hma.keyed_rows import KeyedRows
from hma.methods.memory import WithMemory
from hma.model import HMA
from hma.runs.folder import MEMORY, Run, rows_for
from hma.runs.forgetting import chosen_ids, expect_rows_left, what_remains
from hma.runs.memory_scores import change_scores
from hma.runs.memory_versions import Change, Living
from hma.runs.remembered import MemoryRow, RememberedRows, rows_in_words
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
    """

    def __init__(
        self, run: Run, say: Says = lambda line: None, progress: Progress | None = None
    ) -> None:
        self.run = run
        self.say, self.progress = say, progress

    @classmethod
    def open(
        cls, run: Run | Path, say: Says = lambda line: None, progress: Progress | None = None
    ) -> "LivingMemory":
        """Open the memory of a run with the version in use."""
        return cls(Run.open(run) if isinstance(run, Path) else run, say, progress)

    def history(self) -> list[Version]:
        """Return every version after what training left, the oldest first."""
        return self.run.versions.history()

    def rows_at_first(self) -> int:
        """Return how many rows training left in the memory."""
        before = LivingMemory(Run(self.run.folder, self.run.options, Living()))
        return len(before.store().order())

    def store(self) -> KeyedRows:
        """Return the rows of the memory as it keeps them."""
        return keyed_rows(self._model(), str(self.run.folder))

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
        note: str = "",
        name: str | None = None,
    ) -> Version:
        """Teach the memory labelled rows; those that it holds already are left out.

        Args:
            source: Rows of the run's kind, or what :func:`hma.data.open_source` takes.
            new_classes: Let classes in that training never saw.
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
            first_id = self.run.versions.current()[1]
            rows = rows_of_source(
                with_classes(known, names), model, source, places, first_id, self.progress
            )
            about = {"source": name, "note": note, "fingerprint": source.fingerprint()}
            return self._teach(model, rows, names, about)

    def remember_rows(
        self,
        batch: Batch,
        labels: Sequence[Any],
        what: Sequence[str],
        *,
        pictures: Sequence[str | None] | None = None,
        cells: Cells | None = None,
        new_classes: bool = False,
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
            where: Where they came from.
            note: Kept with the version.
            scored: Whether to score validation rows before and after, which opens the run's data.
        """
        with self._writing() as model:
            known = self.run.preparation
            names = new_classes_of(known, model, labels, new_classes, where)
            made = batch.features
            made = model.encode_for_memory(batch.x) if made is None else made
            first = self.run.versions.current()[1]
            rows = TaughtRows(
                features=made,
                labels=encoded_labels(with_classes(known, names), labels, where),
                ids=torch.arange(first, first + len(made)),
                what=tuple(what),
                where=(where,) * len(made),
                pictures=(None,) * len(made) if pictures is None else tuple(pictures),
                cells=cells or {},
            )
            return self._teach(model, rows, names, {"source": where, "note": note}, scored)

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
        with self._writing() as model:
            store = keyed_rows(model)
            gone, said = chosen_ids(self.run, store, ids=ids, where=where, label=label)
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
        with versions.writing(self.say):
            newest, next_id = versions.newest()
            versions.expect(number, newest)
            if number == newest:
                raise UserError(f"version {number} answers already; nothing was changed")
            living = versions.living(number, newest)
            try:
                before: Run | None = Run(self.run.folder, self.run.options, versions.living())
            except UserError as error:  # what answers now is damaged: that is why
                self.say(f"note: {error}")
                before = None
            about = {"restored": number, "note": note, "source": f"version {number}"}
            at = (newest, next_id)
            return self._commit("restore", Change(), living, at, about, before if scored else None)

    # ------------------------------------------------------------------------ writing

    @contextmanager
    def _writing(self) -> Iterator[HMA]:
        """Hold the memory against other writers and give it as it is now."""
        self.store()  # or say why it cannot be changed, before anything is waited for
        with self.run.versions.writing(self.say):
            self.run = Run(self.run.folder, self.run.options)
            yield self._model()

    def _teach(
        self,
        model: HMA,
        rows: TaughtRows,
        names: tuple[str, ...],
        about: dict[str, Any],
        scored: bool = True,
    ) -> Version:
        change = change_by(keyed_rows(model), rows, names, about["source"])
        if left_out := len(rows) - len(change.rows):
            self.say(f"left out {left_out} rows that the memory holds already")
        return self._change("remember", change, about, scored)

    def _change(self, verb: Verb, change: Change, about: dict[str, Any], scored: bool) -> Version:
        at = self.run.versions.current()
        living = self.run.living.after(change, at[0] + 1)
        return self._commit(verb, change, living, at, about, self.run if scored else None)

    def _commit(
        self,
        verb: Verb,
        change: Change,
        living: Living,
        at: tuple[int, int],
        about: dict[str, Any],
        before: Run | None,
    ) -> Version:
        """Write one more version.

        Args:
            verb: What is done.
            change: To the version before.
            living: What the memory holds then.
            at: The version before, and the next sample id.
            about: More to keep with the version.
            before: The run as it answers now, to be scored beside; None leaves that out.
        """
        newest, next_id = at
        after = Run(self.run.folder, self.run.options, living)
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
            rows=len(LivingMemory(after).store().order()),
            scores=scores,
            next_id=next_id + len(change.rows),
            **about,
        )
        written = self.run.versions.write(version, change)
        self.run = Run(self.run.folder, self.run.options)
        return written

    def _model(self) -> HMA:
        learner = self.run.learner(MEMORY)
        assert isinstance(learner, WithMemory)
        return learner.model
