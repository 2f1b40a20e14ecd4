"""The command ``hma`` as a person runs it."""

import json
import subprocess
import sys

import pytest

WITHOUT_CYCLOPTS = (
    "import sys; sys.modules['cyclopts'] = None; from hma.__main__ import main; main()"
)


def hma(*arguments, cwd=None, code=None):
    command = [sys.executable, *(["-c", code] if code else ["-m", "hma"]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_without_arguments_it_shows_its_commands():
    found = hma()
    for command in ("quickstart", "bench"):
        assert command in found.stdout


def test_an_unknown_command_exits_with_2_and_no_traceback():
    found = hma("quikstart")
    assert found.returncode == 2
    assert "quikstart" in found.stderr
    assert "Traceback" not in found.stderr


def test_without_its_extra_it_names_the_remedy():
    found = hma(code=WITHOUT_CYCLOPTS)
    assert found.returncode == 2
    assert found.stderr == "hma: the command line needs cyclopts: pip install 'hma-torch[cli]'\n"


def test_bench_never_overwrites_a_record_silently(tmp_path):
    record = tmp_path / "bench.json"
    record.write_text("mine")
    found = hma("bench", "--quick", "-o", str(record))
    assert found.returncode == 2
    assert "exists already; pass --overwrite" in found.stderr
    assert record.read_text() == "mine"


@pytest.mark.slow
def test_bench_prints_tables_and_writes_its_record(tmp_path):
    found = hma("bench", "--quick", "--only", "frozen", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "wrote bench.json" in found.stdout
    assert json.loads((tmp_path / "bench.json").read_text())["quick"] is True


def test_bench_names_the_parts_it_knows():
    found = hma("bench", "--quick", "--only", "frozn", "-o", "/nonexistent/bench.json")
    assert found.returncode == 2
    assert "did you mean 'frozen'" in found.stderr
    assert "Traceback" not in found.stderr
