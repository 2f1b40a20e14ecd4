"""The report as LaTeX tables, for documents that load booktabs."""

from hma.errors import on_one_line
from hma.report.table import sentences
from hma.report.table.sheet import Field, Sheet
from hma.report.table.sheets import sheets
from hma.report.table.table_report import TableReport

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


def latex(report: TableReport) -> str:
    r"""Return one ``table`` environment for each sheet; the preamble needs booktabs.

    Quotation marks and all letters come out as in a document with ``\usepackage[T1]{fontenc}``.
    """
    head = [
        f"% {_comment(f'{report.key}, budget {report.budget}: {report.budget_what}')}",
        f"% {_comment(sentences.state(report))}",
        "% \\usepackage{booktabs}\n% \\usepackage[T1]{fontenc}",
    ]
    numbered = enumerate(sheets(report), start=1)
    return "\n".join([*head, *(_table(report, sheet, place) for place, sheet in numbered)])


def escaped(text: str) -> str:
    r"""Return ``text`` with nothing in it that LaTeX would act on.

    Example:
        >>> print(escaped("50% of a_b ± 1"))
        50\% of a\_b $\pm$ 1
    """
    line = on_one_line(text)
    return "".join(ESCAPES.get(character, character) for character in line)


def _comment(text: str) -> str:
    return on_one_line(text)


def _table(report: TableReport, sheet: Sheet, place: int) -> str:
    right = len(sheet.columns) - sheet.names
    caption = f"{report.key}, {report.title}, budget {report.budget}. {sheet.title}. {sheet.note}"
    if report.records < report.cells:
        caption = f"{caption} {sentences.state(report)}"
    return "\n".join(
        [
            "",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(caption)}}}",
            rf"\label{{tab:{report.key}-{report.budget}-{place}}}",
            rf"\begin{{tabular}}{{{'l' * sheet.names}{'r' * right}}}",
            r"\toprule",
            _line([escaped(name) for name in sheet.columns]),
            r"\midrule",
            *(_line([_field(field) for field in line]) for line in sheet.lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _line(texts: list[str]) -> str:
    return " & ".join(texts) + r" \\"


def _field(field: Field) -> str:
    text = rf"\textbf{{{escaped(field.text)}}}" if field.best else escaped(field.text)
    if not field.below:
        return text
    lines = r" \\ ".join([text, *(escaped(line) for line in field.below)])
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{lines}\end{{tabular}}"
