"""``hma serve`` as it is started and stopped."""

import http.client
import os
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

COMMAND = [sys.executable, "-m", "hma", "serve"]


def started(*arguments, **more):
    environment = {name: value for name, value in os.environ.items() if name != "HMA_TOKEN"}
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, **more},
    )


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_answers_and_stops_when_told(folder, stop):
    with started(folder, "--port", 0) as server:
        try:
            said = server.stdout.readline()
            assert said.startswith(f"serving {folder} at http://127.0.0.1:"), server.stderr.read()
            address = next(word for word in said.split() if word.startswith("http://"))
            connection = http.client.HTTPConnection(urlsplit(address.rstrip(";")).netloc)
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b'{"status": "ok", "version": 0}'
            connection.close()
        finally:
            server.send_signal(stop)
        out, err = server.communicate(timeout=60)
    assert "Traceback" not in err
    if stop == signal.SIGINT:
        assert (server.returncode, out.strip()) == (0, "stopped")
    else:
        assert server.returncode == -signal.SIGTERM


def test_without_a_token_it_does_not_listen_beyond_this_machine(folder):
    with started(folder, "--host", "0.0.0.0", "--port", 0) as server:
        out, err = server.communicate(timeout=120)
    assert (server.returncode, out) == (2, "")
    assert "hma: --host 0.0.0.0 can be reached from other machines, which needs a token" in err
    with started(folder, "--port", 0, HMA_TOKEN="two words") as server:
        out, err = server.communicate(timeout=120)
    assert (server.returncode, out) == (2, "")
    assert "the token must be printable ASCII without spaces" in err
