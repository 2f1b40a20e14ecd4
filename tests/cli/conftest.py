"""The command line in this process: what it printed, and how it ended."""

import sys
from typing import NamedTuple

import pytest

from hma.__main__ import main


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def run_hma():
    def run(*arguments):
        import contextlib
        import io

        out, err, before = io.StringIO(), io.StringIO(), sys.argv
        sys.argv = ["hma", *map(str, arguments)]
        code = 0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main()
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            sys.argv = before
        return Ended(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def refuses(run_hma):
    """Run a command that must end with one clear line, exit code 2 and no traceback."""

    def run(*arguments):
        ended = run_hma(*arguments)
        assert ended.code == 2, (ended.out, ended.err)
        assert "Traceback" not in ended.err
        return " ".join(ended.err.split())

    return run
