"""``hma report``: the page of a run, or the measured numbers of a table."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from cyclopts import Parameter

from hma.cli.arguments import open_run, output_file, output_folder
from hma.cli.run import PLACES, Places
from hma.errors import UserError
from hma.extras import importing

if TYPE_CHECKING:
    from hma.paper.report.printed import PrintFormat
    from hma.paper.report.table_report import TableReport
    from hma.paper.table import Table

Format = Literal["terminal", "markdown", "latex", "html", "png", "pdf", "svg"]
SUFFIXES: dict[str, Format] = {
    ".txt": "terminal",
    ".md": "markdown",
    ".tex": "latex",
    ".html": "html",
    ".png": "png",
    ".pdf": "pdf",
    ".svg": "svg",
}
PRINTED = ("png", "pdf", "svg")
RUN_SUFFIXES: dict[str, Format] = {".html": "html", ".md": "markdown"}
ALL = "all"
DOCUMENTS = Path("docs/results")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Which part of a table."""

    budget: str | None = None
    """smoke, small, paper or full; small if not given."""
    only: str | None = None
    """TASK/METHOD, TASK or METHOD; * stands for anything."""
    seeds: int | None = None
    """Number of seeds; the budget's if not given."""


WHOLE = Part()


def report(
    what: str,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    format: Format | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    part: Annotated[Part, Parameter(name="*")] = WHOLE,
    places: Annotated[Places, Parameter(name="*")] = PLACES,
) -> None:
    """Show what is measured: of a table, beside what the paper prints, or of a run.

    A run gives one self-contained HTML page, or with an output that ends in .md the model card of
    what it deploys. A table is printed, or written as Markdown, LaTeX or such a page, its pictures
    as PNG, PDF or SVG; what is missing is shown as missing.

    Parameters
    ----------
    what
        A folder that hma train wrote, a key that hma tables lists, or 'all' for a folder with a
        Markdown document and the drawings of every table that has records.
    output
        Where to. For a run report.html, or README.md, in its folder if not given, for 'all'
        docs/results.
    format
        terminal, markdown, latex, html, png, pdf or svg; by the suffix of the output if not given.
    overwrite
        Replace the file that --output names; documents of 'all' are always made anew.
    seed
        Of a run with several seeds, the page of one of them; the comparison if not given.
    """
    if output is not None and what != ALL:
        output = output_file(output, overwrite=overwrite)
    if what == ALL:
        _report_all(output or DOCUMENTS, format, part, places)
    elif Path(what).exists() or Path(what).name != what:  # never a table: those are programs
        _report_run(Path(what), output, format, part, seed)
    else:
        _report_table(what, output, format, part, places, overwrite)


def _report_table(
    key: str,
    output: Path | None,
    format: Format | None,
    part: Part,
    places: Places,
    overwrite: bool,
) -> None:
    with importing():
        from hma.paper.report.documents import report_of
        from hma.paper.results import Results

    table = _table(key, places)
    found = report_of(
        table, part.budget or "small", Results(places.results), only=part.only, seeds=part.seeds
    )
    _write(table, found, output, format or _format(output), overwrite)


def _report_run(
    run: Path, output: Path | None, format: Format | None, part: Part, seed: int | None
) -> None:
    with importing():
        from hma.cli.show import Terminal
        from hma.io.card import CARD
        from hma.report.seeds import seeds_verdict
        from hma.runs import SeveralRuns, write_card, write_page
        from hma.runs.seeds import is_several
        from hma.training import progress_for_terminal

    if format is None and output is not None and output.suffix not in RUN_SUFFIXES:
        raise UserError(
            "--output must end in .html, for the page of a run, or .md, for its model card; got "
            f"{output}"
        )
    format = format or ("html" if output is None else RUN_SUFFIXES[output.suffix])
    if format not in ("html", "markdown"):
        raise UserError(
            "the report of a run is a page or a model card: --format must be html or markdown, "
            f"got {format}"
        )
    if part != WHOLE:
        raise UserError(f"{run} is a run: --budget, --only and --seeds are for tables")
    terminal = Terminal()
    progress = progress_for_terminal(lines=True)
    if format == "markdown":
        page = write_card(open_run(run, seed), output or output_file(run / CARD))
    elif seed is None and is_several(run):
        found = SeveralRuns.open(run)
        report = found.report(progress)
        page = found.write_page(report, output)
        terminal.say(f"verdict: {seeds_verdict(report, report.tests[0]).headline}")
    else:
        opened = open_run(run, seed)
        page = write_page(opened, output, progress=progress, say=terminal.say)
    terminal.say(f"wrote {page}")


def _report_all(folder: Path, format: Format | None, part: Part, places: Places) -> None:
    with importing():
        from hma.cli.show import Terminal
        from hma.paper.experiment_files import experiments_folder, load_tables
        from hma.paper.report.documents import write_documents
        from hma.paper.results import Results

    if format not in (None, "markdown"):
        raise UserError(f"the documents of all tables are Markdown: --format {format} is for one")
    if part != WHOLE:
        raise UserError("all takes no --budget, --only or --seeds: it shows what is measured")
    tables = load_tables(experiments_folder(places.experiments))
    written = write_documents(tables.values(), Results(places.results), output_folder(folder))
    if not written:
        raise UserError(f"no table has a record in {places.results}; hma run measures one")
    for path in written:
        Terminal().say(f"wrote {path}")


def _table(what: str, places: Places) -> "Table":
    from hma.paper.experiment_files import experiments_folder, find_table

    try:
        return find_table(experiments_folder(places.experiments), what)[0]
    except UserError as error:
        raise UserError(
            f"{what} is neither a run (a folder with run.json, as hma train writes) nor a table: "
            f"{error}"
        ) from error


def _format(output: Path | None) -> Format:
    if output is None:
        return "terminal"
    if output.suffix not in SUFFIXES:
        raise UserError(
            f"--output must end in {', '.join(SUFFIXES)}, or say --format; got {output}"
        )
    return SUFFIXES[output.suffix]


def _write(
    table: "Table", found: "TableReport", output: Path | None, format: Format, overwrite: bool
) -> None:
    from hma.cli.show import Terminal
    from hma.io.files import atomic_write
    from hma.paper.report.formats import terminal

    if output is None and format in ("html", *PRINTED):
        output = output_file(
            Path(f"{found.table.key}-{found.budget}.{format}"), overwrite=overwrite
        )
    if output is not None and format in PRINTED:
        _print(found, output, cast("PrintFormat", format))
        return
    if output is None and format == "terminal" and sys.stdout.isatty():
        for part in terminal(found):
            Terminal().print(part)
        return
    text = _text(table, found, format)
    if output is None:
        print(text, end="")
        return
    with atomic_write(output) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    Terminal().say(f"wrote {output}")


def _print(found: "TableReport", output: Path, kind: "PrintFormat") -> None:
    from hma.cli.show import Terminal
    from hma.io.files import atomic_write
    from hma.paper.report.pictures import printed_scenes
    from hma.paper.report.printed import print_pictures

    scenes, key = printed_scenes(found), found.table.key
    if not scenes:
        raise UserError(
            f"{key} has no picture to print: it declares none, or no record of the budget "
            f"{found.budget} has one; hma report {key} -o table.html draws its scores"
        )
    with atomic_write(output) as temporary:
        print_pictures(scenes, temporary, kind)
    Terminal().say(f"wrote {output}")


def _text(table: "Table", found: "TableReport", format: Format) -> str:
    from hma.paper.report.formats import latex, markdown, plain_text
    from hma.paper.report.page import examples_of, page

    if format == "terminal":
        return plain_text(found)
    if format == "markdown":
        return markdown([found])
    if format == "latex":
        return latex(found)
    return page(found, examples_of(table, found.budget, found.scenes))
