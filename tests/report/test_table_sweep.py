"""Scores over the sizes of both memories, and the readings of such a picture as numbers."""

from dataclasses import replace

import numpy as np
import pytest
from browser import CHROMIUM, needs_chromium
from playwright.sync_api import sync_playwright
from scipy import stats
from table_records import made_up_table, records_of

from hma.methods import erm
from hma.paper.table import Row, SizeSweep
from hma.report.pictures import HeatMap, Plot
from hma.report.table import markdown, page, plain_text, summarise

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
