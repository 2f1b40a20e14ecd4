"""What a run takes and gives, apart from the numbers."""

import pytest
import torch

from benchmarks import Section, run
from benchmarks.machine import this_machine


def test_a_run_leaves_threads_and_generator_as_they_were():
    torch.manual_seed(5)
    expected, threads = torch.rand(1), torch.get_num_threads()
    torch.manual_seed(5)
    run(quick=True, threads=1, only=["frozen"])
    torch.testing.assert_close(torch.rand(1), expected)
    assert torch.get_num_threads() == threads


def test_only_names_are_checked_and_the_right_one_suggested():
    with pytest.raises(ValueError, match="got 'gem'; did you mean 'gemm'"):
        run(only=["gem"])
    with pytest.raises(ValueError, match="only must be a list of names"):
        run(only="gemm")


def test_only_keeps_the_order_of_the_suite(monkeypatch):
    part = Section(name="x", title="", method="")
    fakes = {name: lambda quick: part for name in ("first", "second", "third")}
    monkeypatch.setattr("benchmarks.suite.BENCHMARKS", fakes)
    heard: list[str] = []
    run(only=["third", "first"], progress=heard.append)
    assert heard == ["1/2 first", "2/2 third"]


def test_an_installed_copy_names_no_commit(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.machine.CHECKOUT", tmp_path)
    machine = this_machine()
    assert machine.commit is None
    assert machine.changed is None
