"""``hma results``: the files that records of tables are in."""

from pathlib import Path

from cyclopts import App

from hma.errors import UserError, wrong_choice

app = App(name="results", help="Records of tables: put them into one file a table.")


@app.command
def pack(table: str | None = None, *, results: Path = Path("results")) -> None:
    """Pack records that have a file each into one file a table, with their epochs beside it.

    RESULTS/TABLE.jsonl has a line for each record, RESULTS/TABLE.curves.parquet a row for each
    epoch. Packed records are read as single ones are. Runs may go on meanwhile; a kill at any
    moment loses nothing, and the same command again goes on.

    Parameters
    ----------
    table
        Key of a table; all if not given.
    results
        Folder of the records.
    """
    from hma.cli.show import Terminal
    from hma.io.files import HeldError
    from hma.paper.results import Results

    found = Results(results)
    keys = found.tables()
    if table is not None and table not in keys:
        if not found.packed(table).cells():
            raise UserError(wrong_choice("table", table, keys or ("none",)))
        keys = ()
    console = Terminal()
    for key in keys if table is None else {table} & {*keys}:
        try:
            count = found.pack(key)
        except HeldError as error:
            raise UserError(f"another process is packing {key}; wait for it") from error
        console.say(f"{key}: {count} records packed into {found.packed(key).path}")
    if not keys:
        console.say(f"no record in {found.folder} has a file of its own")
