"""Ctrl-C while the command is still importing torch."""

import os
import signal
import subprocess
import sys
import time

import pytest

SLOW_TORCH = "import pathlib, time\npathlib.Path({!r}).touch()\ntime.sleep(60)\n"


@pytest.mark.parametrize("how", ["module", "script"])
def test_ctrl_c_while_torch_is_imported_is_one_line(tmp_path, how):
    here = tmp_path / "here"
    (tmp_path / "torch.py").write_text(SLOW_TORCH.format(str(here)))
    (tmp_path / "hma").write_text("from hma.__main__ import main\nmain()\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    start = ["-m", "hma"] if how == "module" else [str(tmp_path / "hma")]
    running = subprocess.Popen(
        [sys.executable, *start, "tables"],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not here.exists() and running.poll() is None:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert (running.returncode, said) == (130, "hma: interrupted before anything was done\n")


def test_a_program_that_imports_hma_keeps_its_own_ctrl_c(tmp_path):
    code = "import signal, hma; print(signal.getsignal(signal.SIGINT).__name__)"
    asked = [sys.executable, "-c", code]
    assert subprocess.check_output(asked, text=True) == "default_int_handler\n"
