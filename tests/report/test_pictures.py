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
from table_records import made_up_table, record_of, records_of

from hma.backbones import mlp
from hma.config import ConfigError
from hma.data import InMemory, Task
from hma.data.storage import missing_data
from hma.paper.example_rows import ExampleRow
from hma.paper.picture_measures import packed, unpacked
from hma.paper.results import Results
from hma.paper.table import SLOT_MAP, Problem, SlotMap
from hma.report.numbers import MINUS
from hma.report.pictures import HeatMap, Plot, print_pictures
from hma.report.pictures.examples import _shown, examples_of
from hma.report.pictures.interactive import Examples, Shown, script_policy
from hma.report.pictures.scene import Example
from hma.report.table import markdown, page, summarise
from hma.report.table.curve_scenes import printed_scenes
from hma.report.table.documents import documents


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
