"""A run's memory after training: taught, made to forget, brought back; each change a version."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hma.data import Batch, Preparation, Source, Split, labelled_rows
from hma.data.labels import LABEL_KINDS, class_names, listed, whole
from hma.data.source import expect_kind
from hma.data.task import content_hashes, split_hashes
from hma.errors import UserError
from hma.memory.rows import KeyedRows
from hma.model import MemoryModel
from hma.report import numbers
from hma.runs.deployment import MEMORY, PLAIN, title
from hma.runs.folder import ENCODED, Run, keyed_rows, with_classes
from hma.runs.held_out import counts_in_words, places_of
from hma.runs.memory_scores import LoadedRun, change_scores
from hma.runs.memory_versions import MOST_ID, WAIT, Change, Living, Score, Verb, Version
from hma.runs.remembered import MemoryRow, RememberedRows, cells_of, kept_picture, rows_in_words
from hma.runs.row_conditions import Conditions, parse_conditions, rows_where
from hma.runs.source import by_source, rows_for
from hma.runs.taught_rows import Cells, TaughtRows
from hma.targets import Classes, SoftClasses
from hma.training import Progress, progress_ticker

NEAREST = 8
"""Stored rows with its label that a new one is compared with."""
PAIRS = 20_000_000


def new_classes_of(
    preparation: Preparation, model: MemoryModel, raw: Sequence[Any], allowed: bool, where: str
) -> tuple[str, ...]:
    """Return the classes among raw labels that are not known yet, if they are to be let in.

    Args:
        preparation: Knows the others.
        model: What is to answer with them.
        raw: Labels as they are written.
        allowed: Whether new classes may come.
        where: What holds the labels, for messages.
    """
    if not isinstance(preparation.target, Classes):
        if allowed:
            raise UserError(
                "--new-classes is for rows with one class each, and this run learned labels of "
                f"the kind {preparation.target.kind!r}; leave it out"
            )
        return ()
    known = {*preparation.classes, *map(whole, preparation.classes)}
    strange = [label for label in raw if not known & {label, whole(label)}]
    names = class_names(strange)
    if strange and not allowed:
        raise UserError(
            f"{where} holds {listed(names)} in {len(strange)} of {len(raw)} rows, which this run "
            f"does not know as a class; pass --new-classes to teach it. Known are "
            f"{listed(preparation.classes)}"
        )
    if names:
        model.expect_growing()
    return names


def rows_of_source(
    preparation: Preparation,
    model: MemoryModel,
    source: Source,
    places: Sequence[int],
    progress: Progress | None,
    judged: MemoryModel | None = None,
) -> TaughtRows:
    """Return rows of a source as the memory keeps them; :func:`change_by` gives them their ids.

    Args:
        preparation: What was fitted on the training rows.
        model: The memory.
        source: The rows.
        places: Which of them.
        progress: Shows how many are encoded.
        judged: The memory as validation judged it, where its backbone is another one.
    """
    split = preparation.split(source, places)
    return TaughtRows(
        features=encoded_rows(model, split, progress),
        judged=torch.empty(0, 0) if judged is None else encoded_rows(judged, split, progress),
        labels=preparation.target.check(split.labels, len(places)),
        ids=torch.arange(len(places)),
        hashes=split_hashes(split),
        what=tuple(source.describe_all(places)),
        where=(source.name,) * len(places),
        pictures=tuple(kept_picture(source.thumbnail(place)) for place in places),
        cells=cells_of(source, places),
    )


@torch.no_grad()
def encoded_rows(model: MemoryModel, split: Split, progress: Progress | None) -> Tensor:
    """Return the features of rows as the memory stores them, ``(N, F)``."""
    parts, done = [], 0
    with progress_ticker(progress, "encoding") as tick, model.reading():
        for places in torch.split(torch.arange(len(split)), ENCODED):
            batch = split.batch(places)
            made = batch.features
            parts.append(model.encode_for_memory(batch.x) if made is None else made)
            done += len(places)
            tick(done, len(split))
    return torch.cat(parts)


def encoded_labels(preparation: Preparation, raw: Sequence[Any], where: str) -> Tensor:
    """Return raw labels as the memory stores them."""
    target = preparation.target
    y = LABEL_KINDS[target.kind].encode(raw, preparation.classes, where)
    return target.check(y, len(raw))


def change_by(
    store: KeyedRows, rows: TaughtRows, names: tuple[str, ...], where: str, first_id: int
) -> Change:
    """Return the change that teaches rows: without those that are held, or cannot be stored.

    Args:
        store: What the memory holds.
        rows: What it is taught.
        names: Classes that are new.
        where: Where the rows came from, for messages.
        first_id: Sample id of the first row that is stored; the others follow.
    """
    finite = rows.features.isfinite().all(dim=1)
    if not bool(finite.all()):
        raise UserError(
            f"{int((~finite).sum())} of {len(finite)} rows of {where} hold NaN or infinity once "
            "they are encoded; correct them"
        )
    features, labels = rows.features.to(store.features), rows.labels.to(store.labels)
    judged = rows.judged.to(store.features)
    rows = replace(rows, features=features, labels=labels, judged=judged)
    new = torch.nonzero(not_held(store, rows))[:, 0]
    if not len(new):
        raise UserError(
            f"the memory holds all {len(rows)} rows of {where} already; nothing was changed"
        )
    ids = torch.arange(first_id, first_id + len(new))
    return Change(rows=replace(rows.at(new), ids=ids), classes=names)


@torch.no_grad()
def not_held(store: KeyedRows, rows: TaughtRows) -> Tensor:
    """Return which rows are not in the memory with the same label, ``(N,)``."""
    held = store.rows()
    new = torch.ones(len(rows), dtype=torch.bool)
    if not len(held.ids):
        return new
    for some in torch.split(torch.arange(len(rows)), max(1, PAIRS // held.labels.numel())):
        features, labels = rows.features[some], rows.labels[some]
        same = _close(held.labels[None], labels[:, None])  # (B, M), or (B, M, T)
        same = same if same.dim() == 2 else same.all(dim=-1)
        apart = torch.cdist(features, held.features).masked_fill(~same, torch.inf)  # (B, M)
        near = apart.topk(min(NEAREST, len(held.ids)), largest=False).indices  # (B, K)
        alike = _close(held.features[near], features[:, None]).all(dim=-1)
        new[some] = ~(alike & same.gather(1, near)).any(dim=1)
    return new


def _close(one: Tensor, other: Tensor) -> Tensor:
    if not one.is_floating_point():
        return one == other
    return torch.isclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def chosen_ids(
    run: Run,
    store: KeyedRows,
    *,
    ids: Sequence[int] | None = None,
    where: Conditions | None = None,
    label: str | None = None,
) -> tuple[Tensor, str]:
    """Return the sample ids of the rows that are meant, and what was meant in words.

    Args:
        run: The run.
        store: What its memory holds.
        ids: Sample ids.
        where: A condition on the columns of a table.
        label: Name of a class.
    """
    if sum(one is not None for one in (ids, where, label)) != 1:
        raise UserError("give one of --ids, --where and --class, which say what to forget")
    if ids is not None:
        found, said = _given(run, store, ids), f"ids {listed(list(ids))}"
    elif where is not None:
        found, said = _where(run, store, where), where.text
    else:
        found, said = ids_of_class(run, store, label or ""), f"class {label}"
    if not len(found):
        raise UserError(f"no row of the memory is meant by {said}; nothing was changed")
    return found, said


def _given(run: Run, store: KeyedRows, ids: Sequence[int]) -> Tensor:
    given = sorted(set(ids))
    beyond = [id for id in given if not 0 <= id < MOST_ID]  # more than any row has, or a tensor
    wanted = torch.tensor([id for id in given if id not in beyond], dtype=torch.long)
    absent = [*wanted[store.find(wanted) < 0].tolist(), *beyond]
    if absent:
        raise UserError(
            f"--ids names {listed(absent)}, which the memory does not hold; hma memory "
            f"{run.folder} lists its {numbers.counted(len(store.rows().ids), 'row')} with their ids"
        )
    return wanted


def _where(run: Run, store: KeyedRows, conditions: Conditions) -> Tensor:
    if run.preparation.kind != "table":
        raise UserError(
            f"--where is for tables, and {run.folder} was trained on rows of the kind "
            f"{run.preparation.kind!r}; give --ids, which hma memory {run.folder} lists, or --class"
        )
    remembered = RememberedRows(run)
    samples: list[int] = store.rows().ids.tolist()
    trained = [sample for sample in samples if sample not in remembered.taught]
    found: list[int] = []
    if trained:
        behind = remembered.behind(trained)
        if behind is None:
            raise UserError(
                f"--where needs the columns of {run.options.source}, which is not there or not "
                "what it was; put it back, or give --ids or --class"
            )
        first = 0
        for source, places in by_source(behind):
            named = rows_where(conditions, cells_of(source, places))
            found += [trained[first + place] for place in named]
            first += len(places)
    taught = run.living.rows
    if len(taught):
        found += [int(taught.ids[place]) for place in rows_where(conditions, taught.cells)]
    return torch.tensor(found, dtype=torch.long)


def ids_of_class(run: Run, store: KeyedRows, label: str) -> Tensor:
    """Return the sample ids of the rows of a class; of soft labels, where it is the likeliest."""
    target, names = run.preparation.target, run.preparation.classes
    if not isinstance(target, Classes | SoftClasses):
        raise UserError(
            f"--class is for classes, and {run.folder} learned labels of the kind "
            f"{target.kind!r}; give --ids or --where"
        )
    if label not in names:
        raise UserError(f"--class must be one of {listed(names)}, got {label!r}")
    held = store.rows()
    return held.ids[target.belongs(target.given(held.labels))[:, names.index(label)]]


def expect_rows_left(run: Run, store: KeyedRows, gone: Tensor) -> None:
    """Raise where the memory, or a class that it knows, would be left without a row."""
    held, target = store.rows(), run.preparation.target
    stays = ~torch.isin(held.ids, gone)
    if not bool(stays.any()):
        raise UserError(
            f"this would take all {numbers.counted(len(stays), 'row')} out of the memory of "
            f"{run.folder}, and the head would answer alone; pass --yes to do it"
        )
    if not isinstance(target, Classes | SoftClasses):
        return
    of = target.belongs(target.given(held.labels))
    lost = torch.nonzero(of.any(dim=0) & ~of[stays].any(dim=0))[:, 0].tolist()
    if lost:
        names = target.group_names(run.preparation.classes)
        raise UserError(
            f"this would take the last row of {listed([names[place] for place in lost])} out of "
            f"the memory of {run.folder}; pass --yes to do it"
        )


def what_remains(run: Run, gone: Tensor) -> str:
    """Say what of forgotten rows is left in the weights of a run."""
    trained = int((gone < run.learned_rows).sum())
    if not trained:
        return "nothing, since no weight was learned from rows that were taught"
    parts = ["its head", "the keys of the memory and what its vote counts"]
    if not run.options.frozen_backbone:
        parts.insert(0, "the backbone")
    mixed = run.deployed.counted
    target = run.preparation.target
    others = [title(which, target) for which in mixed if which not in (MEMORY, PLAIN)]
    if PLAIN in mixed:
        others.insert(0, title(PLAIN, target))
    if others:
        parts.append(f"what answers beside it ({', '.join(others)})")
    rows = numbers.counted(trained, "training row")
    return (
        f"{rows} no longer vote, but what was learned from them remains in the weights: "
        f"{', '.join(parts)}; train again without them to be rid of that"
    )


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
            rows = rows_of_source(
                with_classes(known, names), model, source, places, self.progress, self._judged()
            )
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
            before = self._judged()
            rows = TaughtRows(
                features=made,
                judged=torch.empty(0, 0) if before is None else before.encode_for_memory(batch.x),
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

    def _judged(self) -> MemoryModel | None:
        """Return the memory as validation judged it, where its backbone is another one."""
        if self.run.before is self.run or self.run.options.frozen_backbone:
            return None
        return self._now().judged.memory.model

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
