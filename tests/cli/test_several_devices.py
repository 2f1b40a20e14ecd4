"""``hma train`` on several devices: processes that train together and speak with one voice."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hma.runs import Run
from hma.training import Record

QUICK = ["--epochs", "2", "--no-report", "--backbone", "mlp", "--accelerator", "cpu"]
QUICK += ["--memory", "hma", "--hma-queue-size", "32", "--hma-slots-per-class", "2"]
QUICK += ["--hma-dropout", "0"]
MODULE = [sys.executable, "-m", "hma"]
SCRIPT = [str(Path(sys.executable).with_name("hma"))]
SURROUNDINGS = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    draw = np.random.default_rng(0)
    y = draw.integers(2, size=301)  # no number of processes divides it
    path = tmp_path_factory.mktemp("points") / "points.npz"
    np.savez(path, x=draw.normal(size=(301, 5)) + y[:, None], y=y)
    return path


def hma(*arguments, command):
    command = [*command, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=SURROUNDINGS, timeout=300, check=False
    )


@pytest.mark.slow
def test_two_devices_come_to_the_same_as_one(points, run_hma, tmp_path):
    one = run_hma("train", points, *QUICK, "-o", tmp_path / "one")
    assert one.code == 0, one.err
    two = hma("train", points, *QUICK, "--devices", 2, "-o", tmp_path / "two", command=MODULE)
    assert two.returncode == 0, two.stderr
    assert two.stderr == ""
    said, expected = (re.sub(r"\d\.\d+| *\d+%", "N", text) for text in (two.stdout, one.out))
    assert said.replace("/two", "/one") == expected  # once, by the first process
    shares = [Run.open(tmp_path / name).deployed.shares for name in ("one", "two")]
    assert shares[1] == pytest.approx(shares[0], abs=0.02)
    for which in ("plain", "memory", "boosting"):
        alone, both = (Record.read(tmp_path / n / which / "record.json") for n in ("one", "two"))
        for mine, other in zip(alone.epochs, both.epochs, strict=True):
            expected = pytest.approx(other["train_loss"], abs=1e-5, nan_ok=True)
            assert mine["train_loss"] == expected
        for context, scores in alone.tests["test"].items():
            assert both.tests["test"][context]["nll"] == pytest.approx(scores["nll"], abs=1e-4)
    again = run_hma("evaluate", tmp_path / "two", points)
    assert again.code == 0, again.err


def has_checkpoint(folder):
    """Tell whether a memory is in training, for the first time or again."""
    return any(folder.glob("**/memory/checkpoints/*.json"))


@pytest.mark.slow
def test_an_interruption_is_told_once_and_the_same_command_continues(points, run_hma, tmp_path):
    options = ["--epochs", "20", *QUICK[2:], "--no-compare", "--devices", "2"]
    options += ["--checkpoint-every-steps", "4", "-o", str(tmp_path / "run")]
    process = subprocess.Popen(
        [*MODULE, "train", str(points), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=SURROUNDINGS,
        start_new_session=True,
    )
    while process.poll() is None and not has_checkpoint(tmp_path / "run"):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    (line,) = said.splitlines()
    assert line.startswith("hma: stopped by Ctrl-C after step")
    assert line.endswith("start the same run again to go on from there")
    assert hma("train", points, *options, command=SCRIPT).returncode == 0
    assert len(Record.read(tmp_path / "run" / "memory" / "record.json").epochs) == 20


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.slow
@pytest.mark.parametrize("dying", ["first", "second"])
def test_when_one_process_dies_the_other_ends_without_a_traceback(points, tmp_path, dying):
    options = ["--epochs", "4000", *QUICK[2:], "--no-compare", "--devices", "2"]
    options += ["--checkpoint-every-steps", "4", "-o", str(tmp_path / "run")]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [*MODULE, "train", str(points), *options],
            stdout=said,
            stderr=said,
            env=SURROUNDINGS,
            start_new_session=True,
        )
        while process.poll() is None and not has_checkpoint(tmp_path / "run"):
            time.sleep(0.02)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(process.pid if dying == "first" else int(children[0]), signal.SIGKILL)
        assert process.wait(60) == (-signal.SIGKILL if dying == "first" else 2)
        end = time.monotonic() + 60
        while any(map(alive, children)):
            assert time.monotonic() < end
            time.sleep(0.05)
    lines = [line for line in (tmp_path / "said").read_text().splitlines() if "rows" not in line]
    if dying == "first":
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith("hma: another process of the run has ended")


def test_mistakes_are_found_before_any_process_is_started(points, refuses, tmp_path):
    command = ["train", points, *QUICK, "-o", tmp_path / "run"]
    assert "devices must be at least 1, got 0" in refuses(*command, "--devices", 0)
    text = tmp_path / "bad.csv"
    text.write_text("a,b\n1,x\n2,y\n")
    said = refuses("train", text, "--target", "c", *QUICK, "--devices", 2, "-o", tmp_path / "r")
    assert "'c'" in said


def test_an_accelerator_that_is_not_there_is_named(points, refuses, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has it")
    asked = ["cuda" if word == "cpu" else word for word in QUICK]
    said = refuses("train", points, *asked, "-o", tmp_path / "run")
    assert "accelerator 'cuda' with 1 device(s) cannot be used here" in said
