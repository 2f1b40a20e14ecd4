"""From what a user writes for SOURCE to a source."""

from difflib import get_close_matches
from pathlib import Path

from hma.data.graph.tu_folder import GraphFolder, find_adjacency
from hma.data.image.folder import ImageFolder
from hma.data.npz import open_arrays
from hma.data.sets.named import BUILTINS, builtin_source, is_builtin
from hma.data.source import Source
from hma.data.table.files import TableFile, is_table
from hma.data.text.files import TextFile
from hma.errors import UserError

MAY_BE = (
    "a folder of class-named image folders, a CSV or Parquet file with --target COLUMN, an .npz "
    'with x and y, a TU-format graph folder, a .jsonl of {"text": ..., "label": ...}, or one of '
    + ", ".join(BUILTINS)
)


def open_source(
    spec: str | Path,
    *,
    target: str | None = None,
    data_root: Path | None = None,
    skip_bad_files: bool = False,
    seed: int = 0,
) -> Source:
    """Open whatever SOURCE names: a file, a folder, or built-in data.

    Args:
        spec: A path, or the name of built-in data; a ``Path`` is never taken for a name.
        target: Column of the labels, for tables; leave it out to predict.
        data_root: Where built-in data is; ``$HMA_DATA`` or the cache folder if not given.
        skip_bad_files: Leave out images that cannot be read, and list them in ``skipped``.
        seed: Decides built-in data that is made by chance, such as the colours of colored-mnist.
    """
    if isinstance(spec, str) and is_builtin(spec):
        _no_target(spec, target)
        return builtin_source(spec, seed=seed, data_root=data_root)
    path = Path(spec).expanduser()
    if not path.exists():
        raise UserError(_unknown(str(spec), path))
    if is_table(path) and path.is_file():
        return TableFile(path, target)
    _no_target(str(spec), target)
    if path.is_dir():
        if find_adjacency(path) is not None:
            return GraphFolder(path)
        return ImageFolder(path, skip_bad_files=skip_bad_files)
    if path.suffix.lower() == ".npz":
        return open_arrays(path)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return TextFile(path)
    raise UserError(f"{path} is of no kind that can be read; SOURCE may be {MAY_BE}")


def _no_target(spec: str, target: str | None) -> None:
    if target is not None:
        raise UserError(
            f"target is for CSV and Parquet files, got {target!r} with {spec}; leave it out"
        )


def _unknown(spec: str, path: Path) -> str:
    beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(spec, BUILTINS, n=1) or [
        str(path.with_name(name)) for name in get_close_matches(path.name, beside, n=1)
    ]
    guess = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"there is no file, folder or built-in data called {spec!r}; {guess}SOURCE may be {MAY_BE}"
    )
