"""``hma bench``: what the memories cost on this machine."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from hma.benchmarks import run
from hma.files import written_whole


def bench(
    *,
    quick: bool = False,
    threads: int | None = None,
    only: list[str] | None = None,
    output: Annotated[Path, Parameter(alias="-o")] = Path("bench.json"),
    overwrite: bool = False,
) -> None:
    """Measure speed and memory against the naive read, the GEMM rate and a ViT's forward.

    Parameters
    ----------
    quick
        Few repeats and small curves: a check, not a record.
    threads
        Torch threads; torch's own number if not given.
    only
        Measure only these parts: naive, gemm, scaling, serving, frozen.
    output
        Where the JSON record goes.
    overwrite
        Replace an existing record.
    """
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists already; pass --overwrite or another --output")
    console = Console()
    with console.status("measuring") as status:
        report = run(
            quick=quick,
            threads=threads,
            only=only,
            progress=lambda text: status.update(f"measuring {text}"),
        )
    for section in report.tables():
        table = Table(title=section.title, caption=section.note or None)
        for name in section.columns:
            table.add_column(name)
        for row in section.rows:
            table.add_row(*row)
        console.print(table)
    with written_whole(output) as temporary:
        temporary.write_text(report.to_json())
    console.print(f"wrote {output}")
