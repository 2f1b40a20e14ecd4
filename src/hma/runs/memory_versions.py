"""Versions of a run's memory on disk: each is one change, whole or not there; one of them answers.

Version 0 is what training left. Every later one has a folder ``memory/versions/N`` with the rows
it added, the ids it took out and what it came to; ``memory/current.json`` names the one in use and
is written last. Nothing that a version says is ever changed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import rmtree

import torch
from torch import Tensor

from hma.errors import UserError
from hma.files import FileError, HeldError, held, no_lost_writes
from hma.json_files import Default, dataclass_from_json, finite_or_none, read_json, write_json
from hma.runs.taught_rows import TaughtRows, no_ids, read_change, write_change
from hma.runs.version import Score, Version

SCHEMA = 1
VERSIONS, CURRENT, VERSION = "versions", "current.json", "version.json"
WAIT = 3600.0
"""Seconds that a writer waits for another one."""
CURRENT_SHAPE = {"schema": int, "version": int, "next_id": int}


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


class VersionStore:
    """The versions of one memory.

    Args:
        folder: That of the memory inside a run's.
        weights: Hash of the trained weights; versions of others are refused.
        first_id: Sample id of the first row that is taught.
    """

    def __init__(self, folder: Path, weights: str | None, first_id: int) -> None:
        self.folder = folder
        self.versions = folder / VERSIONS
        self.weights = weights
        self.first_id = first_id

    @property
    def remedy(self) -> str:
        """What to do about a damaged file."""
        return (
            "restore it from a copy, or answer with an earlier version: hma memory "
            f"{self.folder.parent} --restore 0"
        )

    def current(self) -> tuple[int, int]:
        """Return the version in use and the next sample id."""
        path = self.folder / CURRENT
        if not path.exists():
            return 0, self.first_id
        values = read_json(path, CURRENT_SHAPE, remedy=self.remedy)
        _expect_schema(path, values["schema"])
        return values["version"], values["next_id"]

    def version(self, number: int) -> Version:
        """Return what is written of a version."""
        path = self.versions / str(number) / VERSION
        values = read_json(path, {"schema": int, "files": dict[str, str]}, remedy=self.remedy)
        _expect_schema(path, values.pop("schema"))
        values.pop("files")
        try:
            found = dataclass_from_json(Version, values)
            scores = tuple(dataclass_from_json(Score, one) for one in values["scores"])
        except ValueError as error:
            raise FileError(f"{path} is damaged: {error}; {self.remedy}") from error
        if found.weights != self.weights:
            raise UserError(
                f"{path} belongs to other weights than {self.folder} has, since the run was "
                f"trained again; remove {self.versions} and {self.folder / CURRENT}"
            )
        return replace(found, scores=scores)

    def history(self) -> list[Version]:
        """Return all versions after version 0, the oldest first; a damaged one is there in name."""
        found = []
        for number in range(1, self.current()[0] + 1):
            try:
                found.append(self.version(number))
            except FileError as error:
                parent = number - 1
                lost = Version(
                    number=number, parent=parent, time="", verb="damaged", source=str(error)
                )
                found.append(lost)
        return found

    def living(self, number: int | None = None, newest: int | None = None) -> Living:
        """Return what a version holds besides what training left.

        Args:
            number: The version; that in use if not given.
            newest: The newest there is, where that is known.
        """
        newest = self.current()[0] if newest is None else newest
        number = newest if number is None else number
        self.expect(number, newest)
        found = Living()
        for one in self._chain(number):
            found = found.after(self.change(one), one)
        return replace(found, number=number)

    def expect(self, number: int, newest: int) -> None:
        """Raise unless there is such a version."""
        if not 0 <= number <= newest:
            there = "version 0 alone" if newest == 0 else f"versions 0 to {newest}"
            raise UserError(
                f"there is no version {number} of the memory in {self.folder.parent}; it has "
                f"{there}, see hma memory {self.folder.parent} --history"
            )

    def _chain(self, number: int) -> list[int]:
        """Return the versions whose changes lead to ``number``, the first first."""
        found: list[int] = []
        while number:
            version = self.version(number)
            if version.verb == "restore":
                assert version.restored is not None
                number = version.restored
            else:
                found.append(number)
                number = version.parent
        return found[::-1]

    def change(self, number: int) -> Change:
        """Return what a version does to the one before."""
        folder = self.versions / str(number)
        values = read_json(
            folder / VERSION,
            {"files": dict[str, str], "classes": Default(list[str], [])},
            remedy=self.remedy,
        )
        rows, forgotten = read_change(folder, values["files"], self.remedy)
        return Change(rows=rows, forgotten=forgotten, classes=tuple(values["classes"]))

    # ------------------------------------------------------------------------ writing

    @contextmanager
    def writing(self, say: Callable[[str], None] = lambda line: None) -> Iterator[None]:
        """Hold the versions against every other writer, waiting for one that is at it."""
        with no_lost_writes(self.versions):
            self.versions.mkdir(parents=True, exist_ok=True)
        try:
            with held(self.versions):
                yield
                return
        except HeldError:
            say(f"another process is changing the memory of {self.folder.parent}; waiting for it")
        try:
            with held(self.versions, wait=WAIT):
                yield
        except HeldError as error:
            raise UserError(
                f"another process has been changing the memory of {self.folder.parent} for "
                f"{WAIT / 60:.0f} minutes; try again when it is done"
            ) from error

    def write(self, version: Version, change: Change) -> Version:
        """Add a version and let it answer; to be called while :meth:`writing`.

        Its folder is written first, and counts only once ``current.json`` names it.
        """
        folder = self.versions / str(version.number)
        with no_lost_writes(folder):
            self._remove_unfinished(version.number)
            folder.mkdir()
        files = write_change(folder, change.rows, change.forgotten)
        version = replace(version, weights=self.weights)
        values = {"schema": SCHEMA, "files": files} | finite_or_none(asdict(version))
        write_json(folder / VERSION, values, sealed=True)
        now = {"schema": SCHEMA, "version": version.number, "next_id": version.next_id}
        write_json(self.folder / CURRENT, now, sealed=True)
        return version

    def _remove_unfinished(self, first: int) -> None:
        """Remove what writers that were killed left behind: versions that never answered."""
        for path in self.versions.iterdir():
            if path.name.isdecimal() and int(path.name) >= first:
                rmtree(path)

    def newest(self) -> tuple[int, int]:
        """Return the version in use and the next id; without ``current.json`` if it is damaged."""
        try:
            return self.current()
        except FileError:
            found = 0, self.first_id
        for path in self.versions.glob("[0-9]*"):
            with suppress(ValueError, UserError):
                version = self.version(int(path.name))
                found = max(found, (version.number, version.next_id))
        return found


def _expect_schema(path: Path, schema: int) -> None:
    if schema != SCHEMA:
        raise UserError(
            f"{path} was written by another version of hma (schema {schema}, this one reads "
            f"{SCHEMA}); use that version"
        )
