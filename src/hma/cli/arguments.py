"""Arguments that commands share, and how they are checked: a run, rows, a place to write to."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hma.errors import UserError

if TYPE_CHECKING:
    from hma.runs import Run

RunFolder = Annotated[Path, Parameter(help="A folder that hma train wrote.")]
RunSeed = Annotated[
    int | None,
    Parameter(help="For a run with several seeds, which one to use; the first if not given."),
]
LabelColumns = Annotated[
    tuple[str, ...], Parameter(help="Columns of the labels; those of training if not given.")
]
SkipUnlabelled = Annotated[bool, Parameter(help="Leave out rows without a label.")]
SkipBadFiles = Annotated[
    bool, Parameter(help="Leave out images that cannot be read, and count them.")
]
Overwrite = Annotated[bool, Parameter(help="Replace an existing file.")]
Encoding = Annotated[
    str | None,
    Parameter(
        help="CSV and .jsonl: how the characters are written, such as latin-1; as at training if "
        "not given."
    ),
]


def at_least(least: int) -> Callable[[Any, int | None], None]:
    """Return a validator of whole numbers for :class:`cyclopts.Parameter`."""

    def check(kind: Any, value: int | None) -> None:
        if value is not None and value < least:
            raise ValueError(f"must be at least {least}, got {value}")

    return check


def open_run(folder: Path, seed: int | None) -> "Run":
    """Open a run; of several seeds the one asked for, or the first with a note on stderr.

    Args:
        folder: What the user gave as RUN.
        seed: What the user gave as ``--seed``, if anything.
    """
    from hma.cli.show import Terminal
    from hma.report.numbers import counted
    from hma.runs import Run, SeveralRuns
    from hma.runs.seeds import is_several

    if is_several(folder):
        found = SeveralRuns.open(folder)
        run = found.run(seed)
        if seed is None:
            Terminal(stderr=True).say(
                f"note: {folder} holds {counted(len(found.runs), 'seed')}; this is seed "
                f"{run.options.seed}, --seed asks another"
            )
        return run
    run = Run.open(folder)
    if seed not in (None, run.options.seed):
        raise UserError(
            f"--seed must be {run.options.seed} for {folder}, a run with one seed, got {seed}"
        )
    return run


def output_file(path: Path, *, overwrite: bool = False, endings: Sequence[str] = ()) -> Path:
    """Return ``path`` if a file can be written there, its folder made where it is missing.

    Args:
        path: What the user gave as ``--output``.
        overwrite: Whether a file that is there may be replaced.
        endings: How its name may end; anything if empty.
    """
    path = path.expanduser()
    if endings and not path.name.lower().endswith(tuple(endings)):
        raise UserError(f"--output must end in {' or '.join(endings)}, got {path}")
    if path.is_dir():
        raise UserError(f"--output must name a file, got the folder {path}; add a name to it")
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"{path} exists already; pass --overwrite or another --output")
    output_folder(path.parent).mkdir(parents=True, exist_ok=True)
    return path


def output_folder(path: Path) -> Path:
    """Return ``path`` if a folder is there or can be made."""
    path = path.expanduser()
    there = next(part for part in (path, *path.absolute().parents) if os.path.lexists(part))
    if not there.is_dir():
        raise UserError(f"{path} cannot be a folder: a file is in the way; give another --output")
    return path
