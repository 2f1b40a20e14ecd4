"""How cost grows: the page is what the record says, or says how to make one."""

from dataclasses import replace

import pytest

from benchmarks import growth_page
from benchmarks.machine import this_machine
from benchmarks.processes import seconds_of_a_step
from benchmarks.report import Report, Section
from benchmarks.shapes import Shape

CURVES = {"M": (128, 256, 512), "B": (128, 256)}
SCALING = tuple(
    {
        "grows": name,
        "rows": size,
        "step_ms": size / 10,
        "row_ms": 0.1,
        "million_multiply_adds": 1.0,
        "peak_MiB": size / 8,
        "slope": 1.0 if size == sizes[-1] else None,
        "repeats": 3,
    }
    for name, sizes in CURVES.items()
    for size in sizes
)
PROCESSES = ({"processes": 2, "rows": 256, "step_ms": 8.0, "handed_over_KiB": 96.5,
              "gradients_KiB": 512.0, "cores": 2, "repeats": 3},)  # fmt: skip
SECTIONS = tuple(
    Section(name=name, title=name, method="", rows=rows)
    for name, rows in (("scaling", SCALING), ("processes", PROCESSES))
)


@pytest.fixture(scope="module")
def report() -> Report:
    machine = replace(this_machine(), cpu="a processor", load=0.1)
    return Report(machine=machine, threads=1, quick=False, seconds=1.0, sections=SECTIONS)


def test_the_committed_page_and_drawing_are_made_of_the_committed_record():
    recorded, page = growth_page.recorded(), growth_page.PAGE.read_text()
    assert growth_page.with_measured(page, recorded) == page
    assert growth_page.DRAWING.exists() == (recorded is not None)
    if recorded is not None:
        assert growth_page.drawing(recorded) == growth_page.DRAWING.read_text()


def test_the_page_has_what_the_record_says(report):
    page = f"before {growth_page.FIRST} old {growth_page.LAST} after"
    made = growth_page.with_measured(page, report)
    assert made.startswith("before ")
    assert made.endswith(" after")
    assert " old " not in made
    assert "| M | 128 | 512 | 12.8 | 51.2 | 64.0 | 1.00 |" in made
    assert "| 2 | 256 | 8.00 | 25.6 | 96.5 | 512 |" in made
    assert "a processor" in made
    assert growth_page.with_measured(made, report) == made


def test_without_a_record_the_page_names_the_command():
    assert growth_page.COMMAND in growth_page.measured(None)


def test_the_drawing_has_a_line_for_each_size(report):
    drawn = growth_page.drawing(report)
    assert drawn.count('class="curve"') == 2 * len(CURVES)
    assert drawn.count('class="point"') == len(SCALING) + len(CURVES)
    assert "M = 512: 51.2 ms" in drawn


@pytest.mark.slow
def test_two_processes_make_a_step_together():
    shape = Shape(batch=4, features=6, label=2, classes=3, queue=8, slots_per_class=1)
    assert seconds_of_a_step(shape, count=2, repeats=1) > 0
