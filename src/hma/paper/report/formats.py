"""The report of a table as Markdown, as LaTeX and for a terminal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from hma.errors import on_one_line, printable
from hma.paper.report.sheets import overviews, sheets
from hma.paper.report.table_report import Field, Sheet, TableReport

LISTED = 20
"""Failures that are written out."""
MARKS = "\\`*_[]|<>#~&$"
"""What Markdown or HTML would act on."""
ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "\u2212": "$-$",
    "—": "---",
    "[": "{[}",  # after \\ it would be taken for an optional length
    "]": "{]}",
}
WIDTH = 100


def state(report: TableReport) -> str:
    """Return how much is measured."""
    if report.records == report.cells:
        return f"All {report.cells} cells are measured, with {_seeds(report)}."
    failed = f", {len(report.failures)} of the others failed" if report.failures else ""
    return (
        f"{report.records} of {report.cells} cells are measured{failed}; asked for: "
        f"{_seeds(report)}."
    )


def missing(report: TableReport) -> str:
    """Return which command measures the rest; empty if there is nothing that can be measured."""
    count = report.cells - report.records - report.retired
    return f"{count} cells are missing; this measures them:" if count else ""


def failures(report: TableReport) -> list[str]:
    """Return a line for each failed cell, up to a number of them."""
    lines = [f"{cell}: {failure.error}" for cell, failure in report.failures.items()]
    more = len(lines) - LISTED
    return lines[:LISTED] + ([f"and {more} more"] if more > 0 else [])


def origin(report: TableReport) -> dict[str, str]:
    """Return where the numbers come from, by name."""
    records = report.held.values()
    found = {
        "budget": f"{report.budget}: {report.budget_what}",
        "records": f"{report.records} of {report.cells}",
        "commits": _counted([one.git_commit or "unknown" for one in records], report.records),
    }
    for package in sorted({name for one in records for name in one.versions}):
        versions = [one.versions[package] for one in records if package in one.versions]
        found[package] = _counted(versions, report.records)
    if report.outside:
        found["not asked for"] = ", ".join(report.outside)
    return {name: text for name, text in found.items() if text}


def _counted(values: Sequence[str], records: int) -> str:
    """Return the values; with their numbers of records where it is not one for all."""
    found = dict(sorted(Counter(values).items()))
    if list(found.values()) == [records]:
        return next(iter(found))
    return ", ".join(f"{value} ({count} records)" for value, count in found.items())


def _seeds(report: TableReport) -> str:
    first, last = report.seeds[0], report.seeds[-1]
    if len(report.seeds) > 2 and report.seeds == tuple(range(first, last + 1)):
        return f"seeds {first} to {last}"
    return f"seed{'s' if len(report.seeds) > 1 else ''} {', '.join(map(str, report.seeds))}"


def markdown(
    reports: Sequence[TableReport], figures: Mapping[str, Mapping[str, str]] | None = None
) -> str:
    """Return a document on one table under one or more budgets.

    Args:
        reports: Of the same table, one for each budget.
        figures: Budget -> name of a file with a drawing -> what it shows.
    """
    first = reports[0]
    parts = [f"# {escape_markdown(first.table.key)}: {escape_markdown(first.table.title)}"]
    parts += [escape_markdown(note) for note in first.table.notes]
    for report in reports:
        parts += _budget(report, (figures or {}).get(report.budget, {}))
    return "\n\n".join(parts) + "\n"


def escape_markdown(text: str) -> str:
    """Return ``text`` on one line, with nothing in it that Markdown or HTML would act on.

    Example:
        >>> print(escape_markdown("a_b <script>"))
        a\\_b \\<script\\>
    """
    line = on_one_line(text)
    return "".join(f"\\{character}" if character in MARKS else character for character in line)


def _budget(report: TableReport, figures: Mapping[str, str]) -> list[str]:
    found = sheets(report)
    parts = [
        f"## Budget {escape_markdown(report.budget)}",
        f"{escape_markdown(report.budget_what)}. {escape_markdown(state(report))}",
    ]
    parts += [f"> {escape_markdown(warning)}" for warning in report.warnings]
    parts += [f"![{escape_markdown(text)}]({name})" for name, text in figures.items()]
    parts += [
        escape_markdown(line) for scene in report.scenes for line in scene.finding.splitlines()
    ]
    top = overviews(found)
    for place, sheet in enumerate(top):
        parts += _sheet(sheet, note=place == len(top) - 1)
    for sheet in found:
        if sheet.kind == "published":
            parts += _sheet(sheet)
    tasks = [sheet for sheet in found if sheet.kind == "task"]
    if tasks:
        parts.append(f"### Against {escape_markdown(report.table.baseline)}")
        parts.append(escape_markdown(tasks[0].note))
    for sheet in tasks:
        parts += [f"#### {escape_markdown(sheet.title)}", _sheet_grid(sheet)]
    for sheet in found:
        if sheet.kind not in ("overview", "published", "task"):
            parts += _sheet(sheet)
    parts += [*_origin(report), *_missing(report)]
    return parts


def _sheet(sheet: Sheet, *, note: bool = True) -> list[str]:
    below = [escape_markdown(sheet.note)] if note and sheet.note else []
    return [f"### {escape_markdown(sheet.title)}", _sheet_grid(sheet), *below]


def _sheet_grid(sheet: Sheet) -> str:
    columns = [escape_markdown(name) for name in sheet.columns]
    lines = [[_field(field) for field in line] for line in sheet.lines]
    return grid(columns, lines, names=sheet.names)


def grid(columns: Sequence[str], lines: Iterable[Sequence[str]], *, names: int) -> str:
    """Return a table in Markdown, of texts that are already escaped.

    Args:
        columns: Their headings.
        lines: Its cells.
        names: Columns that are names, on the left; the others are numbers, on the right.

    Example:
        >>> print(grid(["row", "score"], [["plain", "41.2"]], names=1))
        | row | score |
        | --- | ---: |
        | plain | 41.2 |
    """
    dashes = ["---"] * names + ["---:"] * (len(columns) - names)
    return "\n".join("| " + " | ".join(line) + " |" for line in [columns, dashes, *lines])


def _field(field: Field) -> str:
    text = f"**{escape_markdown(field.text)}**" if field.best else escape_markdown(field.text)
    return "<br>".join([text, *(escape_markdown(line) for line in field.below)])


def _origin(report: TableReport) -> list[str]:
    texts = origin(report).items()
    lines = [f"| {escape_markdown(name)} | {escape_markdown(text)} |" for name, text in texts]
    return ["### Where the numbers come from", "\n".join(["| | |", "| --- | --- |", *lines])]


def _missing(report: TableReport) -> list[str]:
    if not missing(report):
        return []
    lines = [f"- {escape_markdown(line)}" for line in failures(report)]
    failed = ["Failed at the last try:", "\n".join(lines)] if lines else []
    command = f"```bash\n{report.command}\n```"
    return ["### What is missing", escape_markdown(missing(report)), command, *failed]


def latex(report: TableReport) -> str:
    r"""Return one ``table`` environment for each sheet; the preamble needs booktabs.

    Quotation marks and all letters come out as in a document with ``\usepackage[T1]{fontenc}``.
    """
    head = [
        f"% {on_one_line(f'{report.table.key}, budget {report.budget}: {report.budget_what}')}",
        f"% {on_one_line(state(report))}",
        "% \\usepackage{booktabs}\n% \\usepackage[T1]{fontenc}",
    ]
    numbered = enumerate(sheets(report), start=1)
    return "\n".join([*head, *(_latex_table(report, sheet, place) for place, sheet in numbered)])


def escape_latex(text: str) -> str:
    r"""Return ``text`` with nothing in it that LaTeX would act on.

    Example:
        >>> print(escape_latex("50% of a_b ± 1"))
        50\% of a\_b $\pm$ 1
    """
    line = on_one_line(text)
    return "".join(ESCAPES.get(character, character) for character in line)


def _latex_table(report: TableReport, sheet: Sheet, place: int) -> str:
    right = len(sheet.columns) - sheet.names
    what = f"{report.table.key}, {report.table.title}, budget {report.budget}"
    caption = f"{what}. {sheet.title}. {sheet.note}"
    if report.records < report.cells:
        caption = f"{caption} {state(report)}"
    return "\n".join(
        [
            "",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(caption)}}}",
            rf"\label{{tab:{report.table.key}-{report.budget}-{place}}}",
            rf"\begin{{tabular}}{{{'l' * sheet.names}{'r' * right}}}",
            r"\toprule",
            _latex_line([escape_latex(name) for name in sheet.columns]),
            r"\midrule",
            *(_latex_line([_latex_field(field) for field in line]) for line in sheet.lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_line(texts: list[str]) -> str:
    return " & ".join(texts) + r" \\"


def _latex_field(field: Field) -> str:
    text = rf"\textbf{{{escape_latex(field.text)}}}" if field.best else escape_latex(field.text)
    if not field.below:
        return text
    lines = r" \\ ".join([text, *(escape_latex(line) for line in field.below)])
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{lines}\end{{tabular}}"


def terminal(report: TableReport) -> Iterator[RenderableType]:
    """Yield what to print, one after the other."""
    yield _text(f"{report.table.key}: {report.table.title}", "bold")
    yield _text(f"budget {report.budget}: {report.budget_what}. {state(report)}")
    for note in report.table.notes:
        yield _text(note)
    for warning in report.warnings:
        yield _text(f"! {warning}", "red")
    found = sheets(report)
    for place, sheet in enumerate(found):
        yield Text("")
        yield _terminal_grid(sheet)
        if sheet.note and (place + 1 == len(found) or found[place + 1].kind != sheet.kind):
            yield Padding(_text(sheet.note, "dim"), (0, 1))
    yield Text("")
    for name, text in origin(report).items():
        yield _text(f"{name}: {text}", "dim")
    if missing(report):
        for line in failures(report):
            yield _text(f"failed: {line}", "red")
        yield _text(f"{missing(report)} {report.command}")


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def plain_text(report: TableReport, width: int = WIDTH) -> str:
    """Return the report as plain text of a width."""
    page = StringIO()
    console = Console(file=page, width=width, color_system=None, legacy_windows=False)
    for part in terminal(report):
        console.print(part, highlight=False)
    lines = (line.rstrip() for line in page.getvalue().splitlines())
    return "\n".join(lines).strip("\n") + "\n"


def _terminal_grid(sheet: Sheet) -> Grid:
    grid = Grid(
        title=_text(sheet.title, "bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for place, name in enumerate(sheet.columns):
        left = place < sheet.names
        grid.add_column(
            _text(name),
            justify="left" if left else "right",
            no_wrap=place == 0,
            overflow="fold",
        )
    for line in sheet.lines:
        grid.add_row(*(_terminal_field(field) for field in line))
    return grid


def _terminal_field(field: Field) -> Text:
    mark = "* " if field.best else ""  # seen without bold letters as well
    text = _text(mark + field.text, "bold" if field.best else "")
    for line in field.below:
        text.append(f"\n{printable(line)}", style="dim")
    return text
