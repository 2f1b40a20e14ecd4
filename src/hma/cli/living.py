"""``hma remember`` and ``hma forget``: a run's memory taught and made to forget."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hma.cli.opening import Encoding, opened_run
from hma.cli.show_versions import tell_version
from hma.cli.terminal import Terminal
from hma.errors import UserError
from hma.runs.living import LivingMemory
from hma.runs.source import rows_for
from hma.training import progress_for_terminal

MOST_DIGITS = 60
"""Of a number that is looked up at all."""


def remember(
    run: Path,
    source: str,
    *,
    new_classes: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
    target: tuple[str, ...] = (),
    note: str = "",
    skip_missing_labels: bool = False,
    skip_bad_files: bool = False,
    encoding: Encoding = None,
    seed: int | None = None,
) -> None:
    """Teach a run's memory more rows, without training; they vote at once.

    Every change is a version of its own: hma memory RUN --history lists them, --restore brings one
    back. Rows that the memory holds already are left out.

    Parameters
    ----------
    run
        A folder that hma train wrote.
    source
        Labelled rows of the same kind as at training: anything that hma train takes.
    new_classes
        Let classes in that training never saw; the vote answers for them.
    yes
        Teach rows that are validation or test rows of the run as well; scores, audits and promises
        leave them out from then on.
    target
        Columns of the labels; those of training if not given.
    note
        A line to keep with the version.
    skip_missing_labels
        Leave out rows without a label.
    skip_bad_files
        Leave out images that cannot be read, and count them.
    seed
        Of a run with several seeds, which one to teach; the first if not given.
    """
    opened = opened_run(run, seed)
    rows = rows_for(
        opened,
        source,
        labelled=True,
        target=target,
        skip_missing_labels=skip_missing_labels,
        skip_bad_files=skip_bad_files,
        encoding=encoding,
    )
    terminal = Terminal()
    memory = LivingMemory.open(opened, terminal.say, progress_for_terminal(lines=True))
    version = memory.remember(rows, new_classes=new_classes, yes=yes, note=note, name=source)
    for line in opened.preparation.notes(rows):
        terminal.say(line)
    if rows.skipped:
        terminal.say(f"left out {len(rows.skipped)} unreadable files")
    tell_version(terminal, version)


def forget(
    run: Path,
    *,
    ids: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    where: str | None = None,
    label: Annotated[str | None, Parameter(name="--class")] = None,
    yes: Annotated[bool, Parameter(negative="")] = False,
    note: str = "",
    seed: int | None = None,
) -> None:
    """Take rows out of a run's memory: they vote no longer, and what remains of them is said.

    Parameters
    ----------
    run
        A folder that hma train wrote.
    ids
        Ids of rows, as hma memory RUN lists them, such as 3,17.
    where
        Tables: a condition on columns, such as "city == 'Oslo' and age >= 65".
    label
        A class, all of whose rows go.
    yes
        Go on where no row of a class would be left, or none at all.
    note
        A line to keep with the version.
    seed
        Of a run with several seeds, which one; the first if not given.
    """
    opened = opened_run(run, seed)
    terminal = Terminal()
    memory = LivingMemory.open(opened, terminal.say, progress_for_terminal(lines=True))
    chosen = _numbers(ids) if ids else None
    version = memory.forget(ids=chosen, where=where, label=label, yes=yes, note=note)
    tell_version(terminal, version)
    terminal.say(f"what remains: {version.remains}")
    terminal.say("earlier versions keep the rows on disk, for hma memory --restore")


def _numbers(texts: tuple[str, ...]) -> list[int]:
    """Return ids that are written with commas, or one by one."""
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if wrong := [part for part in parts if not part.isdecimal() or len(part) > MOST_DIGITS]:
        raise UserError(f"--ids must be whole numbers such as 3,17, got {wrong[0][:60]!r}")
    return [int(part) for part in parts]
