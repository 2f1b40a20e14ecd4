"""``hma report``: the page of a run."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from hma.runs import Run, write_page


def report(run: Path, *, output: Annotated[Path | None, Parameter(alias="-o")] = None) -> None:
    """Write one self-contained HTML page about a run.

    Parameters
    ----------
    run
        A folder that hma train wrote.
    output
        Where to; report.html in the run folder if not given.
    """
    console = Console()
    with console.status("gathering"):
        page = write_page(Run.open(run), output)
    console.print(f"wrote {page}")
