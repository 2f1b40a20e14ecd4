"""Opening what ``hma train`` wrote: a run, or of several seeds one of them."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hma.cli.terminal import Terminal
from hma.errors import UserError
from hma.report.numbers import counted
from hma.runs import Run, SeveralRuns
from hma.runs.seeds import is_several

Encoding = Annotated[
    str | None,
    Parameter(
        help="CSV and .jsonl: how the characters are written, such as latin-1; as at training if "
        "not given."
    ),
]
"""The option of every command that opens rows for a run."""


def opened_run(folder: Path, seed: int | None) -> Run:
    """Open a run; of several seeds the one asked for, or the first with a note on stderr.

    Args:
        folder: What the user gave as RUN.
        seed: What the user gave as ``--seed``, if anything.
    """
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
