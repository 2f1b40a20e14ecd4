"""``python -m benchmarks``: what the memories cost on this machine."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.suite import BENCHMARKS, run
from hma.errors import UserError
from hma.io.files import atomic_write


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables and write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats: a check, not a record")
    parser.add_argument(
        "--threads", type=int, help="torch threads; torch's own number if not given"
    )
    parser.add_argument(
        "--only", action="append", help=f"one of {', '.join(BENCHMARKS)}; repeat it"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("bench.json"), help="the record")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing record")
    given = parser.parse_args(arguments)
    if given.output.exists() and not given.overwrite:
        parser.error(f"{given.output} exists already; pass --overwrite or another --output")
    console = Console()
    try:
        with console.status("measuring") as status:
            report = run(
                quick=given.quick,
                threads=given.threads,
                only=given.only,
                progress=lambda text: status.update(f"measuring {text}"),
            )
    except UserError as error:
        parser.error(str(error))
    for section in report.tables():
        table = Table(*section.columns, title=section.title, caption=section.note or None)
        for row in section.rows:
            table.add_row(*row)
        console.print(table)
    with atomic_write(given.output) as temporary:
        temporary.write_text(report.to_json())
    console.print(f"wrote {given.output}")


if __name__ == "__main__":
    main()
