"""What of a memory's gain is memory: numbers of the page from the JSON files themselves."""

import json
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef
from table_records import keep, made_up_table, record_of

from hma.methods import erm
from hma.paper.report.documents import documents
from hma.paper.report.gains import climbs_of, page, pooled
from hma.paper.results import Results
from hma.paper.rivals import layer_norm
from hma.paper.table import Cell, Ladder, Row, memory_row
from hma.report.numbers import MINUS

ROWS = {
    "ERM": Row(build=erm, what="plain"),
    "LayerNorm": Row(build=layer_norm, what="norm"),
    "PARAM": memory_row("param"),
    "HMA": memory_row("hma"),
}
BATCH = ["batch", "batch-sorted", "alone"]


def ladder_table(**changes):
    given = {"rows": ROWS, "baseline": "ERM", "published": {}, "ladders": (Ladder(),)}
    return made_up_table(**given | changes)


def records(table, budget="small", leave_out=lambda cell: False):
    return {
        cell: record_of(table, cell, contexts=BATCH if cell.method == "HMA" else ["alone"])
        for cell in table.cells(budget)
        if not leave_out(cell)
    }


def raw(folder, task, row, context, key="T9", budget="small"):
    """Return seed -> score in points, read from the files without the library."""
    found = {}
    for file in sorted((folder / key / budget / task / row).glob("*.json")):
        tests = json.loads(file.read_text())["tests"]
        found[int(file.stem)] = 100 * np.mean([s[context]["accuracy"] for s in tests.values()])
    return found


def rungs(folder, task):
    return [raw(folder, task, row, "alone") for row in ROWS] + [raw(folder, task, "HMA", "batch")]


def shown(text, name):
    """Return the differences in a line of the section of T9, two decimals each."""
    _, _, after = text.partition("\n## T9\n")
    line = next(line for line in after.splitlines() if line.startswith(f"| {name} |"))
    fields = [field.split("<br>")[0].strip(" *") for field in line.split("|")[4:-1]]
    return [float(field.replace(MINUS, "-")) for field in fields]


def test_every_number_of_the_page_comes_from_the_files(tmp_path):
    table = ladder_table()
    results = keep(Results(tmp_path), records(table))
    text = page([table], results)
    by_task = []
    for task in ("left", "right"):
        seeds = [np.array([scores[seed] for seed in range(10)]) for scores in rungs(tmp_path, task)]
        steps = [np.mean(upper - lower) for lower, upper in pairwise(seeds)]
        layer, parameters, memory, batch = steps
        expected = [layer, parameters, layer + parameters, memory, batch, sum(steps)]
        assert shown(text, task) == pytest.approx(expected, abs=0.006)
        by_task.append(expected)
    assert shown(text, "mean over tasks") == pytest.approx(np.mean(by_task, axis=0), abs=0.006)


def test_intervals_draw_seeds_in_pairs(tmp_path):
    table = ladder_table()
    results = keep(Results(tmp_path), records(table))
    climb = climbs_of(table, results)[0]
    param, alone = raw(tmp_path, "left", "PARAM", "alone"), raw(tmp_path, "left", "HMA", "alone")
    apart = np.array([alone[seed] - param[seed] for seed in range(10)])
    drawn = apart[np.random.default_rng(5).integers(10, size=(50_000, 10))].mean(axis=1)
    found = climb.steps["memory"]
    assert found.value == pytest.approx(apart.mean())
    ends = np.quantile(drawn, [0.025, 0.975])
    assert [found.low, found.high] == pytest.approx(ends, abs=drawn.std() / 5)
    assert climb.test_rows is None


def answering(table, cell, same):
    """Return a record with answers of 40 test rows, and the score that they come to."""
    draw = np.random.default_rng(0 if same else cell.seed)
    labels = (draw.random(40) < 0.4).astype(int)
    own = np.random.default_rng([cell.seed, sum(map(ord, cell.method))])
    contexts = BATCH if cell.method == "HMA" else ["alone"]
    said = {c: (labels - 0.5 + own.normal(0, 1, 40)).round(4).tolist() for c in contexts}
    scores = {c: {"matthews": matthews_corrcoef(labels, np.array(s) > 0)} for c, s in said.items()}
    answers = {"answers": {"test": {"labels": labels.tolist(), "said": said}}}
    record = record_of(table, cell, contexts=contexts, tests={"test": scores}, measures=answers)
    record.setup["task"] = {"classes": ["no", "yes"]}
    return record


@pytest.mark.parametrize("same", [True, False])
def test_where_answers_are_kept_test_rows_are_drawn_too(tmp_path, same):
    table = ladder_table(metric="matthews")
    held = {c: answering(table, c, same) for c in table.cells("small") if c.task == "left"}
    (climb,) = climbs_of(table, keep(Results(tmp_path), held))
    assert climb.test_rows == 40
    files = {row: [json.loads((tmp_path / f"T9/small/left/{row}/{seed}.json").read_text())
                   for seed in range(10)] for row in ("PARAM", "HMA")}  # fmt: skip
    part = {row: [f["measures"]["answers"]["test"] for f in each] for row, each in files.items()}
    labels = np.array([one["labels"] for one in part["HMA"]])
    said = {row: np.array([one["said"]["alone"] for one in each]) > 0 for row, each in part.items()}
    draw, found = np.random.default_rng(1), []
    for _ in range(1500):
        seeds, rows = draw.integers(10, size=10), draw.integers(40, size=(10, 40))
        rows = rows[:1].repeat(10, axis=0) if same else rows
        place = seeds[:, None], rows
        scores = [by_hand(labels[place], said[row][place]) for row in ("HMA", "PARAM")]
        found.append(100 * np.mean(scores[0] - scores[1]))
    step, (low, high) = climb.steps["memory"], np.quantile(found, [0.025, 0.975])
    assert [step.low, step.high] == pytest.approx([low, high], abs=np.std(found) / 3)
    whole = [by_hand(labels, said[row]).mean() for row in ("HMA", "PARAM")]
    assert step.value == pytest.approx(100 * (whole[0] - whole[1]))


def by_hand(true, said):
    """Matthews correlation of each line of two arrays of yes and no: Pearson's."""
    apart, others = (each - each.mean(axis=1, keepdims=True) for each in (true, said))
    spread = np.sqrt((apart**2).sum(axis=1) * (others**2).sum(axis=1))
    return (apart * others).sum(axis=1) / np.where(spread > 0, spread, 1.0)


def test_a_table_without_a_record_is_said_to_be_missing(tmp_path):
    table, other = ladder_table(), ladder_table(key="T8", title="Never run")
    results = keep(Results(tmp_path), records(table, leave_out=lambda c: c.task == "right"))
    text = page([other, table], results)
    assert "- T8, Never run: no record to tell it by." in text
    assert "- T9: 1 task of 2 without records." in text
    assert "| right |" not in text
    assert page([other], results) is None


def test_without_a_layer_norm_the_first_two_steps_are_one(tmp_path):
    def leave_out(cell):
        return cell.method == "LayerNorm" and cell.seed > 3

    table = ladder_table()
    results = keep(Results(tmp_path), records(table, leave_out=leave_out))
    climb = climbs_of(table, results)[0]
    assert climb.seeds == 10
    assert set(climb.steps) == {"both", "memory", "test batch", "all"}
    text = page([table], results)
    assert "2 tasks of 2 without the row LayerNorm: there it is part of both." in text
    assert "- T9: 2 tasks without the row LayerNorm." in text


def test_without_param_the_whole_is_told_and_its_parts_are_not(tmp_path):
    def leave_out(cell):
        return cell.method in ("PARAM", "LayerNorm") and cell.task == "right"

    table = ladder_table()
    results = keep(Results(tmp_path), records(table, leave_out=leave_out))
    left, right = climbs_of(table, results)
    assert set(right.steps) == {"test batch", "all"}
    upper, lower = raw(tmp_path, "right", "HMA", "batch"), raw(tmp_path, "right", "ERM", "alone")
    expected = np.mean([upper[seed] - lower[seed] for seed in upper])
    assert right.steps["all"].value == pytest.approx(expected)
    text = page([table], results)
    rest = left.steps["all"].value - left.steps["both"].value
    assert " on 1 of 2 tasks; what is left for memory" in text
    assert f"together is {rest:+.2f}.".replace("-", MINUS) in text
    assert "- T9: 1 task without the row PARAM." in text


def test_only_seeds_that_all_rows_have_are_compared_and_smoke_runs_never(tmp_path):
    table = ladder_table()
    results = keep(Results(tmp_path), records(table, budget="smoke"))
    assert climbs_of(table, results) == []
    keep(results, records(table, leave_out=lambda c: c.method == "HMA" and c.seed > 5))
    assert {climb.seeds for climb in climbs_of(table, results)} == {6}
    whole = Cell("T9", "paper", "left", "ERM", 0)
    keep(results, {whole._replace(method=row): record_of(
        table, whole._replace(method=row), contexts=BATCH) for row in ROWS})  # fmt: skip
    assert [(climb.budget, climb.seeds) for climb in climbs_of(table, results)] == [("paper", 1)]


def test_the_words_follow_the_numbers(tmp_path):
    def shifted(table, cell, more):
        record = record_of(table, cell, contexts=BATCH if cell.method == "HMA" else ["alone"])
        luck = 0.001 * (cell.seed % 3)
        levels = {"ERM": 0.5, "LayerNorm": 0.5, "PARAM": 0.58, "HMA": 0.6}
        for scores in record.tests.values():
            for context, values in scores.items():
                values["accuracy"] = levels[cell.method] + luck + more * (context == "batch")
        return record

    table = ladder_table()
    held = {cell: shifted(table, cell, 0.0) for cell in table.cells("small")}
    text = page([table], keep(Results(tmp_path), held))
    assert "HMA differs from ERM by +10.00 (+10.00 to +10.00)." in text
    assert "PARAM reaches 80% of HMA's gain." in text
    assert "Beyond chance: parameters +8.00 (+8.00 to +8.00), memory +2.00" in text
    assert "Not told from nothing: LayerNorm, test batch." in text


def test_the_page_is_one_of_the_documents_and_the_index_leads_to_it(tmp_path):
    table = ladder_table()
    results = keep(Results(tmp_path), records(table))
    found = documents([table], results)
    assert found["what-is-memory.md"] == page([table], results)
    assert "[what is memory?](what-is-memory.md)" in found["README.md"]
    without = documents([ladder_table(ladders=())], results)
    assert "what-is-memory.md" not in without
    assert "what is memory" not in without["README.md"]


def test_a_mean_over_tasks_counts_each_alike_and_is_surer_than_one(tmp_path):
    table = ladder_table()
    climbs = climbs_of(table, keep(Results(tmp_path), records(table)))
    mean = pooled(climbs)["all"]
    assert mean.value == pytest.approx(np.mean([climb.steps["all"].value for climb in climbs]))
    widths = [climb.steps["all"].high - climb.steps["all"].low for climb in climbs]
    independent = np.sqrt(np.sum(np.square(widths))) / len(widths)
    assert mean.high - mean.low == pytest.approx(independent, rel=0.15)
