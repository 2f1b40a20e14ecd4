"""Peak memory against tensors of known size, and against what the system saw."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from hma.training.cost import peak_extra_bytes

ROOT = Path(__file__).parents[2]
MEBIBYTE = 2**20
SEEN_BY_THE_SYSTEM = """
from functools import partial
from pathlib import Path

import torch

torch.set_num_threads(1)
from benchmarks.against_naive import classify_naively
from hma.training.cost import peak_extra_bytes
from benchmarks.shapes import GRAPH_SHAPE, build_head
from benchmarks.steps import forget_gradients, training_step


def kilobytes(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


head = build_head(GRAPH_SHAPE)
step = partial(training_step, head, partial(classify_naively, head.model))
step()
forget_gradients(head)
Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
before = kilobytes("VmRSS")
step()
print(1024 * (kilobytes("VmHWM") - before))
forget_gradients(head)
print(peak_extra_bytes(step))
"""


def hold(mebibytes: int) -> torch.Tensor:
    return torch.zeros(mebibytes, MEBIBYTE // 4)


def test_a_known_tensor_counts_its_own_size():
    assert peak_extra_bytes(partial(hold, 64)) == pytest.approx(64 * MEBIBYTE, rel=0.1)


def test_tensors_held_together_add_up():
    def call():
        first, second = hold(16), hold(32)
        return first, second

    assert peak_extra_bytes(call) == pytest.approx(48 * MEBIBYTE, rel=0.1)


def test_tensors_held_one_after_the_other_do_not():
    def call():
        for size in (16, 32, 16):
            hold(size)

    assert peak_extra_bytes(call) == pytest.approx(32 * MEBIBYTE, rel=0.1)


def test_a_tensor_held_before_is_not_extra():
    held = hold(64)
    peak = peak_extra_bytes(lambda: (held[:32] + 1).sum())
    assert peak == pytest.approx(32 * MEBIBYTE, rel=0.1)


def test_gradients_count():
    weight = torch.zeros(16, MEBIBYTE // 4, requires_grad=True)
    peak = peak_extra_bytes(lambda: (weight * 2).sum().backward())
    assert peak == pytest.approx(2 * 16 * MEBIBYTE, rel=0.5)
    assert weight.grad is not None


def test_other_words_on_stderr_survive(capfd):
    peak_extra_bytes(lambda: print("a warning", file=sys.stderr))
    assert capfd.readouterr().err == "a warning\n"


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="reads Linux's high-water mark"
)
def test_the_system_saw_the_same_peak():
    done = subprocess.run(
        [sys.executable, "-c", SEEN_BY_THE_SYSTEM],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},  # freed memory goes back at once
    )
    system, recorded = map(int, done.stdout.split())
    assert recorded == pytest.approx(system, rel=0.1)
