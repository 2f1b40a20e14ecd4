"""Processes of their own for runs that get killed."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE_SECONDS = 120


class ForkServer:
    """The test's end of ``fork_server.py``; one job at a time."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output.txt"
        self.output.touch()
        paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        network = {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "fork_server.py"), str(folder / "tensorboard")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | network | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        self._pid = 2**30  # of no process

    def start(self, name: str, **options) -> None:
        """Start a job and return once its process exists."""
        self.output.write_text("")
        job = {"name": name, "options": options, "output": str(self.output)}
        self._server.stdin.write(json.dumps(job).encode() + b"\n")
        self._server.stdin.flush()
        self._pid = self._answer(PATIENCE_SECONDS)["pid"]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the job."""
        os.kill(self._pid, number)

    def ended(self, within: float = PATIENCE_SECONDS) -> int | None:
        """Return the exit code, negative for a signal; None if the job still runs after a while."""
        answer = self._answer(within)
        return None if answer is None else answer["code"]

    def said(self) -> str:
        """Return what the job printed."""
        return self.output.read_text()

    def _answer(self, within: float):
        ready, _, _ = select.select([self._server.stdout], [], [], within)
        return json.loads(self._server.stdout.readline()) if ready else None

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)  # a job that hangs, and what it started
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    server = ForkServer(tmp_path_factory.mktemp("processes"))
    yield server
    server.close()
