"""What memories of many rows cost: the measurement runs, and the page is what its record says."""

import json

import pytest

from benchmarks import memory_size, memory_size_page

RECORD = {
    "machine": {"cores": 2, "load": 0.1},
    "threads": 1,
    "features": 4,
    "k": 3,
    "reads": [
        {
            "rows": rows,
            "read": read,
            "first_answer_s": 1.0,
            "one_query_ms": cost,
            "of_64_queries_ms": cost / 2,
            "recall": recall,
            "peak_MiB": 300.0,
        }
        for rows, cost in ((10, 0.5), (100, 20.0))
        for read, recall in (("all rows", None), ("k best, index", 0.75))
    ],
    "used_rows": 100,
    "used": [{"process": "train", "step": "all of it", "seconds": 2.5, "peak_MiB": 310.0}],
}


def test_the_committed_page_and_drawing_are_made_of_the_committed_record():
    record = json.loads(memory_size_page.RECORD.read_text())
    page = memory_size_page.PAGE.read_text()
    assert memory_size_page.with_tables(page, record) == page
    assert memory_size_page.drawing(record) == memory_size_page.DRAWING.read_text()


def test_a_million_rows_stay_below_four_gibibytes():
    record = json.loads(memory_size_page.RECORD.read_text())
    assert record["used_rows"] == 1_000_000
    assert max(row["peak_MiB"] for row in record["used"]) < 4096


def test_the_page_has_what_the_record_says():
    page = f"before {memory_size_page.FIRST} old {memory_size_page.LAST} after"
    made = memory_size_page.with_tables(page, RECORD)
    assert made.startswith("before ")
    assert made.endswith(" after")
    assert " old " not in made
    assert "| 100 | k best, index | 1.00 | 20.0 | 10.0 | 0.750 | 300 |" in made
    assert "| train | all of it | 2.50 | 310 |" in made
    assert memory_size_page.with_tables(made, RECORD) == made


def test_the_drawing_names_every_read_and_its_recall():
    drawn = memory_size_page.drawing(RECORD)
    for text in ("all rows", "k best, index", "75.0%", ">100<"):
        assert text in drawn


@pytest.mark.parametrize("read", ["all rows", "k best, exact"])
def test_a_size_is_measured(tmp_path, monkeypatch, read):
    monkeypatch.setattr(memory_size, "REPEATS", 1)
    found = memory_size.measured(read, 500, tmp_path)
    assert found["recall"] == (None if read == "all rows" else 1.0)
    assert found["one_query_ms"] > 0
