"""The report in each format: the same numbers, nothing acted on that should be text."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from table_records import made_up_table, record_of, records_of

from hma.paper.report.drawing import figure, standalone
from hma.paper.report.formats import latex, markdown, plain_text
from hma.paper.report.page import page
from hma.paper.report.pictures import row_look
from hma.paper.report.sheets import sheets
from hma.paper.report.summary import summarise
from hma.paper.results import Failure
from hma.paper.table import Cell, memory_row
from hma.report.svg import COLOURS

NASTY = "<script>alert('x')</script> & 50% of a_b {c} $d$ #e ~f ^g \\h |i| `j` \u202e"


def cell(task, method, seed):
    return Cell("T9", "small", task, method, seed)


@pytest.fixture(scope="module")
def report():
    """Return a report with holes, failures and everything there is to show."""
    table = made_up_table()
    missing = {cell("left", "hma", seed) for seed in (3, 7)} | {cell("left", "plain", 5)}
    missing |= {cell("right", "rma", seed) for seed in range(10)}
    records = {key: r for key, r in records_of(table).items() if key not in missing}
    return summarise(table, "small", records, {cell("left", "hma", 3): Failure("it broke")})


@pytest.fixture(scope="module")
def curves():
    """Return the report of a figure without published numbers and without a note."""
    tasks = {f"mlp-{i}": made_up_table().problems["left"] for i in range(7)}
    table = made_up_table(
        problems=tasks, published={}, curves={"mlp": tuple(tasks)}, key="F9", notes=()
    )
    cells = [key for key in table.cells("small") if key.task != "mlp-3"]
    return summarise(table, "small", records_of(table, cells), {})


@pytest.fixture(scope="module")
def nasty():
    """Return a report in which every free text is nasty."""
    table = made_up_table(title=NASTY, notes=(NASTY,))
    rows = {name: replace(row, what=NASTY) for name, row in table.rows.items()}
    budgets = {name: replace(budget, what=NASTY) for name, budget in table.budgets.items()}
    table = replace(table, rows=rows, budgets=budgets)
    key = cell("left", "plain", 0)
    odd = {"test <i>": {"alone": {"accuracy": 0.5}}, "b": {"alone": {"accuracy": 0.5}}}
    record = record_of(table, key, tests=odd, git_commit=NASTY, versions={NASTY: NASTY})
    return summarise(table, "small", {key: record}, {cell("left", "hma", 0): Failure(NASTY)})


FORMATS = {
    "markdown": lambda report: markdown([report]),
    "latex": latex,
    "terminal": plain_text,
    "html": page,
}


def spread_text(spread):
    return f"{spread.mean:.2f} ± {spread.std:.2f}"


@pytest.mark.parametrize("name", FORMATS)
def test_every_mean_deviation_and_difference_is_there(report, name):
    text = FORMATS[name](report)
    text = text.replace(r"$\pm$", "±").replace("$-$", "\u2212")
    for entry in report.entries.values():
        if entry.measured is None:
            continue
        for spread in (*entry.contexts.values(), *entry.splits.values()):
            assert spread_text(spread) in text
        if entry.published is not None:
            mean, std = entry.published
            assert f"{mean:.2f} ± {std:.2f}" in text
            assert f"{entry.difference:+.2f}".replace("-", "\u2212") in text
        if entry.paired is not None:
            assert f"{entry.paired.difference:+.2f}".replace("-", "\u2212") in text
            assert f"{entry.paired.low:+.2f} to {entry.paired.high:+.2f}".replace(
                "-", "\u2212"
            ) in text.replace("\n", " ")
            assert f"{entry.paired.p:.3f}" in text
    assert "small of it" in text
    assert "8 of 10, 1 failed" in text


@pytest.mark.parametrize("name", ["markdown", "terminal", "html"])
def test_what_is_missing_is_said_with_the_command_that_measures_it(report, name):
    text = FORMATS[name](report)
    assert "13 cells are missing" in text
    assert "hma run T9 --budget small" in text
    assert "T9 small left/hma seed 3: it broke" in text


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_table_misses_nothing(name):
    table = made_up_table(published={})
    text = FORMATS[name](summarise(table, "small", records_of(table), {}))
    assert "All 60 cells are measured" in text or name == "latex"
    assert "cells are missing" not in text
    assert " --- " not in text if name == "latex" else "—" not in text


@pytest.mark.parametrize("name", FORMATS)
def test_a_reduced_budget_says_that_it_does_not_repeat_the_paper(report, name):
    said = "less than the paper's protocol"
    assert said in " ".join(unescape(FORMATS[name](report)).split())
    table = made_up_table()
    whole = summarise(table, "paper", records_of(table, table.cells("paper")), {})
    assert said not in " ".join(unescape(FORMATS[name](whole)).split())


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_records_give_the_same_bytes(report, name):
    assert FORMATS[name](report) == FORMATS[name](report)


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_measured_at_all_can_be_shown(name):
    text = FORMATS[name](summarise(made_up_table(published={}), "small", {}, {}))
    assert "0 of 60 cells are measured" in text
    assert ("---" if name == "latex" else "—") in text


def test_rows_with_nothing_to_show_are_named_once():
    table = made_up_table()
    held = records_of(table, [c for c in table.cells("paper") if c.method == "plain"])
    lines = markdown([summarise(table, "paper", held, {})]).splitlines()
    assert not [line for line in lines if line.startswith("|") and "rma" in line]
    assert len([line for line in lines if "Neither measured nor published: rma." in line]) == 1
    shown = [line for line in lines if line.startswith(("| hma | —", "|  | hma |"))]
    assert len(shown) == 3, "at a glance, and beside what is published of it, with its average"


@pytest.mark.parametrize("which", ["report", "curves"])
def test_the_terminal_needs_a_hundred_columns(which, request):
    lines = plain_text(request.getfixturevalue(which)).splitlines()
    assert max(map(len, lines)) <= 100
    numbers = [line for line in lines if "±" in line and "Mean" not in line]
    assert numbers
    assert not any(line.rstrip().endswith("±") for line in numbers), "a number is broken in two"


def test_a_figure_of_many_settings_is_cut_into_pieces_that_fit(curves):
    pieces = [sheet.columns for sheet in sheets(curves) if sheet.kind == "overview"]
    assert pieces == [
        ("method", "0", "1", "2", "3", "4"),
        ("method", "5", "6", "average"),
    ]


def test_best_means_are_marked_in_every_format(report):
    winner = next(e for (t, _), e in report.entries.items() if t == "left" and e.best)
    text = spread_text(winner.measured)
    assert f"**{text}**" in markdown([report])
    assert "\\textbf{" + text.replace("±", r"$\pm$") + "}" in latex(report)
    assert f"<b>{text}</b>" in page(report)
    assert f"* {text}" in plain_text(report)


class Elements(HTMLParser):
    """Gather elements, and texts in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("which", ["report", "curves", "nasty"])
def test_the_page_is_well_formed_and_asks_for_nothing(which, request):
    found = Elements(page(request.getfixturevalue(which)))
    assert found.open == []
    assert {"script", "iframe", "object", "img"}.isdisjoint(tag for tag, _ in found.elements)
    for tag, attributes in found.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    policy = [a["content"] for t, a in found.elements if t == "meta" and "http-equiv" in a]
    assert policy[0].startswith("default-src 'none'")
    assert "url(" not in "".join(found.texts)


def test_texts_are_shown_as_text_on_the_page(nasty):
    texts = "".join(Elements(page(nasty)).texts)
    assert texts.count(NASTY.replace("\u202e", "\ufffd")) >= 5
    assert "\u202e" not in texts


def test_markdown_acts_on_nothing_in_a_text(nasty):
    text = markdown([nasty])
    assert re.search(r"(?<!\\)<(?!br>)", text) is None
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for before, line in pairwise(rows):
        if set(before) <= set("|- :"):
            assert len(re.findall(r"(?<!\\)\|", line)) == len(re.findall(r"\|", before))


def latex_tables(text):
    """Return the fields of each table, and check that groups and environments are closed."""
    body = re.sub(r"(?m)^%.*\n?", "", text)
    depth = 0
    for match in re.finditer(r"(\\.)|([{}])", body):
        depth += {"{": 1, "}": -1}.get(match[2], 0)
        assert depth >= 0
    assert depth == 0
    opened = []
    for verb, name in re.findall(r"\\(begin|end)\{(\w+)\}", body):
        if verb == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    found = []
    for columns, inside in re.findall(
        r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\n\\end\{tabular\}\n\\end\{table\}", body, re.DOTALL
    ):
        lines = [line for line in inside.splitlines() if not line.startswith("\\toprule")]
        lines = [line for line in lines if line not in (r"\midrule", r"\bottomrule")]
        for line in lines:
            assert line.endswith(r" \\")
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
        found.append(lines)
    return found


@pytest.mark.parametrize("which", ["report", "curves", "nasty"])
def test_latex_is_closed_escaped_and_has_the_columns_it_declares(which, request):
    found = request.getfixturevalue(which)
    text = latex(found)
    assert len(latex_tables(text)) == len(sheets(found))
    body = re.sub(r"(?m)^%.*\n?", "", text)
    commands = {
        "begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule",
        "textbf", "pm", "textbackslash", "textless", "textgreater", "textbar",
        "textasciitilde", "textasciicircum", "textquotedbl",
    }  # fmt: skip
    assert set(re.findall(r"\\([A-Za-z]+)", body)) <= commands
    assert re.search(r"(?<!\\)[#%_~^<>|]", body) is None
    assert set(re.findall(r"(?<!\\)\$(.*?)(?<!\\)\$", body)) <= {r"\pm", "-"}


def test_a_label_in_latex_names_the_table_and_the_budget_once(report):
    labels = re.findall(r"\\label\{(.*?)\}", latex(report))
    assert len(labels) == len(set(labels))
    assert all(label.startswith("tab:T9-small-") for label in labels)


def test_a_curve_passes_through_the_means_and_has_a_hole_where_nothing_is(curves):
    (group,) = curves.groups
    drawing = ElementTree.fromstring(standalone(figure(curves, group)))
    name = "{http://www.w3.org/2000/svg}"
    titles = [element.text for element in drawing.iter(f"{name}title")]
    for (task, method), entry in curves.entries.items():
        assert (task == "mlp-3") == (entry.measured is None)
        if entry.measured is not None:
            assert f"{method}: {spread_text(entry.measured)}\n10 seeds" in titles
    paths = [e.get("d") for e in drawing.iter(f"{name}path") if e.get("class") == "curve"]
    assert [len(re.findall("[ML]", path)) for path in paths[:6]] == [3, 3, 3, 3, 3, 3]
    points = [e for e in drawing.iter(f"{name}path") if e.get("class") == "point"]
    heights, means = [], []
    for element in points:
        title = element.find(f"{name}title")
        if title is not None:
            heights.append(float(element.get("transform").rstrip(")").split()[1]))
            means.append(float(re.search(r": ([\d.]+)", title.text)[1]))
    pairs = sorted(zip(means, heights, strict=True))
    slope = (pairs[-1][1] - pairs[0][1]) / (pairs[-1][0] - pairs[0][0])
    for mean, height in pairs:
        assert height == pytest.approx(pairs[0][1] + slope * (mean - pairs[0][0]), abs=0.4)


def test_no_two_rows_of_a_figure_look_alike():
    rows = {"plain": made_up_table().rows["plain"]}
    rows |= {f"row{i}": memory_row("hma") for i in range(20)}
    table = made_up_table(rows=rows, published={})
    found = summarise(table, "small", {}, {})
    looks = {row_look(found, method)[:2] for method in found.methods}
    assert len(looks) == 21
    assert len(set(COLOURS)) == len(COLOURS)


def test_a_drawing_alone_needs_nothing_outside_it(report):
    text = standalone(figure(report, report.groups[0]))
    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in text


def test_dots_show_published_and_measured_side_by_side(report):
    text = standalone(figure(report, report.groups[0]))
    measured = report.entries["left", "hma"].measured
    assert f"hma, measured: {spread_text(measured)}" in text
    assert "hma, published: 72.25 ± 0.50" in text
    assert ">missing<" in text
