"""The command ``hma`` as a person runs it."""

import subprocess
import sys

from hma.extras import install_command

WITHOUT_CYCLOPTS = (
    "import sys; sys.modules['cyclopts'] = None; from hma.__main__ import main; main()"
)


def hma(*arguments, cwd=None, code=None):
    command = [sys.executable, *(["-c", code] if code else ["-m", "hma"]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_without_arguments_it_shows_its_commands():
    found = hma()
    for command in ("quickstart", "train", "run"):
        assert command in found.stdout


def test_an_unknown_command_exits_with_2_and_no_traceback():
    found = hma("quikstart")
    assert found.returncode == 2
    assert "quikstart" in found.stderr
    assert "Traceback" not in found.stderr


def test_without_its_extra_it_names_the_remedy():
    found = hma(code=WITHOUT_CYCLOPTS)
    assert found.returncode == 2
    assert found.stderr == f"hma: the command line needs cyclopts: {install_command('cli')}\n"
