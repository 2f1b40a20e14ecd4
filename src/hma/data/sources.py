"""From what a user writes for SOURCE to a source, and from a source to its rows in order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from hma.data.arrays import open_arrays
from hma.data.graph.source import GraphFolder, find_adjacency
from hma.data.image.source import ImageFolder, split_folders
from hma.data.labels import label_kind_for
from hma.data.preparation import Preparation
from hma.data.sets.by_name import BUILTINS, builtin_source, is_builtin
from hma.data.source import Source
from hma.data.table.source import TableFile, is_table
from hma.data.task import Batch
from hma.data.text.source import TextColumn, TextFile
from hma.errors import UserError
from hma.io.files import expect_regular
from hma.options.run import Aim

SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")


@dataclass(frozen=True)
class HowToRead:
    """How a file or folder is to be read."""

    path: Path
    columns: tuple[str, ...]
    aim: Aim | None
    skip_bad_files: bool
    skip_missing_labels: bool
    encoding: str | None
    text: str | None


class Reader(NamedTuple):
    """One thing that SOURCE may be."""

    what: str
    """In words."""
    fits: Callable[[Path], bool]
    open: Callable[[HowToRead], Source]


def _table(how: HowToRead) -> Source:
    if how.aim is not None and not how.columns:
        raise UserError(f"task {how.aim!r} needs a target; name its column with --target")
    kind = label_kind_for(how.aim, max(len(how.columns), 1))
    table = TableFile(how.path, how.columns, label_kind=kind, encoding=how.encoding)
    table.skip_missing_labels = how.skip_missing_labels
    return table if how.text is None else TextColumn(table, how.text)


def _images(how: HowToRead) -> Source:
    """Open a folder of classes, or one of splits that hold such folders."""
    folders = split_folders(how.path)
    if not folders:
        only = _set_label_kind(ImageFolder(how.path, skip_bad_files=how.skip_bad_files), how)
        if only.name == "train":
            only.name = how.path.resolve().parent.name or only.name
        return only
    opened = {
        name: _set_label_kind(ImageFolder(folder, skip_bad_files=how.skip_bad_files), how)
        for name, folder in folders.items()
    }
    train = opened.pop("train")
    train.name, train.given = how.path.resolve().name, opened
    return train


def _set_label_kind(source: Source, how: HowToRead) -> Source:
    """Return a source with one label a row, of the kind to be learned."""
    source.label_kind = label_kind_for(how.aim, 1)
    return source


READERS = (
    Reader(
        "a folder of class-named image folders, or of train, val and test folders of such",
        lambda path: path.is_dir() and find_adjacency(path) is None,
        _images,
    ),
    Reader(
        "a CSV or Parquet file with --target COLUMN and perhaps --text COLUMN",
        lambda path: is_table(path) and path.is_file(),
        _table,
    ),
    Reader(
        "an .npz with x and y",
        lambda path: path.suffix.lower() == ".npz",
        lambda how: open_arrays(how.path, how.aim, how.skip_missing_labels),
    ),
    Reader(
        "a TU-format graph folder",
        lambda path: find_adjacency(path) is not None,
        lambda how: _set_label_kind(GraphFolder(how.path), how),
    ),
    Reader(
        'a .jsonl of {"text": ..., "label": ...}',
        lambda path: path.suffix.lower() in (".jsonl", ".ndjson"),
        lambda how: _set_label_kind(TextFile(how.path, how.encoding), how),
    ),
)
MAY_BE = ", ".join(reader.what for reader in READERS) + f", or one of {', '.join(BUILTINS)}"


def open_source(
    spec: str | Path,
    *,
    target: str | Sequence[str] | None = None,
    task: Aim | None = None,
    data_root: Path | None = None,
    skip_bad_files: bool = False,
    skip_missing_labels: bool = False,
    encoding: str | None = None,
    text: str | None = None,
    seed: int = 0,
) -> Source:
    """Open whatever SOURCE names: a file, a folder, or built-in data.

    Args:
        spec: A path, or the name of built-in data; a ``Path`` is never taken for a name.
        target: Column of the labels, for tables, or several columns of yes/no labels; leave it
            out to predict.
        task: What is learned: ``"classes"``, ``"regression"`` for a number, or ``"soft"`` for
            shares of classes, a column each; by default classes, or yes/no labels for several
            columns.
        data_root: Where built-in data is; ``$HMA_DATA`` or the cache folder if not given.
        skip_bad_files: Leave out images that cannot be read, and list them in ``skipped``.
        skip_missing_labels: Leave out rows without a label when a task is made.
        encoding: How the characters of a CSV or ``.jsonl`` are written; UTF-8 if not given. Other
            sources have none.
        text: Column of texts to learn from, for tables; without it every column is a feature.
        seed: Decides built-in data that is made by chance, such as the colours of colored-mnist.
    """
    columns = (target,) if isinstance(target, str) else tuple(target or ())
    if isinstance(spec, str) and is_builtin(spec):
        _expect_no_target(spec, columns)
        if task is not None:
            raise UserError(f"{spec} has classes of its own; leave task out, got {task!r}")
        return builtin_source(spec, seed=seed, data_root=data_root)
    path = _expect_path(spec)
    if not is_table(path) or not path.is_file():
        _expect_no_target(str(spec), columns)
        if text is not None:
            raise UserError(
                f"text names a column of a CSV or Parquet file, got {text!r} with {spec}; leave it "
                "out"
            )
    for reader in READERS:
        if reader.fits(path):
            how = (path, columns, task, skip_bad_files, skip_missing_labels, encoding, text)
            source = reader.open(HowToRead(*how))
            source.skip_missing_labels = skip_missing_labels
            return source
    raise UserError(f"{path} is of no kind that can be read; SOURCE may be {MAY_BE}")


def stream(
    preparation: Preparation, source: Source | str | Path, batch_size: int
) -> Iterator[Batch]:
    """Yield all rows of a source, prepared; memory does not grow with a CSV, JSONL or folder.

    A source without rows yields no batch. The ids of a batch are rows of the source; ``y`` is
    unknown where the source has no labels.

    Args:
        preparation: What was fitted at training.
        source: A source, or what :func:`open_source` takes.
        batch_size: Rows per batch; the last may be smaller.
    """
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, got {batch_size}")
    opened = open_source(source) if isinstance(source, str | Path) else source
    return (batch for batch in preparation.stream(opened, batch_size) if len(batch.ids))


def _expect_path(spec: str | Path) -> Path:
    """Return the file or folder that SOURCE names; raise unless it is there and may be read."""
    path = Path(spec).expanduser()
    try:
        if not path.exists():
            raise UserError(_explain_unknown(str(spec), path))
    except OSError as error:  # too long for a name, or in a folder that may not be read
        raise UserError(f"{str(spec)[:80]!r} cannot be opened: {error.strerror}") from error
    if not path.is_dir():
        expect_regular(path)
    if path.suffix.lower() in SPREADSHEETS:
        convert = f"pandas.read_excel({path.name!r}).to_csv({path.stem + '.csv'!r}, index=False)"
        raise UserError(
            f"{path} is a spreadsheet, which is not read; save it as CSV or Parquet, by hand or "
            f'with python -c "import pandas; {convert}"'
        )
    return path


def _expect_no_target(spec: str, columns: tuple[str, ...]) -> None:
    if columns:
        shown = columns[0] if len(columns) == 1 else columns
        raise UserError(
            f"target is for CSV and Parquet files, got {shown!r} with {spec}; leave it out"
        )


def _explain_unknown(spec: str, path: Path) -> str:
    beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    files = [str(path.with_name(name)) for name in get_close_matches(path.name, beside, n=1)]
    # a name that a command took for a path comes with a folder in front
    names = [get_close_matches(name, BUILTINS, n=1) for name in (spec, path.name)]
    near = [*names[0], *files, *names[1]]
    guess = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"there is no file, folder or built-in data called {spec!r}; {guess}SOURCE may be {MAY_BE}"
    )
