"""Cells as Ray tasks: the same records, and one line where no cluster answers."""

import pytest
from silent_board import Silence

from hma.errors import UserError
from hma.paper.cells import measure, run
from hma.paper.ray_tasks import RayTasks


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_leaves_the_records_of_this_process(toy, toy_file, results, tmp_path):
    pytest.importorskip("ray")
    cells = toy.cells("smoke", "easy", seeds=1)
    outcome = run(cells, results, RayTasks("local", toy_file, results), Silence())
    assert [cell.method for cell in sorted(outcome.done)] == ["ERM", "HMA"]
    assert list(outcome.failed.values()) == ["ValueError: this row never works"]
    for cell in outcome.done:
        expected = measure(toy, cell, tmp_path / "one" / "two" / cell.method)
        same = [results.record(toy, cell).repeatable(), expected.repeatable()]
        for values in same:
            values.pop("git_commit")
        assert same[0] == same[1]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "--ray 127.0.0.1:1 does not answer: .*refused"),
        ("nonsense", "--ray must be auto, local, host:port or ray://host:port, got 'nonsense'"),
    ],
)
def test_an_address_that_does_not_answer_is_one_clear_line(toy_file, results, address, message):
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=message):
        RayTasks(address, toy_file, results)
