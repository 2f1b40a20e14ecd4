"""``hma serve`` as it is started and stopped."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from hma.io.files import hold_lock
from hma.runs.living import LivingMemory

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


@contextmanager
def serving(folder, *options):
    """A server and its address; it is killed at the end if it still runs."""
    with started(folder, "--port", 0, *options) as server:
        try:
            said = server.stdout.readline()
            address = next(word for word in said.split() if word.startswith("http://"))
            yield server, urlsplit(address.rstrip(";")).netloc
        finally:
            server.kill()


def taught(netloc, row, label="up"):
    """The status and the values of the reply to a row that is taught."""
    connection = http.client.HTTPConnection(netloc, timeout=60)
    body = json.dumps({"rows": [row], "labels": [label]})
    connection.request("POST", "/remember", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    found = reply.status, json.loads(reply.read())
    connection.close()
    return found


def locked(folder):
    versions = folder / "memory" / "versions"
    versions.mkdir(parents=True, exist_ok=True)
    return hold_lock(versions)


def test_a_write_waits_a_bounded_time_for_another_process(folder, rows):
    with serving(folder, "--write-wait", 0.5) as (_, netloc), ThreadPoolExecutor(4) as pool:
        with locked(folder):
            began = time.monotonic()
            seen = [one.result() for one in [pool.submit(taught, netloc, rows[0]) for _ in "1234"]]
            assert time.monotonic() - began < 10
        for status, values in seen:
            assert status == 503
            assert "nothing was " in values["error"]
        assert LivingMemory.open(folder).history() == []
        status, version = taught(netloc, {**rows[0], "a": 9.5})
    assert (status, version["number"]) == (200, 1)


def test_it_stops_at_once_while_writes_wait_and_none_of_them_is_committed(folder, rows):
    with serving(folder, "--write-wait", 600) as (server, netloc), ThreadPoolExecutor(3) as pool:
        with locked(folder):
            waiting = [pool.submit(taught, netloc, row) for row in rows[:3]]
            time.sleep(1.0)
            began = time.monotonic()
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == -signal.SIGTERM
            assert time.monotonic() - began < 5
        for status, values in (one.result() for one in waiting):
            assert status == 503
            assert values["error"].startswith("the server is stopping; nothing was written")
        assert LivingMemory.open(folder).history() == []
        assert "Traceback" not in server.stderr.read()


def test_what_was_committed_before_it_stopped_is_what_was_answered(folder, rows):
    def keep_teaching(netloc, column):
        seen = []
        for place in range(1000):
            try:
                seen.append(taught(netloc, {**rows[0], column: place}))
            except OSError:
                break
        return seen

    with serving(folder) as (server, netloc), ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(keep_teaching, netloc, column) for column in "abc"]
        time.sleep(2.0)
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == -signal.SIGTERM
        assert time.monotonic() - began < 5
        seen = [one for writer in writers for one in writer.result()]
    answered = sorted(values["number"] for status, values in seen if status == 200)
    assert {status for status, _ in seen} <= {200, 503}
    assert answered == [one.number for one in LivingMemory.open(folder).history()]
    assert answered


def test_a_wait_must_be_a_number_of_seconds(folder):
    with started(folder, "--port", 0, "--write-wait", "nan") as server:
        out, err = server.communicate(timeout=120)
    assert (server.returncode, out) == (2, "")
    assert "--write-wait must be a number of seconds from 0 on, got nan" in err
