"""The rows that the options of a run name, opened, split and prepared."""

from pathlib import Path

from hma.data import Prepared, Source, builtin, is_builtin, open_source, prepare
from hma.errors import UserError
from hma.runs.options import RunOptions
from hma.training import Progress, counted


def prepared_from(
    options: RunOptions, *, download: bool = False, progress: Progress | None = None
) -> Prepared:
    """Open the data that ``options`` name, split and prepare it.

    Args:
        options: What to open.
        download: Fetch built-in data that is not there.
        progress: Shows how many rows were encoded or decoded before they could be prepared.
    """
    root = None if options.data_root is None else Path(options.data_root)
    if is_builtin(options.source):
        _expect_own_splits(options)
        with counted(progress, "encoding") as told:
            return builtin(
                options.source,
                seed=options.seed,
                data_root=root,
                download=download,
                options=options.preparation,
                shift=options.shift,
                told=told,
            )
    if download:
        raise UserError(
            f"download is for built-in data such as mnist or tu:PROTEINS, got {options.source}"
        )
    source = source_from(options)
    with counted(progress, "decoding") as source.told:
        return prepare(
            source,
            seed=options.seed,
            validation=_share_or_rows(options, "validation"),
            test=_share_or_rows(options, "test"),
            options=options.preparation,
            group=options.group,
            time=options.time,
            shift=options.shift,
        )


def source_from(options: RunOptions, spec: str | None = None) -> Source:
    """Open the rows that ``options`` name, or those of ``spec`` as these are opened."""
    return open_source(
        spec or options.source,
        target=options.target,
        task=options.task,
        data_root=None if options.data_root is None else Path(options.data_root),
        skip_bad_files=options.skip_bad_files,
        skip_missing_labels=options.skip_missing_labels,
        encoding=options.encoding,
        text=options.text,
        seed=options.seed,
    )


def _share_or_rows(options: RunOptions, name: str) -> float | Source:
    """Return the share of the rows for a split, or its rows where they are given."""
    asked: float | str = getattr(options, name)
    if not isinstance(asked, str):
        return asked
    if not Path(asked).exists():
        raise UserError(
            f"--{name} must be a share of the rows such as 0.15, or a file or folder that is "
            f"there, got {asked}"
        )
    return source_from(options, asked)


def _expect_own_splits(options: RunOptions) -> None:
    """Raise if built-in data is to be divided otherwise."""
    for name in ("validation", "test", "group", "time"):
        value = getattr(options, name)
        if isinstance(value, str):
            raise UserError(
                f"{options.source} comes in splits of its own; leave --{name} {value} out"
            )
