"""``hma audit``: does a run use its memory?"""

import json
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hma.cli.arguments import Encoding, RunFolder, RunSeed, open_run
from hma.extras import importing

if TYPE_CHECKING:
    from hma.data import Source
    from hma.questions.audit import Audit
    from hma.runs import Run
    from hma.training import Progress


def audit(
    run: RunFolder,
    *,
    data: str | None = None,
    target: tuple[str, ...] = (),
    encoding: Encoding = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    seed: RunSeed = None,
) -> None:
    """Say whether a run uses its memory: the score as it is, and with the memory changed.

    Labels of stored rows permuted, no stored rows, no slots, and what neighbours would change,
    each with its interval; audit.json in the run's folder keeps it for the page.

    Parameters
    ----------
    data
        Labelled rows to score instead of the run's test rows; nothing is written then.
    target
        Columns of the labels of --data; those of training if not given.
    as_json
        Print the numbers as JSON.
    """
    with importing():
        from hma.cli.show import Terminal
        from hma.runs.audits import AUDITS, audit_run
        from hma.runs.source import rows_for
        from hma.training import progress_for_terminal

    opened = open_run(run, seed)
    progress = progress_for_terminal(lines=True)
    notes: list[str] = []
    if data is None:
        found = audit_run(opened, progress)
        notes.append(f"wrote {opened.folder / AUDITS}")
    else:
        rows = rows_for(opened, data, labelled=True, target=target, encoding=encoding)
        found, notes = _of_other_rows(opened, rows, progress)
    if as_json:
        print(json.dumps({name: one.to_json() for name, one in found.items()}, indent=2))
    else:
        for name, one in found.items():
            Terminal().say(f"{name}\n{one}\n")
    for note in notes:
        Terminal(stderr=as_json).say(note)


def _of_other_rows(
    run: "Run", rows: "Source", progress: "Progress"
) -> tuple[dict[str, "Audit"], list[str]]:
    from hma.runs.audits import audit_source
    from hma.runs.source import rows_trained_on

    found = audit_source(run, rows, progress)
    known = rows_trained_on(run, rows)
    notes = [*run.preparation.notes(rows)]
    if known:
        notes.append(
            f"{known} of these rows were trained on or taught and find their own copies in the "
            "memory; ask with others, or with the test rows, without --data"
        )
    return {rows.name: found}, notes
