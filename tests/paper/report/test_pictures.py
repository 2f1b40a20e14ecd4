"""Pictures of a table: from records to points, on paper, in documents and on a page."""

import base64
import io
import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch
from browser import CHROMIUM, needs_chromium
from picture_cases import CLASSES, attention_map, pictured, slot_map
from PIL import Image
from playwright.sync_api import sync_playwright
from scipy import stats
from table_records import made_up_table, record_of, records_of

from hma.backbones import mlp
from hma.data import InMemory, Task
from hma.data.storage import missing_data
from hma.methods import erm
from hma.options.config import ConfigError
from hma.paper.example_rows import ExampleRow
from hma.paper.picture_measures import packed, unpacked
from hma.paper.report.documents import documents
from hma.paper.report.formats import markdown, plain_text
from hma.paper.report.page import Examples, Shown, _shown, examples_of, page, script_policy
from hma.paper.report.pictures import printed_scenes
from hma.paper.report.printed import print_pictures
from hma.paper.report.summary import summarise
from hma.paper.results import Results
from hma.paper.table import SLOT_MAP, Problem, Row, SizeSweep, SlotMap
from hma.report.charts import Example, HeatMap, Plot
from hma.report.numbers import MINUS


@pytest.fixture(scope="module")
def report():
    table, records = pictured()
    return summarise(table, "small", records, {})


def test_a_picture_of_a_row_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="pictures must be one of"):
        made_up_table(pictures=(SlotMap(title="t", rows=("hmm",)),))


def test_points_are_those_of_the_first_seeds_record(report):
    slots, attention = report.scenes
    together = slots.panels[1]
    assert isinstance(together, Plot)
    given = slot_map(0)
    shown = [(p.x, p.y) for series in together.series for p in series.points]
    expected = [
        place
        for part in ("rows", "slots")
        for place in zip(unpacked(given[part]["x"]), unpacked(given[part]["y"]), strict=True)
    ]
    assert shown == expected
    heat = attention.panels[0]
    assert isinstance(heat, HeatMap)
    lines = attention_map(0)["shares"]
    assert [[round(100 * v) for v in line] for line in heat.values] == [
        [int(v) for v in line.split()] for line in lines
    ]


def test_a_point_is_marked_with_its_neighbours_in_the_same_plot(report):
    together = report.scenes[0].panels[1]
    points = [point for series in together.series for point in series.points]
    rows = sum(len(s.points) for s in together.series if s.name.endswith(": real"))
    for place, point in enumerate(points):
        assert len(point.near) == 3
        if place < rows:
            assert all(other >= rows for other in point.near)
            assert point.words[1] == "nearest slots: " + ", ".join(
                points[other].words[0] for other in point.near
            )
        else:
            assert all(other < rows for other in point.near)


def test_findings_say_for_or_against_by_the_numbers_of_all_seeds():
    table, records = pictured()
    said = summarise(table, "small", records, {}).scenes[0].finding
    assert said.startswith("hma: slots of a class lie together (silhouette 0.40, by chance 0.10)")
    assert "slots are not among the real features of their class (12%" in said
    assert "keep apart from real features (90% are nearest to a slot, by chance 10%)" in said
    looks = summarise(table, "small", records, {}).scenes[1].finding
    assert "look at slots alike (likeness +0.20" in looks
    assert "at slots of their own class no more than by chance (12.0%, by chance 10.0%)" in looks
    assert f"a slot is looked at less than a sample (by {MINUS}0.30 of an even look)" in looks
    cell = next(cell for cell, record in records.items() if record.measures)
    weak = slot_map(0, silhouette={"value": 0.1, "chance": 0.1, "low": 0, "high": 0.2, "p": 0.5})
    changed = record_of(table, cell, measures={SLOT_MAP: weak})
    said = summarise(table, "small", records | {cell: changed}, {}).scenes[0].finding
    seeds = sum(one[:4] == cell[:4] and bool(records[one].measures) for one in records)
    assert seeds > 1
    partly = f"slots of a class lie less far apart than by chance with {seeds - 1} of {seeds} seeds"
    assert partly in said, "one seed at chance is enough"
    said = summarise(table, "small", {cell: changed}, {}).scenes[0].finding
    assert "slots of a class do not lie together" in said


def test_less_far_apart_than_by_chance_is_not_called_together():
    table, records = pictured()
    cell = next(cell for cell, record in records.items() if record.measures)
    negative = {"value": -0.2, "chance": -0.3, "low": -0.35, "high": -0.25, "p": 0.005}
    weak = record_of(table, cell, measures={SLOT_MAP: slot_map(0, silhouette=negative)})
    said = summarise(table, "small", {cell: weak}, {}).scenes[0].finding
    assert "slots of a class lie less far apart than by chance, not together" in said


def test_a_number_that_is_not_defined_is_left_out_and_said():
    table, records = pictured()
    cell = next(cell for cell, record in records.items() if record.measures)
    nothing = slot_map(0, nearest=dict.fromkeys(("value", "chance", "low", "high", "p")))
    record = record_of(table, cell, measures={SLOT_MAP: nothing})
    (scene,) = summarise(table, "small", {cell: record}, {}).scenes
    assert scene.finding == "hma: not defined, slots lie at one place."
    assert len(scene.checks) == 2


def test_numbers_stand_beside_their_chance_in_every_format(report):
    text = markdown([report])
    assert "0.400 ± 0.000 | 0.100 (0.050 to 0.150) | p at most 0.010" in text
    assert report.scenes[0].finding.split(" (")[0] in text
    assert "p at most 0.010" in page(report)


def test_documents_hold_a_drawing_for_each_picture_and_link_it(tmp_path):
    table, records = pictured()
    results = Results(tmp_path)
    for cell, record in records.items():
        results.keep(cell, record)
    found = documents([table], results)
    for name in ("T9-small-slots-left.svg", "T9-small-attention-left.svg"):
        assert f"({name})" in found["T9.md"]
        assert "<script" not in found[name]
        assert "<b>tulip" not in found[name]
    assert found == documents([table], results)
    drawn = found["T9-small-attention-left.svg"]
    shapes = re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3", drawn)
    fields = [(int(y), int(x) + more) for x, y, n in shapes for more in range(int(n))]
    assert sorted(fields) == [(row, column) for row in range(18) for column in range(30)]
    assert "data-fields" not in drawn


@pytest.mark.parametrize(
    ("kind", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_print_is_the_same_file_for_the_same_numbers(report, tmp_path, kind, magic):
    files = [tmp_path / f"{place}.{kind}" for place in range(2)]
    for file in files:
        print_pictures(printed_scenes(report), file, kind)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().startswith(magic)


def test_curves_of_a_table_without_pictures_are_printed_from_its_means():
    table = made_up_table(curves={"both": ("left", "right")})
    report = summarise(table, "small", records_of(table), {})
    (scene,) = printed_scenes(report)
    (plot,) = scene.panels
    for series in plot.series:
        means = [report.entries[task, series.name].measured for task in ("left", "right")]
        assert [point.y for point in series.points] == [mean.mean for mean in means]
        assert [point.high - point.y for point in series.points] == pytest.approx(
            [mean.std for mean in means]
        )
    assert printed_scenes(summarise(made_up_table(), "small", records_of(table), {})) == ()


def test_packed_numbers_are_rounded_and_come_back():
    assert unpacked(packed([1.23456, -2.0, 1e-9], 3)) == [1.235, -2.0, 0.0]
    assert packed([-0.0001], 2) == "0"


def test_only_the_pages_own_script_may_run(report):
    text = page(report)
    assert text.count("<script") == 1
    assert script_policy() in unescape(text.split("</head>")[0])
    plain = page(replace(report, scenes=()))
    assert "<script" not in plain
    assert "script-src" not in plain


@needs_chromium
def test_asking_a_point_or_a_field_shows_it_with_its_example(report, tmp_path):
    place = Example("left", 0, "train", 100)
    shown = Examples({place: Shown("data:image/png;base64,iVBORw0KGgo=", "<i>petals</i>")}, "why")
    target = tmp_path / "page.html"
    target.write_text(page(report, shown), encoding="utf-8")
    heat = report.scenes[1].panels[0]
    console = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 400, "height": 800})
        tab.on("console", lambda message: console.append(message.text))
        tab.goto(target.as_uri(), wait_until="load")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400
        views = tab.query_selector_all(".view")
        views[1].focus()
        tab.keyboard.press("ArrowRight")
        glass = tab.query_selector_all(".glass")
        said = [line.inner_text() for line in glass[0].query_selector_all("p")]
        assert said[0] == "train row 100: rose"
        assert said[1].startswith("nearest slots: ")
        assert said[2] == "<i>petals</i>"
        assert len(glass[0].query_selector_all("img")) == 1
        assert len(views[1].query_selector_all(".near")) == 3
        views[2].focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            tab.keyboard.press(key)
        assert f"{heat.values[1][1]:.2f}" in glass[1].inner_text()
        first = tab.query_selector(".view .point")
        first.hover()
        assert f"slot 0 of {CLASSES[0]}" in glass[0].inner_text()
        hollow = tab.locator(".view .hollow .point").last  # nothing lies above the last
        hollow.hover(timeout=5000)  # its middle, not its rim
        assert "train row" in glass[0].inner_text()
        browser.close()
    assert console == []


def test_what_a_page_holds_of_a_heat_map_is_what_it_draws(report):
    heat = report.scenes[1].panels[0]
    held = re.search(r'data-fields="([^"]*)"', page(report))
    fields = json.loads(unescape(held.group(1)))
    assert fields["values"] == [[round(v, 2) for v in line] for line in heat.values]
    assert [name for name, _ in fields["columns"]] == [line.words for line in heat.columns]


def shown_task(kind, x, labels=(0, 1)):
    split = InMemory(x, torch.tensor(labels))
    return Task("t", kind, ("a", "b"), tuple(x.shape[1:]), split, split, {"test": split})


def test_examples_are_shown_by_their_place_and_missing_data_is_said(report, tmp_path):
    pixels = torch.rand(130, 3, 20, 10)
    task = shown_task("image", pixels, [0] * 130)

    def absent(seed):
        raise missing_data("flowers", tmp_path, "an address")

    problem = Problem(task=absent, backbone=lambda task: mlp(2), shown=lambda seed: task)
    table, _ = pictured(problems={"left": problem, "right": problem})
    found = examples_of(table, "small", report.scenes)
    assert not found.absent
    place = Example("left", 0, "train", 101)
    address = found.shown[place].picture
    drawn = Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).convert("RGB")
    low, high = pixels[101].min(), pixels[101].max()
    expected = ((pixels[101] - low) / (high - low) * 255).permute(1, 2, 0).numpy()
    assert drawn.size == (10, 20)
    assert np.abs(np.asarray(drawn, dtype=float) - expected).mean() < 20  # of few colours
    problems = {"left": replace(problem, shown=None), "right": problem}
    found = examples_of(replace(table, problems=problems), "small", report.scenes)
    assert not found.shown
    assert found.absent.startswith("Rows of left are not shown: flowers")
    assert "Rows of left are not shown" in page(report, found)


def test_a_graph_is_drawn_with_its_nodes_and_edges():
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    shown = _shown(ExampleRow("a", edges=edges, nodes=4))
    drawing = base64.b64decode(shown.picture.split(",")[1]).decode()
    assert (drawing.count("<line"), drawing.count("<circle")) == (2, 4)
    assert shown.text == "4 nodes, 2 edges"


REAL, SLOTS, SEEDS = (0, 64), (0, 8, 48, 192), 4
SIZES = {(m1, m2): f"m1-{m1}-m2-{m2}" for m1 in REAL for m2 in SLOTS}


def swept(score, seeds=SEEDS, **changes):
    """Return a table of one task whose scores a function of both sizes and the seed gives."""
    rows = {name: Row(build=erm, what=name) for name in ("plain", "flat", *SIZES.values())}
    table = made_up_table(published={}, rows=rows, **changes)
    picture = SizeSweep(title="Sizes", sizes=SIZES, references=("plain", "flat"))
    small = {n: replace(b, seeds=seeds, tasks=("left",)) for n, b in table.budgets.items()}
    table = replace(table, budgets=small, pictures=(picture,))
    sizes = {row: size for size, row in SIZES.items()}
    records = {}
    for cell, record in records_of(table).items():
        if cell.task == "left" and cell.seed in table.seeds[:seeds]:
            value = score(*sizes.get(cell.method, (0, 0)), cell.seed) / 100
            tests = {"test": {"alone": {"accuracy": value}}}
            setup = {**record.setup, "method": {"contexts": ["alone"]}}
            records[cell] = replace(record, tests=tests, setup=setup)
    return table, records


def scene_of(score, **changes):
    table, records = swept(score, **changes)
    (scene,) = summarise(table, "small", records, {}).scenes
    return scene


def noisy(m1, m2, seed):
    rise = {0: 0.0, 8: 2.0, 48: 3.0, 192: 1.0}[m2] * (1.5 if m1 else 1.0)
    return 60 + rise + np.random.default_rng((m1, m2, seed)).normal(scale=0.1)


def by_hand():
    """Return each reading seed by seed: (seeds, readings)."""
    found = []
    for seed in range(SEEDS):
        grid = np.array([[noisy(m1, m2, seed) for m2 in SLOTS] for m1 in REAL])
        gain = grid[:, 1:].mean(axis=1) - grid[:, 0]
        apart = grid.std(axis=1, ddof=1)
        helps = grid[:, 1:3].mean() - grid[:, 0].mean()
        hurts = grid[:, 3].mean() - grid[:, 1:3].mean()
        found.append([helps, hurts, apart[1] - apart[0], gain[1] - gain[0]])
    return np.array(found)


def test_each_reading_is_a_number_of_each_seed_with_students_interval():
    scene = scene_of(noisy)
    found = by_hand()
    assert len(scene.checks) == found.shape[1]
    for check, values in zip(scene.checks, found.T, strict=True):
        low, high = stats.t.interval(0.95, SEEDS - 1, values.mean(), stats.sem(values))
        shown = f"{values.mean():+.2f} ({low:.2f} to {high:.2f})".replace("-", "\u2212")
        assert check.measured == shown


def test_a_rise_and_fall_holds_and_more_spread_with_real_memory_is_denied():
    scene = scene_of(noisy)
    assert [check.outcome for check in scene.checks] == ["holds", "holds", "denied", "holds"]
    assert f"Too many slots hurt: holds, {scene.checks[1].measured}." in scene.finding


def test_the_same_score_everywhere_leaves_all_open():
    def same(m1, m2, seed):
        return 60.0 + seed

    assert {check.outcome for check in scene_of(same).checks} == {"open"}


def test_one_seed_has_no_interval_and_leaves_all_open():
    checks = scene_of(noisy, seeds=1).checks
    assert {check.outcome for check in checks} == {"open"}
    assert all(check.measured.endswith("(—)") for check in checks)


def test_lines_are_sizes_of_the_real_memory_and_references_are_level():
    plot, fields = scene_of(noisy).panels
    assert isinstance(plot, Plot)
    assert [one.name for one in plot.series] == ["m1 = 0", "m1 = 64", "plain", "flat"]
    assert [point.x for point in plot.series[1].points] == [0, 1, 2, 3]
    assert len({point.y for point in plot.series[2].points}) == 1
    assert isinstance(fields, HeatMap)
    expected = np.mean([[noisy(64, m2, seed) for m2 in SLOTS] for seed in range(SEEDS)], axis=0)
    assert fields.values[1] == pytest.approx(tuple(expected))


def test_a_field_without_a_record_is_empty_and_nothing_is_checked():
    table, records = swept(noisy)
    held = {cell: one for cell, one in records.items() if cell.method != SIZES[64, 48]}
    (scene,) = summarise(table, "small", held, {}).scenes
    assert scene.panels[1].values[1][2] is None
    assert scene.checks == ()
    assert scene.finding == "Too little is measured to check what is read off it."


def test_every_format_says_what_was_found():
    table, records = swept(noisy)
    report = summarise(table, "small", records, {})
    for text in (plain_text(report), markdown([report]), page(report)):
        assert "Too many slots hurt" in " ".join(text.split())


@needs_chromium
def test_points_below_the_bands_of_other_lines_can_be_asked(tmp_path):
    """All lines lie on each other, so that bands drawn later cover what was drawn before."""

    def score(m1, m2, seed):
        return 60 + 10 * seed + m2 / 100 + 3 * bool(m1)

    table, records = swept(score)
    target = tmp_path / "page.html"
    target.write_text(page(summarise(table, "small", records, {})), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1000, "height": 900})
        tab.goto(target.as_uri(), wait_until="load")
        lower = tab.locator(".view .row").nth(1).locator(".point").last  # of m1 = 64, m2 = 192
        lower.hover(timeout=5000)
        assert "m1 64, m2 192: " in tab.locator(".glass").first.inner_text()
        browser.close()
