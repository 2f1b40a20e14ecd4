"""What a run is told to try next: each line where it applies, and only there."""

from dataclasses import replace

import numpy as np
import pytest

from hma.metrics.resampling import Interval
from hma.report.run import render
from hma.report.run.advice import advice


@pytest.fixture
def healthy(report):
    """A report in which nothing stands out."""
    first = report.tests[0]
    right = np.eye(3, dtype=int) * 10
    results = tuple(replace(r, confusion=right) for r in first.results)
    same = tuple(
        replace(c, differences={m: replace(d, value=0.0) for m, d in c.differences.items()})
        for c in first.comparisons
    )
    fresh = replace(report.queue, staleness=np.full(12, 0.01))
    slots = replace(report.slots, used=np.array([3, 3, 3]))
    trial = replace(first, results=results, comparisons=same)
    found = replace(report, tests=(trial,), queue=fresh, slots=slots)
    assert advice(found) == ()
    assert "What to try next" not in render(found)
    return found


def with_options(report, **options):
    return replace(
        report, options={"HMA": {name.replace("__", "."): v for name, v in options.items()}}
    )


def without_recall(report, classes):
    confusion = np.eye(3, dtype=int) * 10
    for c in classes:
        confusion[c] = [0, 0, 0]
        confusion[c, (c + 1) % 3] = 10
    trial = report.tests[0]
    results = tuple(replace(r, confusion=confusion) for r in trial.results)
    return replace(report, tests=(replace(trial, results=results),))


def test_classes_that_are_never_found_are_named_with_the_balance_option(healthy):
    rare = replace(healthy, splits={"train": np.array([40, 40, 4])})
    (line,) = advice(without_recall(rare, [2]))
    assert line.startswith("1 class is never found in the test rows (recall 0%): eel.")
    assert "--balance sampler" in line
    balanced = with_options(without_recall(rare, [2]), recipe__balance="loss")
    assert "--balance" not in advice(balanced)[0]
    even = replace(healthy, splits={"train": np.array([40, 40, 39])})
    (line,) = advice(without_recall(even, [0, 2]))
    assert line.startswith("2 classes are never found in the test rows (recall 0%): cat, eel.")
    assert "--balance" not in line


def test_a_class_without_test_rows_is_not_called_lost(healthy):
    confusion = np.diag([10, 10, 0])
    trial = healthy.tests[0]
    results = tuple(replace(r, confusion=confusion) for r in trial.results)
    assert advice(replace(healthy, tests=(replace(trial, results=results),))) == ()


def test_a_stale_queue_is_told_of_the_momentum(healthy):
    stale = replace(healthy, queue=replace(healthy.queue, staleness=np.full(12, 0.8)))
    (line,) = advice(with_options(stale, config__momentum="0.999"))
    assert line.startswith("The queue is stale: its rows are 0.80 of their length away")
    assert "--momentum (now 0.999)" in line


def test_unused_slots_are_counted(healthy):
    idle = replace(healthy, slots=replace(healthy.slots, used=np.array([1, 2, 0])))
    (line,) = advice(idle)
    assert line == "6 of 9 slots draw next to no attention: --slots-per-class 2 would do."


def test_images_without_weights_are_told_of_them(healthy):
    (line,) = advice(with_options(healthy, backbone="timm:resnet18", weights="none"))
    assert "--weights FILE" in line
    for options in ({"backbone": "timm:resnet18", "weights": "w.pth"}, {"backbone": "cnn"}):
        assert advice(with_options(healthy, **options)) == ()
    table = replace(healthy, kind="table")
    assert advice(with_options(table, backbone="timm:resnet18", weights="none")) == ()


def test_a_queue_that_was_never_written_is_told_of_remember(healthy):
    empty = replace(healthy, queue=replace(healthy.queue, rows=0, staleness=None), by_class=())
    (line,) = advice(empty)
    assert "model.remember(x, y)" in line
    assert line in render(empty)


def test_a_memory_that_does_not_help_is_told_where_to_read_on(healthy):
    trial = replace(healthy.tests[0], simple={"kNN": {"accuracy": 1.0}})
    (line,) = advice(replace(healthy, tests=(trial,)))
    assert line.startswith("A simple row was not beaten")
    assert "When the memory does not help" in line


def test_a_memory_that_lost_is_told_so_whatever_is_deployed(healthy):
    trial = healthy.tests[0]
    (against,) = trial.comparisons[:1]
    lost = {m: Interval(-0.2, -0.3, -0.1) for m in against.differences}
    worse = replace(against, differences=lost, p_value=0.001)
    plain = replace(trial, comparisons=(worse, *trial.comparisons[1:]), deployed="plain backbone")
    (line,) = advice(replace(healthy, tests=(plain,)))
    assert line.startswith("The memory lost on these rows")
