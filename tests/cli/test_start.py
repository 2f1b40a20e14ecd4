"""How the command starts: what it imports before it needs it, and Ctrl-C while it does."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from hma.cli import app

HEAVY = {"torch", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "lightning", "torchmetrics"}
ASK_ALL = """
import contextlib, io, json, sys
from hma.__main__ import main

loaded = {}
for asked in json.loads(sys.argv[1]):
    sys.argv = ["hma", *asked]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main()
    loaded[" ".join(asked)] = bool(shown.getvalue()), sorted({m.split(".")[0] for m in sys.modules})
print(json.dumps(loaded))
"""
SLOW_TORCH = "import pathlib, time\npathlib.Path({!r}).touch()\ntime.sleep(60)\n"


def test_version_and_every_help_load_nothing_heavy():
    """All in one process: what one of them loads is seen for all that come after it."""
    commands = [[name, "--help"] for name in app if not name.startswith("-")]
    assert ["train", "--help"] in commands
    asked = json.dumps([["--version"], ["--help"], *commands])
    found = subprocess.check_output([sys.executable, "-c", ASK_ALL, asked], text=True)
    for command, (answered, loaded) in json.loads(found).items():
        assert answered, command
        assert not HEAVY & set(loaded), command


def test_importing_hma_loads_no_torch_until_a_name_is_used():
    code = (
        "import sys, hma; print('torch' in sys.modules, hasattr(hma, 'nothing'), "
        "set(hma.__all__) <= set(dir(hma)), hma.HMA.__name__, 'torch' in sys.modules)"
    )
    found = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert found == "False False True HMA True\n"


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
