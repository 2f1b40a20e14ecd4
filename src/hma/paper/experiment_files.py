"""Experiment files: where they are, and the table that each of them declares."""

import ast
import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import hma
from hma.errors import UserError, wrong_choice
from hma.paper.table import Table

FOLDER = "experiments"
TABLES = "[!_]*.py"
"""Files that declare a table; what several of them share is in a file that begins with _."""


def experiments_folder(given: Path | None = None) -> Path:
    """Return the folder of experiment files: the one given, ``./experiments``, or hma's own."""
    package = Path(hma.__file__).parent
    places = [given] if given else [Path(FOLDER), package.parents[1] / FOLDER, package / FOLDER]
    for place in places:
        if any(place.glob(TABLES)):
            return place.absolute()
    raise UserError(
        f"there are no experiment files; looked in {', '.join(str(place) for place in places)}. "
        "Name their folder with --experiments"
    )


def load_tables(folder: Path) -> dict[str, Table]:
    """Return the tables of all experiment files, by key."""
    tables = [load_table(file) for file in table_files(folder).values()]
    return {table.key: table for table in tables}


def find_table(folder: Path, key: str) -> tuple[Table, Path]:
    """Return a table and the file that declares it; no other file is run.

    Args:
        folder: The folder of experiment files.
        key: As the file has it; its case does not matter.
    """
    files = table_files(folder)
    for name, file in files.items():
        if name.lower() == key.lower():
            return load_table(file), file
    raise UserError(wrong_choice("table", key, tuple(files)))


def table_files(folder: Path) -> dict[str, Path]:
    """Return the experiment files by the key of their table, read off their text: none is run.

    A file that does not spell its key out in ``TABLE = ...(key="...")`` is known by its name.
    """
    files: dict[str, Path] = {}
    for file in sorted(folder.glob(TABLES)):
        key = _written_key(file) or file.stem
        if key in files:
            raise UserError(f"two experiment files in {folder} declare the table {key}")
        files[key] = file
    return files


def load_table(file: Path) -> Table:
    """Return the table that an experiment file declares as ``TABLE``."""
    try:
        table = getattr(_module(file), "TABLE", None)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    except SyntaxError as error:
        raise UserError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    if not isinstance(table, Table):
        raise UserError(f"{file} must declare TABLE = hma.paper.table.Table(...), got {table!r}")
    return table


def _written_key(file: Path) -> str | None:
    try:
        statements = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None  # whoever asks for it by its name hears what is wrong
    for statement in statements:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="TABLE")], value=ast.Call(keywords=keywords))
                | ast.AnnAssign(target=ast.Name(id="TABLE"), value=ast.Call(keywords=keywords))
            ):
                for keyword in keywords:
                    match keyword:
                        case ast.keyword(arg="key", value=ast.Constant(value=str(key))):
                            return key
    return None


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
