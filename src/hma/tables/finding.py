"""Experiment files: where they are, and the table that each of them declares."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import hma
from hma.config import wrong_choice
from hma.errors import UserError
from hma.tables.table import Table

FOLDER = "experiments"


def experiments_folder(given: Path | None = None) -> Path:
    """Return the folder of experiment files: the one given, ``./experiments``, or hma's own."""
    package = Path(hma.__file__).parent
    places = [given] if given else [Path(FOLDER), package.parents[1] / FOLDER, package / FOLDER]
    for place in places:
        if any(place.glob("[!_]*.py")):
            return place.absolute()
    raise UserError(
        f"there are no experiment files; looked in {', '.join(str(place) for place in places)}. "
        "Name their folder with --experiments"
    )


def load_tables(folder: Path) -> dict[str, Table]:
    """Return the tables of all experiment files, by key."""
    found: dict[str, Table] = {}
    for file in sorted(folder.glob("[!_]*.py")):
        table = load_table(file)
        if table.key in found:
            raise UserError(f"two experiment files in {folder} declare the table {table.key}")
        found[table.key] = table
    return found


def find_table(folder: Path, key: str) -> tuple[Table, Path]:
    """Return a table and the file that declares it; the case of ``key`` does not matter."""
    tables = {}
    for file in sorted(folder.glob("[!_]*.py")):
        table = load_table(file)
        if table.key.lower() == key.lower():
            return table, file
        tables[table.key] = file
    raise UserError(wrong_choice("table", key, tuple(tables)))


def load_table(file: Path) -> Table:
    """Return the table that an experiment file declares as ``TABLE``."""
    try:
        table = getattr(_module(file), "TABLE", None)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    if not isinstance(table, Table):
        raise UserError(f"{file} must declare TABLE = hma.tables.Table(...), got {table!r}")
    return table


def _module(file: Path) -> ModuleType:
    """Import a file as a module of its folder, so that it may share parts with its neighbours."""
    file = file.absolute()
    package = "_experiments_" + hashlib.sha256(str(file.parent).encode()).hexdigest()[:12]
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(file.parent)]
        sys.modules[package] = parent
    name = f"{package}.{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
