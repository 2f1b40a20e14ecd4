"""What rows cost, from the records alone: medians, quartiles, ratios round by round."""

from dataclasses import replace

import numpy as np
import pytest
from table_records import made_up_table, records_of

from hma.paper.report.documents import documents
from hma.paper.report.formats import latex, markdown, plain_text
from hma.paper.report.page import page
from hma.paper.report.step_costs import step_costs_of
from hma.paper.report.summary import summarise
from hma.paper.results import Results, definition
from hma.paper.table import PublishedCost

PLAIN_STEPS, OWN_STEPS = [0.1, 0.2, 0.4, 0.1], [0.3, 0.5, 0.5, 0.2]
MIB = 2**20


def row(steps, peak, **changes):
    return {
        "what": "a row",
        "parameters": 87_455_232,
        "trainable": 36_911,
        "state_bytes": MIB,
        "peak_bytes": peak,
        "step": steps,
        "answer": [one / 100 for one in steps],
        "once": 0.0,
        **changes,
    }


MEASURED = {
    "rows": {
        "bare": row(PLAIN_STEPS, 2 * MIB),
        "memory": row(OWN_STEPS, 5 * MIB, once=12.0),
    },
    "batch": 128,
    "answered": 64,
    "training_rows": 5000,
    "threads": 2,
    "processor": "a processor",
    "cores": 2,
    "load": 0.25,
    "processor_share": 1.9,
}


@pytest.fixture(scope="module")
def made():
    costs = {"left": {"memory": PublishedCost(trainable=32.4e6, times_plain=2.0, note="a note")}}
    table = made_up_table(published={}, published_costs=costs)
    one = {name: replace(b, seeds=1, methods=("plain",)) for name, b in table.budgets.items()}
    table = replace(table, budgets=one)
    records = {
        cell: replace(record, tests={}, measures={"step costs": MEASURED})
        for cell, record in records_of(table).items()
    }
    return table, records


def test_ratios_are_medians_over_rounds_not_ratios_of_medians(made):
    found = step_costs_of(*made)["left"]
    ratios = np.divide(OWN_STEPS, PLAIN_STEPS)
    line = found.rows["memory"]
    for middle, values in ((line.step, OWN_STEPS), (line.step_times, ratios)):
        expected = np.percentile(values, [50, 25, 75])
        assert (middle.median, middle.low, middle.high) == pytest.approx(tuple(expected))
    assert line.memory_times == 2.5
    assert found.rows["bare"].step_times.median == 1
    assert found.rounds == 4


def test_every_format_shows_the_rows_and_the_papers_figures(made):
    report = summarise(made[0], "small", made[1], {})
    for text in (plain_text(report, width=160), markdown([report]), page(report), latex(report)):
        line = " ".join(text.split())
        for said in ("87.5 M", "36.9 K", "2.50", "32.4 M", "a note", "a processor", "12.0 s"):
            assert said in line
    assert "accuracy" not in page(report).lower()


def test_a_document_of_costs_has_no_drawing_of_scores(made, tmp_path):
    table, records = made
    results = Results(tmp_path)
    for cell, record in records.items():
        if cell.budget == "small":
            results.keep(cell, replace(record, resolved=definition(table, cell)))
    found = documents([table], results)
    assert list(found) == ["T9.md", "T9-small-times-plain.svg", "README.md"]


def test_a_table_of_scores_has_no_costs():
    table = made_up_table()
    report = summarise(table, "small", records_of(table), {})
    assert step_costs_of(report.table, report.held) == {}
    assert "Measured" in markdown([report])


def test_the_picture_has_every_row_at_the_ratios_of_its_shape(made):
    (scene,) = summarise(made[0], "small", made[1], {}).scenes
    step, answer, peak = scene.panels
    ratio = float(np.median(np.divide(OWN_STEPS, PLAIN_STEPS)))
    for plot, expected in ((step, ratio), (answer, ratio), (peak, 2.5)):
        by_name = {series.name: series for series in plot.series}
        assert set(by_name) == {"bare", "memory"}
        assert [point.y for point in by_name["bare"].points] == [0, 0]
        assert [2**point.y for point in by_name["memory"].points] == pytest.approx([expected] * 2)
        assert [float(text) for _, text in plot.y_ticks] == [2**at for at, _ in plot.y_ticks]
        assert [text for _, text in plot.x_ticks] == ["left", "right"]
    assert scene.finding.startswith(f"memory, times the plain backbone: a step {ratio:.2f} (left)")
    assert "memory, left" in step.series[-1].points[0].words[0]


def test_rows_that_few_shapes_have_are_one_series(made):
    table, records = made
    rival = {**MEASURED, "rows": {**MEASURED["rows"], "rival": row([0.2] * 4, MIB)}}
    first = next(iter(records))
    records = {**records, first: replace(records[first], measures={"step costs": rival})}
    (scene,) = summarise(table, first.budget, records, {}).scenes
    rivals = {series.name: series for series in scene.panels[2].series}["rivals"]
    assert [(2**point.y, point.words[0]) for point in rivals.points] == [(0.5, "rival, left")]
    assert "rival" not in scene.finding
