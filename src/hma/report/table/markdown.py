"""The report as Markdown."""

from collections.abc import Mapping, Sequence

from hma.errors import on_one_line
from hma.report.table import sentences
from hma.report.table.sheet import Field, Sheet
from hma.report.table.sheets import overviews, sheets
from hma.report.table.table_report import TableReport

MARKS = "\\`*_[]|<>#~&$"
"""What Markdown or HTML would act on."""


def markdown(
    reports: Sequence[TableReport], figures: Mapping[str, Mapping[str, str]] | None = None
) -> str:
    """Return a document on one table under one or more budgets.

    Args:
        reports: Of the same table, one for each budget.
        figures: Budget -> name of a file with a drawing -> what it shows.
    """
    first = reports[0]
    parts = [f"# {plain(first.key)}: {plain(first.title)}"]
    parts += [plain(note) for note in first.notes]
    for report in reports:
        parts += _budget(report, (figures or {}).get(report.budget, {}))
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Return ``text`` on one line, with nothing in it that Markdown or HTML would act on.

    Example:
        >>> print(plain("a_b <script>"))
        a\\_b \\<script\\>
    """
    line = on_one_line(text)
    return "".join(f"\\{character}" if character in MARKS else character for character in line)


def _budget(report: TableReport, figures: Mapping[str, str]) -> list[str]:
    found = sheets(report)
    parts = [
        f"## Budget {plain(report.budget)}",
        f"{plain(report.budget_what)}. {plain(sentences.state(report))}",
    ]
    parts += [f"> {plain(warning)}" for warning in report.warnings]
    parts += [f"![{plain(text)}]({name})" for name, text in figures.items()]
    parts += [plain(line) for scene in report.scenes for line in scene.finding.splitlines()]
    top = overviews(found)
    for place, sheet in enumerate(top):
        parts += _sheet(sheet, note=place == len(top) - 1)
    for sheet in found:
        if sheet.kind == "published":
            parts += _sheet(sheet)
    tasks = [sheet for sheet in found if sheet.kind == "task"]
    if tasks:
        parts.append(f"### Against {plain(report.baseline)}")
        parts.append(plain(tasks[0].note))
    for sheet in tasks:
        parts += [f"#### {plain(sheet.title)}", _grid(sheet)]
    for sheet in found:
        if sheet.kind not in ("overview", "published", "task"):
            parts += _sheet(sheet)
    parts += [*_origin(report), *_missing(report)]
    return parts


def _sheet(sheet: Sheet, *, note: bool = True) -> list[str]:
    below = [plain(sheet.note)] if note and sheet.note else []
    return [f"### {plain(sheet.title)}", _grid(sheet), *below]


def _grid(sheet: Sheet) -> str:
    dashes = ["---"] * sheet.names + ["---:"] * (len(sheet.columns) - sheet.names)
    lines = [[plain(name) for name in sheet.columns], dashes]
    lines += [[_field(field) for field in line] for line in sheet.lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _field(field: Field) -> str:
    text = f"**{plain(field.text)}**" if field.best else plain(field.text)
    return "<br>".join([text, *(plain(line) for line in field.below)])


def _origin(report: TableReport) -> list[str]:
    rows = [f"| {plain(name)} | {plain(text)} |" for name, text in sentences.origin(report).items()]
    return ["### Where the numbers come from", "\n".join(["| | |", "| --- | --- |", *rows])]


def _missing(report: TableReport) -> list[str]:
    if not sentences.missing(report):
        return []
    lines = [f"- {plain(line)}" for line in sentences.failures(report)]
    failed = ["Failed at the last try:", "\n".join(lines)] if lines else []
    command = f"```bash\n{report.command}\n```"
    return ["### What is missing", plain(sentences.missing(report)), command, *failed]
