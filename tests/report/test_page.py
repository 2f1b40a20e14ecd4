"""The page as text: whole, escaped, self-contained, the same again, and written whole."""

import base64
import errno
import io
import re
import sys
from collections import Counter
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import needs_chromium, opened
from PIL import Image
from report_parts import change_part, with_parts
from sklearn.metrics import precision_score, recall_score

from hma import HMAConfig
from hma.errors import UserError
from hma.extras import needed
from hma.report.numbers import times
from hma.report.page import render, write_page
from hma.report.run_facts import TrainingRows
from hma.report.sections.comparison import differences
from hma.report.sections.errors import matrices

EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b 'c' {{ 7*7 }} ${x}")
EMPTY = {"meta", "link", "img", "input", "br"}


class Reader(HTMLParser):
    """Reads a page strictly: every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def values(self, wanted):
        return [value for _, name, value in self.attributes if name == wanted]


def text_of(page):
    return " ".join(" ".join(Reader(page).texts).split())


def test_the_page_is_well_formed_and_shows_every_part(report):
    found = Reader(render(report))
    parts = {"comparison", "curves", "errors", "calibration", "memory", "attention", "examples",
             "map", "rows", "data", "run", "reading"}  # fmt: skip
    assert parts <= set(found.values("id"))
    assert {value.removeprefix("#") for value in found.values("href") if "#" in value} == parts


def test_ids_are_unique_and_labels_lead_to_them(report):
    found = Reader(render(report))
    assert max(Counter(found.values("id")).values()) == 1
    assert set(found.values("for")) <= set(found.values("id"))


def test_labels_are_text_and_nothing_else(with_labels):
    page = render(with_labels(*EVIL))
    before, after = Reader(render(with_labels("x", "y", "z"))), Reader(page)
    assert after.tags == before.tags  # no label made an element
    assert "script" not in after.tags
    assert not [name for _, name, _ in after.attributes if name.startswith("on")]
    for label in EVIL:
        assert label in after.texts
        assert label in after.values("title")


@pytest.mark.parametrize("field", ["title", "facts", "options", "provenance", "notes", "examples"])
def test_every_other_text_is_escaped_too(report, field):
    evil = EVIL[0]
    first = report.parts["examples"].by_class[0]
    example = replace(first.examples[0], text=evil, label=evil)
    changed = {
        "title": replace(report, title=evil),
        "facts": with_parts(report, data={"facts": {evil: evil}}),
        "options": replace(report, options={"memory": {evil: evil}}),
        "provenance": replace(report, provenance={evil: evil}),
        "notes": replace(report, notes=(evil,)),
        "examples": change_part(
            report, "examples", by_class=(first._replace(examples=(example,)),)
        ),
    }
    page = render(changed[field])
    assert "<script" not in page
    assert evil in Reader(page).texts


def test_names_of_tests_contexts_and_splits_are_escaped(report):
    evil = EVIL[1]
    (trial,) = report.tests
    results = (*trial.results[:1], *(replace(r, context=evil) for r in trial.results[1:]))
    compared = tuple(replace(c, context=evil) for c in trial.comparisons)
    renamed = replace(trial, name=evil, results=results[:2], comparisons=compared[:1])
    looked = tuple(replace(one, context=evil) for one in report.parts["attention"])
    curves = tuple(
        replace(c, rule=evil, validation={evil: (0.1,) * 4}) for c in report.parts["curves"]
    )
    changed = with_parts(report, attention=looked, curves=curves)
    splits = {evil: report.splits["test"]}
    page = render(replace(changed, tests=(renamed, renamed), splits=splits))
    assert not [name for _, name, _ in Reader(page).attributes if name.startswith("on")]


def test_nothing_is_fetched_from_anywhere(report):
    page = render(report)
    found = Reader(page)
    addresses = [*found.values("src"), *found.values("href"), *found.values("xlink:href")]
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)
    (policy,) = [v for t, n, v in found.attributes if t == "meta" and v.startswith("default-src")]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")


def test_the_same_report_gives_the_same_bytes(report):
    assert render(report) == render(report)


def test_broken_file_names_do_not_break_the_page(with_labels):
    page = render(with_labels("caf\udce9", "nul\x00", "turned\u202e"))
    assert page.encode()
    assert "caf\ufffd" in page
    assert "\x00" not in page


def test_numbers_of_the_report_are_on_the_page(report):
    text = text_of(render(report))
    for result in report.tests[0].results:
        score = result.scores["accuracy"]
        assert f"{100 * score.value:.1f}% {100 * score.low:.1f} to {100 * score.high:.1f}%" in text
        assert f"{result.scores['nll'].value:.3f}" in text
        assert f"{result.calibration.error:.3f}" in text
        wrong = int(result.confusion.sum() - np.trace(result.confusion))
        assert f"{wrong} of 40 rows wrong" in text
    assert "filled, 12 of 12" in text
    assert "1 min 15 s" in text
    assert "256 MiB" in text


def test_confusion_cells_are_the_counts(report):
    page = render(report)
    tables = re.findall(r'<table class="matrix.*?</table>', page, re.DOTALL)
    assert len(tables) == len(report.tests[0].results)
    for table, result in zip(tables, report.tests[0].results, strict=True):
        cells = [int(cell) for cell in re.findall(r"<td[^>]*>(\d+)</td>", table)]
        assert cells == result.confusion.flatten().tolist()


def test_precision_and_recall_are_scikit_learns(run, report):
    labels = run.answers.labels.numpy()
    answers = (run.answers.plain["alone"], run.answers.memory["batch"])
    said = [logits.argmax(1).numpy() for logits in answers]
    page = render(report)
    table = page[page.index("Precision and recall of each class") :]
    rows = re.findall(r"<tr>.*?</tr>", table[: table.index("</table>")], re.DOTALL)[1:]
    for c, row in enumerate(rows):
        cells = re.findall(r"<td title=[^>]*>([^<]*)<", row)
        want = []
        for score in (precision_score, recall_score):
            for predicted in said:
                value = score(labels == c, predicted == c, zero_division=np.nan)
                want.append("—" if np.isnan(value) else f"{100 * value:.1f}%")
        assert cells == want
    assert len(rows) == 3


def test_the_most_frequent_mistakes_are_listed_first(report):
    found = matrices(report, report.tests[0])
    for one, result in zip(found, report.tests[0].results, strict=True):
        counts = [count for _, _, count, _ in one["mistakes"]]
        assert sum(counts) == one["wrong"] == result.confusion.sum() - np.trace(result.confusion)
        assert counts == sorted(counts, reverse=True)
        assert all(truly != answered for truly, answered, _, _ in one["mistakes"])


def test_pictures_are_inline_and_whole(report):
    pictures = Reader(render(report)).values("src")
    shown = report.parts["examples"]
    assert len(pictures) == sum(len(one.examples) for one in (*shown.by_class, *shown.by_answer))
    for address in pictures:
        head, content = address.split(",")
        assert head == "data:image/png;base64"
        assert Image.open(io.BytesIO(base64.b64decode(content))).size == (9, 9)


def test_large_pictures_are_made_small(make):
    noise = np.random.default_rng(0).integers(0, 255, (16, 400, 300, 3), dtype=np.uint8)
    big = make()
    rows = TrainingRows(describe=str, thumbnail=lambda place: Image.fromarray(noise[place % 16]))
    found = big.report(training_rows=rows)
    shown = [example for one in found.parts["examples"].by_class for example in one.examples]
    sizes = {Image.open(io.BytesIO(example.picture)).size for example in shown}
    assert sizes == {(54, 72)}


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F"])
def test_pictures_of_any_mode_are_shown(make, mode):
    rows = TrainingRows(describe=str, thumbnail=lambda place: Image.new(mode, (4, 4)))
    found = make().report(training_rows=rows)
    first = found.parts["examples"].by_class[0].examples[0]
    assert Image.open(io.BytesIO(first.picture)).size == (4, 4)


def test_rows_without_pictures_are_shown_as_text(make):
    rows = TrainingRows(describe=lambda place: f"a long story {place} " + "word " * 100)
    found = make().report(training_rows=rows)
    page = render(found)
    assert "<img" not in page
    text = found.parts["examples"].by_class[0].examples[0].text
    assert len(text) == 160
    assert text.endswith("…")
    assert text in text_of(page)


def test_many_classes_stay_under_two_megabytes(make):
    classes = tuple(f"species number {i}" for i in range(120))
    config = HMAConfig(queue_size=400, slots_per_class=2, label_dim=4, num_heads=2)
    many = make(config, classes)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(400, 5, generator=generator), torch.arange(400) % 120
    many.model.remember(x, y, ids=torch.arange(400))
    noise = np.random.default_rng(0).integers(0, 255, (80, 80, 3), dtype=np.uint8)
    rows = TrainingRows(describe=str, thumbnail=lambda place: Image.fromarray(noise))
    page = render(many.report(training_rows=rows))
    Reader(page)
    assert len(page) < 2_000_000
    assert "16 of 120 classes are shown" in page
    assert '<table class="matrix' not in page  # drawn instead


def test_a_matrix_of_37_classes_has_every_name_at_its_sides_and_in_its_cells(make):
    names = tuple(f"breed number {c} of thirty-seven" for c in range(37))
    report = make(classes=names).report()
    page = Reader(render(report))
    (trial,) = report.tests
    drawn = [str(one["svg"]) for one in matrices(report, trial)]
    assert len(drawn) == 3
    for result, svg in zip(trial.results, drawn, strict=True):
        assert all(svg.count(f"<title>{name}</title>") == 2 for name in names)
        for true, said in np.argwhere(result.confusion).tolist():
            rows = result.confusion[true, said]
            assert f"<title>{names[true]} called {names[said]}: {rows} rows, " in svg
    assert page.tags["svg"] > 3


def test_names_of_differences_stand_clear_of_the_lines(report):
    drawing = str(differences(report))
    lines = re.findall(r'<line x1="([\d.]+)" [^>]*class="(?:zero|grid)"', drawing)
    names = [float(x) for x in re.findall(r'<text x="([\d.]+)" [^>]*class="axis end"', drawing)]
    assert len(names) == 2
    assert lines
    assert max(names) < min(map(float, lines))


def test_examples_say_how_many_times_an_even_share_they_draw(report):
    shown, stored, page = (
        report.parts["examples"],
        report.parts["memory"].queue.rows,
        render(report),
    )
    for attended in (*shown.by_class, *shown.by_answer):
        for example in attended.examples:
            assert f">{times(example.share * stored)}</b>" in page
    first = shown.by_class[0]
    little = first._replace(examples=(replace(first.examples[0], share=1e-6),))
    page = render(change_part(report, "examples", by_class=(little,)))
    assert f"{times(0)}</b>" in page
    assert "0.00%</b>" not in page


def with_curves(report, **changes):
    return with_parts(report, curves=tuple(replace(c, **changes) for c in report.parts["curves"]))


def test_curves_that_never_were_numbers_are_left_out(report):
    nothing = (float("nan"),) * 4
    assert "Training loss" not in render(with_curves(report, train_loss=nothing, validation={}))


def test_a_single_epoch_has_a_curve(report):
    single = {"epochs": (0,), "train_loss": (0.5,), "validation": {"alone": (1.0,)}, "selected": 0}
    page = render(with_curves(report, **single))
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL).lower()


def test_notes_stand_before_the_numbers(report):
    page = render(replace(report, notes=("3 files were left out",)))
    assert page.index("3 files were left out") < page.index('id="comparison"')
    assert "Before you rely on this" not in render(replace(report, notes=()))


def test_a_written_page_is_the_rendered_one(report, tmp_path):
    write_page(report, tmp_path / "new" / "report.html")
    assert (tmp_path / "new" / "report.html").read_text(encoding="utf-8") == render(report)


def test_a_full_disk_leaves_the_page_that_was_there(report, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("earlier")

    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="No space left"):
        write_page(report, target)
    assert target.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [target]


def test_a_missing_package_is_named_with_its_remedy(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UserError, match="the report needs jinja2: pip install jinja2"):
        render(report)


def test_an_error_inside_a_package_is_not_taken_for_its_absence(tmp_path, monkeypatch):
    (tmp_path / "broken_inside.py").write_text("import no_such_thing_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_at_all"):
        needed("broken_inside", "the report")


pytestmark = needs_chromium


def test_the_page_opens_without_a_console_message(report, tmp_path):
    write_page(report, tmp_path / "report.html")
    document, console = opened(tmp_path / "report.html")
    assert console == []
    assert "All candidates on the same test rows" in document


def test_labels_that_look_like_scripts_are_shown_as_text(with_labels, tmp_path):
    label = "<script>document.title='owned'</script>"
    write_page(with_labels(label, "<b>bold</b>", "</style>"), tmp_path / "report.html")
    document, console = opened(tmp_path / "report.html")
    assert console == []
    assert "<title>made up · hma report</title>" in document
    assert "<script" not in document
    assert f">{label}<" in unescape(document)


def test_the_pages_policy_stops_a_request_and_this_test_would_see_it(report, tmp_path):
    page = tmp_path / "report.html"
    write_page(report, page)
    planted = '<img src="https://example.invalid/x.png"><script>document.title="owned"</script>'
    page.write_text(page.read_text().replace("</main>", planted + "</main>"))
    document, console = opened(page)
    assert len([line for line in console if "Content Security Policy" in line]) == 2
    assert "<title>made up · hma report</title>" in document
