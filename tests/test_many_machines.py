"""The page on many machines: its commands run, its counts and its table are those of the code."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.many_machines import (
    FAST,
    backbone_multiply_adds,
    backbone_weights,
    simulation,
    step_time,
)
from benchmarks.messages import Message
from benchmarks.shapes import VIT_SHAPE
from hma.extras import needed_beside_torchvision
from hma.runs import Run

PAGE = (Path(__file__).parent.parent / "docs" / "many-machines.md").read_text()
RUN = r"<!-- run by tests/test_many_machines.py -->\n```console\n(.*?)```"
COMMANDS = [line for block in re.findall(RUN, PAGE, re.DOTALL) for line in block.splitlines()]


def run(command, folder):
    """Run a line of the page as a reader would, with the programs of this Python."""
    program, *words = shlex.split(command)
    own = {
        "hma": ["-m", "hma"],
        "torchrun": ["-m", "torch.distributed.run"],
    }
    surroundings = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, *own[program], *words],
        cwd=folder,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, f"{command}: {ended.stderr}"
    return ended.stdout


@pytest.fixture
def reader(tmp_path):
    """A folder with the program that the page shows."""
    (program,) = re.findall(r"<!-- two.py -->\n```python slow\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "two.py").write_text(program)
    return tmp_path


@pytest.mark.slow
def test_two_devices_and_torchrun_give_the_same_run(reader):
    devices, torchrun = (line for line in COMMANDS if "train" in line)
    run(devices, reader)
    run(torchrun, reader)
    both = [Run.open(reader / "runs" / name).record("memory") for name in ("two", "torchrun")]
    first, second = (record.tests["test"]["alone"] for record in both)
    assert first == pytest.approx(second, abs=1e-6)


@pytest.mark.slow
def test_the_program_of_the_page_trains_in_two_processes(reader):
    (command,) = (line for line in COMMANDS if "two.py" in line)
    assert "2 process(es), 200 rows stored" in run(command, reader)


@pytest.mark.slow
def test_a_table_runs_on_ray_and_its_report_has_both_cells(reader):
    pytest.importorskip("ray")
    ran, reported = (line for line in COMMANDS if "M2" in line)
    assert "2 cells finished" in run(ran, reader)
    assert "(0 of 1)" not in run(reported, reader)
    assert len(list((reader / "results").rglob("*.json"))) == 2


# --------------------------------------------------------------------------- on paper


def test_the_table_of_the_page_is_what_the_command_prints():
    (table,) = re.findall(
        r"<!-- made by python -m benchmarks.many_machines -->\n(.*?)<!-- end -->", PAGE, re.DOTALL
    )
    assert table == simulation()


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_bytes_sent_are_those_of_a_ring_passed_on_piece_by_piece(processes):
    size = 240.0
    gathered = sum(size for _ in range(processes - 1))  # own rows, then each that came
    summed = sum(size / processes for _ in range(2 * (processes - 1)))  # sums, then results
    assert Message("", "all_gather", 240).sent(processes) == pytest.approx(gathered)
    assert Message("", "all_reduce", 240).sent(processes) == pytest.approx(summed)


def test_one_process_sends_nothing_and_more_processes_never_shorten_a_step():
    times = [step_time("paper", VIT_SHAPE, count, FAST) for count in (1, 2, 8, 64)]
    assert times[0].sending == 0
    assert [time.whole for time in times] == sorted(time.whole for time in times)


def test_the_backbone_of_the_table_is_counted_as_torch_counts_it():
    timm = needed_beside_torchvision("timm", "this test")
    with torch.device("meta"):
        backbone = timm.create_model("vit_base_patch32_224", num_classes=0)
        assert sum(weight.numel() for weight in backbone.parameters()) == backbone_weights()
        with FlopCounterMode(display=False) as counter:
            backbone(torch.empty(1, 3, 224, 224))
    assert counter.get_total_flops() == 2 * backbone_multiply_adds()
