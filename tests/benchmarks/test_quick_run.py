"""A quick run of every benchmark: complete, plain data, the same after a round trip."""

import json

import pytest
import torch

from benchmarks import BENCHMARKS, Report, Section, run
from benchmarks.frozen_backbone import SETUPS
from benchmarks.learned_memory import QUICK_SIZES
from benchmarks.linear import QUICK_MEMORIES
from benchmarks.scaling import QUICK_BATCHES, QUICK_OTHERS, QUICK_QUEUES
from benchmarks.solved_votes import QUICK_ROWS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def report(lines) -> Report:
    return run(quick=True, threads=1, progress=lines.append)


def section(report: Report, name: str) -> Section:
    return next(section for section in report.sections if section.name == name)


def test_every_benchmark_reports(report, lines):
    assert [section.name for section in report.sections] == list(BENCHMARKS)
    count = len(BENCHMARKS)
    assert lines == [f"{place}/{count} {name}" for place, name in enumerate(BENCHMARKS, start=1)]


def test_every_row_is_there(report):
    rows = {section.name: len(section.rows) for section in report.sections}
    serving = 0 if section(report, "serving").skipped else 2
    points = len(QUICK_QUEUES) + 2 * len(QUICK_BATCHES) + 3 * QUICK_OTHERS
    assert rows == {
        "naive": 3,
        "gemm": 3,
        "scaling": points,
        "processes": 2,
        "serving": serving,
        "frozen": len(SETUPS),
        "linear": len(QUICK_MEMORIES),
        "tables": len(QUICK_SIZES),
        "images": 0 if section(report, "images").skipped else 1,
        "solved": len(QUICK_ROWS),
        "solved-training": 1,
        "graphs": 0 if section(report, "graphs").skipped else 1,
        "augmentation": 0 if section(report, "augmentation").skipped else 1,
    }


def test_rows_of_a_section_share_their_columns(report):
    for part in report.sections:
        assert len({tuple(row) for row in part.rows}) <= 1


def test_the_report_survives_json(report):
    assert Report.from_json(report.to_json()) == report


def test_the_json_says_where_and_when(report):
    values = json.loads(report.to_json())
    assert values["threads"] == 1
    assert values["quick"] is True
    assert values["machine"]["torch"] == torch.__version__
    assert values["machine"]["cores"] >= 1
    assert values["machine"]["date"].endswith("+00:00")


def test_tables_are_text_of_one_width_each(report):
    tables = report.tables()
    assert tables[0].title == "Machine"
    assert len(tables) == 1 + len(report.sections)
    for table in tables:
        assert {len(row) for row in table.rows} <= {len(table.columns)}
        assert all(isinstance(cell, str) for row in table.rows for cell in row)


def test_both_reads_of_a_memory_answer_alike(report):
    for row in section(report, "linear").rows:
        assert 0 < row["apart"] < 0.05
        ratio = row["exact_eval_ms"] / row["linear_eval_ms"]
        assert row["times_faster_eval"] == pytest.approx(ratio)


def test_ratios_are_those_of_the_times_beside_them(report):
    for row in section(report, "naive").rows:
        assert row["times_faster"] == pytest.approx(row["naive_ms"] / row["hma_ms"])
        assert row["times_smaller"] == pytest.approx(row["naive_peak_MB"] / row["hma_peak_MB"])
    for row in section(report, "gemm").rows:
        reached = 2e-3 * row["million_multiply_adds"] / (row["step_ms"] / 1000)  # GFLOPS
        assert row["percent"] == pytest.approx(100 * reached / row["gemm_GFLOPS"])
    for name in ("tables", "images"):
        for row in section(report, name).rows:
            for kind in ("processor", "clock"):
                ratio = row[f"with_{kind}_s"] / row[f"without_{kind}_s"]
                assert row[f"{kind}_times"] == pytest.approx(ratio)
