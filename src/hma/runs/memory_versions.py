"""Versions of a run's memory on disk: each is one change, whole or not there; one of them answers.

Version 0 is what training left. Every later one has a folder ``memory/versions/N`` with the rows
it added, the ids it took out and what it came to; ``memory/current.json`` names the one in use.
Nothing that a version says is ever changed, and no sample id is ever given out twice.

A writer makes the folder with a file ``unfinished`` in it, then the rows, then ``version.json``,
then ``current.json``; then it removes ``unfinished``. So, wherever it is killed:

- A folder is complete if it holds ``version.json`` and no ``unfinished``, or if ``current.json``
  names it or a later one. Only the next writer removes folders, and only incomplete ones.
- Before ``current.json`` is replaced, the version before answers; afterwards the new one does.
- A complete version beyond the one that ``current.json`` names means that this file was lost or
  put back, never that a writer was killed: that is an error until ``hma memory RUN --restore N``
  says which version answers. It writes a version beyond all that have a ``version.json``.

A version leads to its parent, or to the one it restored, and both are earlier, so every chain of
changes ends. Each ``STATE_EVERY``-th version also keeps the whole state that its chain led to, with
a digest of the chain: it only saves reading the chain, and is not used where either is not as it
was then.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from hma.errors import UserError
from hma.io.files import FileError, HeldError, explain_write_errors, file_sha256, hold_lock
from hma.io.json_files import (
    Default,
    dataclass_from_json,
    finite_or_none,
    read_json,
    validate,
    write_json,
)
from hma.io.tensor_files import read_tensors
from hma.runs.taught_rows import (
    FILES,
    TENSORS,
    TaughtRows,
    expect_ids,
    expect_rows,
    no_ids,
    read_change,
    write_change,
)
from hma.targets import Classes, Target

MOST_ID = 2**62
"""Largest sample id that is ever the next one."""
Verb = Literal["remember", "forget", "restore", "damaged"]
"""What made a version; of one that cannot be read, that."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """What rows come to, before and after a change.

    Args:
        rows: Which rows, in words.
        count: How many.
        metric: Name of the metric.
        before, after: Its values; None where there is none.
        how: How these rows are answered, in words.
    """

    rows: str
    count: int
    metric: str
    before: float | None
    after: float | None
    how: str


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a memory, and the change that led to it.

    Args:
        number: Its number, from 1 on.
        parent: The one it changes.
        time: When, in UTC.
        verb: What was done.
        restored: The version that answers again, of a ``"restore"``.
        source: Where rows came from, or what was to be forgotten, in words.
        fingerprint: Of the source of rows that were added.
        added, forgotten: How many rows came and went.
        classes: Names of classes that came.
        rows: Rows in the memory afterwards.
        scores: What the change did.
        held_out: Which rows of the run's validation and test splits are among those that were
            added: split -> places in it.
        remains: What of forgotten rows is left in weights, in words.
        note: What the writer had to say.
        weights: Hash of the trained weights that all of this is about.
        next_id: Sample id of the next row to come.
    """

    number: int
    parent: int
    time: str
    verb: Verb
    restored: int | None = None
    source: str = ""
    fingerprint: str = ""
    added: int = 0
    forgotten: int = 0
    classes: tuple[str, ...] = ()
    rows: int = 0
    scores: tuple[Score, ...] = ()
    held_out: dict[str, list[int]] = field(default_factory=dict)
    remains: str = ""
    note: str = ""
    weights: str | None = None
    next_id: int = 0


def expect_version(version: Version, number: int, first_id: int) -> None:
    """Raise ``ValueError`` unless what is written of a version can be true.

    Args:
        version: What is written.
        number: That of its folder.
        first_id: Sample id of the first row that is taught.
    """
    if version.number != number:
        raise ValueError(f"it is of version {version.number}, in the folder of version {number}")
    if not 0 <= version.parent < number:
        raise ValueError(f"parent must be an earlier version than {number}, got {version.parent}")
    restores, restored = version.verb == "restore", version.restored
    if version.verb == "damaged" or restores != (restored is not None):
        raise ValueError(f"verb {version.verb!r} does not go with restored {restored}")
    if restored is not None and not 0 <= restored < number:
        raise ValueError(f"restored must be an earlier version than {number}, got {restored}")
    if not first_id <= version.next_id <= MOST_ID:
        raise ValueError(f"next_id must be from {first_id} to {MOST_ID}, got {version.next_id}")


SCHEMA = 1
VERSIONS, CURRENT, VERSION, UNFINISHED = "versions", "current.json", "version.json", "unfinished"
STATE = "state"
STATE_EVERY = 32
WAIT = 3600.0
"""Seconds that a writer waits for another one."""
CURRENT_SHAPE = {"schema": int, "version": int, "next_id": int}
STATE_SHAPE = {"chain": list[int], "classes": list[str], "digest": str, "files": FILES}
VERSION_SHAPE = {"schema": int, "files": FILES, "state": Default(dict | None)}


class BusyError(UserError):
    """The memory could not be changed in the time there was; nothing was written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """What a version does to the one before.

    Args:
        rows: Rows that come, their labels as ids of the classes there are then.
        forgotten: Sample ids of rows that go, ``(K,)``.
        classes: Names of classes that come.
    """

    rows: TaughtRows = field(default_factory=TaughtRows)
    forgotten: Tensor = field(default_factory=no_ids)
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Living:
    """What a version holds besides what training left.

    Args:
        number: The version.
        chain: The versions whose changes it is made of; empty where it equals version 0.
        rows: Rows that were taught and not forgotten.
        forgotten: Sample ids that were forgotten, ``(K,)``.
        classes: Names of classes that were added.
    """

    number: int = 0
    chain: tuple[int, ...] = ()
    rows: TaughtRows = field(default_factory=TaughtRows)
    forgotten: Tensor = field(default_factory=no_ids)
    classes: tuple[str, ...] = ()

    def as_judged(self) -> "Living":
        """Return the same for the models that validation judged, see ``TaughtRows.judged``."""
        return replace(self, rows=self.rows.as_judged())

    def after(self, change: Change, number: int) -> "Living":
        """Return the state that one more change leads to."""
        rows = self.rows.without(change.forgotten).followed_by(change.rows)
        return replace(
            self,
            number=number,
            chain=(*self.chain, number),
            rows=rows,
            forgotten=torch.cat([self.forgotten, change.forgotten]),
            classes=(*self.classes, *change.classes),
        )


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What training left, which every version must fit.

    Args:
        weights: Hash of the trained weights; versions of others are refused.
        rows: Training rows; their sample ids are 0 to ``rows - 1``.
        width: Of stored features, ``F``.
        classes: Names of the classes.
        target: What a label is.
    """

    weights: str | None
    rows: int
    width: int
    classes: tuple[str, ...]
    target: Target

    def expect_change(self, change: Change, before: Living, next_id: int) -> None:
        """Raise ``ValueError`` unless a change fits the state before, and its ids are new."""
        rows, known = change.rows, len(self.classes) + len(before.classes)
        names = (*before.classes, *change.classes)
        self._expect_rows(rows, names, next_id)
        came = set(rows.labels.tolist()) if change.classes else set()
        if lost := sum(known + place not in came for place in range(len(change.classes))):
            raise ValueError(f"it adds {len(change.classes)} classes, and {lost} have no row")
        used = torch.isin(rows.ids, torch.cat([before.rows.ids, before.forgotten]))
        if bool(used.any()):
            raise ValueError(f"the id {rows.ids[used][0]} was given to an earlier row")
        expect_ids("forgotten", change.forgotten, 0, next_id)
        taught = change.forgotten >= self.rows
        there = torch.isin(change.forgotten, before.rows.ids) | ~taught
        there &= ~torch.isin(change.forgotten, before.forgotten)
        if not bool(there.all()):
            gone = int(change.forgotten[~there][0])
            raise ValueError(f"it forgets the id {gone}, which is not held before")

    def expect_state(self, living: Living, next_id: int) -> None:
        """Raise ``ValueError`` unless a kept state fits what training left."""
        self._expect_rows(living.rows, living.classes, next_id)
        expect_ids("forgotten", living.forgotten, 0, next_id)
        if bool(torch.isin(living.rows.ids, living.forgotten).any()):
            raise ValueError("it holds rows that are forgotten")

    def _expect_rows(self, rows: TaughtRows, names: tuple[str, ...], next_id: int) -> None:
        target = self.target
        if names:
            if not isinstance(target, Classes):
                raise ValueError(f"it adds classes to labels of the kind {target.kind!r}")
            target = replace(
                target, count=target.count + len(names), added=target.added + len(names)
            )
            seen = set(self.classes)
            for name in names:
                if name in seen:
                    raise ValueError(f"it adds the class {name!r}, which there is already")
                seen.add(name)
        expect_rows(rows, self.width, target)
        expect_ids("ids", rows.ids, 0, next_id)
        if bool((rows.ids < self.rows).any()):
            raise ValueError(f"the id {rows.ids.min()} is that of a training row")


class _Written(NamedTuple):
    """What ``version.json`` says."""

    version: Version
    files: dict[str, str]
    state: dict[str, Any] | None


class VersionStore:
    """The versions of one memory.

    Args:
        folder: That of the memory inside a run's.
        trained: What training left.
    """

    def __init__(self, folder: Path, trained: Trained) -> None:
        self.folder = folder
        self.versions = folder / VERSIONS
        self.trained = trained

    @property
    def remedy(self) -> str:
        """What to do about a damaged file."""
        return (
            "restore it from a copy, or answer with an earlier version: hma memory "
            f"{self.folder.parent} --restore 0"
        )

    def current(self) -> tuple[int, int]:
        """Return the version in use and the next sample id.

        Raises :class:`hma.io.files.FileError` where ``current.json`` is lost, damaged, older than
        the newest complete version, or names one that is not there.
        """
        while True:
            number, next_id = named = self._named()
            problem = self._problem(number)
            if not problem:
                return number or 0, next_id
            if self._named() == named:  # else a writer went on meanwhile
                raise FileError(problem)

    def _named(self) -> tuple[int | None, int]:
        """Return what ``current.json`` says; None and the first id where it is not there."""
        path = self.folder / CURRENT
        if not path.exists():
            return None, self.trained.rows
        values = read_json(path, CURRENT_SHAPE, sealed=True, remedy=self.remedy)
        _expect_schema(path, values["schema"])
        number, next_id = values["version"], values["next_id"]
        if number < 1 or not self.trained.rows <= next_id <= MOST_ID:
            raise FileError(
                f"{path} is damaged: it names version {number} and the next id {next_id}; "
                f"{self.remedy}"
            )
        return number, next_id

    def _problem(self, named: int | None) -> str:
        """Say what is wrong with the version that ``current.json`` names; nothing if it is right.

        None stands for a file that is not there.
        """
        there = self._numbers()
        beyond = [n for n in there if n > (named or 0) and self._is_complete(n)]
        path, remedy = self.folder / CURRENT, f"hma memory {self.folder.parent} --restore"
        if beyond and named is None:
            return (
                f"{path} is not there, but versions up to {max(beyond)} are; restore it from a "
                f"copy, or say which version answers: {remedy} {max(beyond)}, or an earlier one"
            )
        if beyond:
            return (
                f"{path} names version {named}, but version {max(beyond)} is newer and complete; "
                f"restore it from a copy, or say which version answers: {remedy} {max(beyond)}, or "
                f"{remedy} {named}"
            )
        if named is not None and named not in there:
            return (
                f"{path} names version {named}, which is not there; restore it from a copy, or say "
                f"which version answers: {remedy} {max(there, default=0)}"
            )
        return ""

    def _numbers(self) -> list[int]:
        """Return the numbers that have a folder, in no order."""
        try:
            names = [path.name for path in self.versions.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [int(name) for name in names if re.fullmatch(r"[1-9][0-9]{0,17}", name)]

    def _is_complete(self, number: int) -> bool:
        folder = self.versions / str(number)
        return (folder / VERSION).exists() and not (folder / UNFINISHED).exists()

    def version(self, number: int) -> Version:
        """Return what is written of a version."""
        return self._read(number).version

    def _read(self, number: int) -> _Written:
        path = self.versions / str(number) / VERSION
        values = read_json(path, VERSION_SHAPE, sealed=True, remedy=self.remedy)
        _expect_schema(path, values.pop("schema"))
        files, state = values.pop("files"), values.pop("state")
        try:
            found = dataclass_from_json(Version, values)
            expect_version(found, number, self.trained.rows)
        except ValueError as error:
            raise FileError(f"{path} is damaged: {error}; {self.remedy}") from error
        if found.weights != self.trained.weights:
            raise UserError(
                f"{path} belongs to other weights than {self.folder} has, since the run was "
                f"trained again; remove {self.versions} and {self.folder / CURRENT}, or answer "
                f"with what training left: hma memory {self.folder.parent} --restore 0"
            )
        return _Written(found, files, state)

    def hashes(self, chain: Sequence[int]) -> list[str]:
        """Return a hash of each of some versions: others of the same number have others."""
        return [file_sha256(self.versions / str(number) / VERSION) for number in chain]

    def history(self) -> list[Version]:
        """Return all versions after version 0, the oldest first; a damaged one is there in name."""
        found, next_number, newest = [], 1, self.newest()[0]
        for number in sorted(number for number in self._numbers() if number <= newest):
            if number > next_number:
                last = f" to {number - 1}" if number - 1 > next_number else ""
                found.append(_damaged(next_number, f"no folder is there of {next_number}{last}"))
            try:
                found.append(self.version(number))
            except UserError as error:
                found.append(_damaged(number, str(error)))
            next_number = number + 1
        return found

    def living(self, number: int | None = None) -> Living:
        """Return what a version holds besides what training left; the one in use if not given."""
        number = self.current()[0] if number is None else number
        found, changes, at = Living(), list[tuple[int, _Written]](), number
        while at:
            written = self._read(at)
            if (state := self._state(written)) is not None:
                found, at = state, 0
            elif written.version.restored is not None:
                at = written.version.restored
            else:
                changes.append((at, written))
                at = written.version.parent
        for at, written in reversed(changes):
            found = found.after(self._change(found, written), at)
        return replace(found, number=number)

    def expect(self, number: int, newest: int) -> None:
        """Raise unless there is such a version."""
        if not 0 <= number <= newest:
            there = "version 0 alone" if newest == 0 else f"versions 0 to {newest}"
            raise UserError(
                f"there is no version {number} of the memory in {self.folder.parent}; it has "
                f"{there}, see hma memory {self.folder.parent} --history"
            )

    def _change(self, before: Living, written: _Written) -> Change:
        """Read what a version does to the state ``before``."""
        version = written.version
        folder = self.versions / str(version.number)
        rows, forgotten = read_change(folder, written.files, self.remedy)
        change = Change(rows=rows, forgotten=forgotten, classes=version.classes)
        try:
            if (len(rows), len(forgotten)) != (version.added, version.forgotten):
                raise ValueError(f"its rows are not as many as {VERSION} says")
            self.trained.expect_change(change, before, version.next_id)
        except ValueError as error:
            raise FileError(f"{folder / TENSORS} is damaged: {error}; {self.remedy}") from error
        return change

    # -------------------------------------------------------------------------- state

    def _state(self, written: _Written) -> Living | None:
        """Return the state that a version keeps; None where there is none that can be relied on."""
        if written.state is None:
            return None
        number = written.version.number
        try:
            kept = validate(written.state, STATE_SHAPE)
            chain, classes = tuple(kept["chain"]), tuple(kept["classes"])
            if kept["digest"] != self._digest(chain, number):
                return None
            folder = self.versions / str(number) / STATE
            rows, forgotten = read_change(folder, kept["files"], self.remedy)
            found = Living(chain=chain, rows=rows, forgotten=forgotten, classes=classes)
            self.trained.expect_state(found, written.version.next_id)
        except (UserError, ValueError, OSError):
            return None
        return found

    def _write_state(self, living: Living, number: int) -> dict[str, Any]:
        """Keep the whole state of the version ``number``; return what ``version.json`` says."""
        folder = self.versions / str(number) / STATE
        folder.mkdir()
        return {
            "chain": list(living.chain),
            "classes": list(living.classes),
            "digest": self._digest(living.chain, number),
            "files": write_change(folder, living.rows, living.forgotten),
        }

    def _digest(self, chain: tuple[int, ...], number: int) -> str:
        """Return a hash of what the versions of a chain say, without ``number`` itself."""
        digest = hashlib.sha256()
        for one in chain:
            if one != number:
                digest.update((self.versions / str(one) / VERSION).read_bytes())
        return digest.hexdigest()

    # ------------------------------------------------------------------------ writing

    @contextmanager
    def writing(
        self, say: Callable[[str], None] = lambda line: None, wait: float = WAIT
    ) -> Iterator[None]:
        """Hold the versions against every other writer, waiting for one that is at it.

        Args:
            say: Called with a line before a wait.
            wait: Seconds to wait, then a :class:`BusyError` is raised.
        """
        with explain_write_errors(self.versions):
            self.versions.mkdir(parents=True, exist_ok=True)
        try:
            with hold_lock(self.versions):
                yield
                return
        except HeldError:
            say(f"another process is changing the memory of {self.folder.parent}; waiting for it")
        try:
            with hold_lock(self.versions, wait=wait):
                yield
        except HeldError as error:
            raise BusyError(
                f"another process has been changing the memory of {self.folder.parent} for "
                f"{wait:g} seconds; nothing was written: try again when it is done"
            ) from error

    def write(self, version: Version, change: Change, living: Living) -> Version:
        """Add a version and let it answer; to be called while :meth:`writing`.

        Args:
            version: Its number is one more than :meth:`newest` says.
            change: What it does to its parent.
            living: What the memory holds then.
        """
        number = version.number
        folder = self.versions / str(number)
        with explain_write_errors(folder):
            self._remove_incomplete(number)
            folder.mkdir()
            (folder / UNFINISHED).touch()
            state = None if number % STATE_EVERY else self._write_state(living, number)
        files = write_change(folder, change.rows, change.forgotten)
        version = replace(version, weights=self.trained.weights)
        values = {"schema": SCHEMA, "files": files, "state": state}
        write_json(folder / VERSION, values | finite_or_none(asdict(version)), sealed=True)
        now = {"schema": SCHEMA, "version": number, "next_id": version.next_id}
        write_json(self.folder / CURRENT, now, sealed=True)
        with suppress(OSError):  # the next writer removes it
            (folder / UNFINISHED).unlink()
        return version

    def _remove_incomplete(self, first: int) -> None:
        """Remove what killed writers left from version ``first`` on: versions that never answered.

        ``version.json`` goes first, so that nothing looks complete if this is killed too.
        """
        (self.versions / str(first - 1) / UNFINISHED).unlink(missing_ok=True)
        for number in self._numbers():
            folder = self.versions / str(number)
            if number >= first and not self._is_complete(number):
                (folder / VERSION).unlink(missing_ok=True)
                rmtree(folder)

    def newest(self) -> tuple[int, int]:
        """Return the newest version and the next id, also where ``current.json`` cannot be used.

        Then every folder with a ``version.json`` counts, and the next id is beyond all of theirs.
        """
        try:
            number, next_id = self.current()
            return number, max(next_id, self._next_id(number)) if number else next_id
        except UserError:
            there = [n for n in self._numbers() if (self.versions / str(n) / VERSION).exists()]
            next_ids = [self.trained.rows, *map(self._next_id, there)]
            return max(there, default=0), max(next_ids)

    def _next_id(self, number: int) -> int:
        """Return the first id after those of a version, as far as its files can be read."""
        with suppress(UserError):
            return self.version(number).next_id
        with suppress(UserError, LookupError, ValueError, RuntimeError):
            ids = read_tensors(self.versions / str(number) / TENSORS)["ids"]
            expect_ids("ids", ids, 0, MOST_ID)
            return int(ids.max()) + 1
        return 0


def _damaged(number: int, why: str) -> Version:
    return Version(number=number, parent=number - 1, time="", verb="damaged", source=why)


def _expect_schema(path: Path, schema: int) -> None:
    if schema != SCHEMA:
        raise UserError(
            f"{path} was written by another version of hma (schema {schema}, this one reads "
            f"{SCHEMA}); use that version"
        )
