"""``python -m benchmarks.serve_load RUN``: ``hma serve`` under load, as several clients find it.

Each client asks for predictions and explanations of rows of the run's source, one after another.
Printed are errors, the requests a second, medians and 99th percentiles of the time that an answer
takes, and how the memory of the server grows after it has warmed up.
"""

import argparse
import http.client
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

PATHS = ("/predict", "/predict", "/predict", "/explain")
"""What is asked in turn."""
MOST_GROWTH = 1.05
"""Of the memory of the server from a quarter of the time on."""
TIMEOUT = 60.0


@dataclass
class Load:
    """What a client found: seconds of each answer by path, and what went wrong."""

    taken: dict[str, list[float]] = field(default_factory=lambda: {path: [] for path in PATHS})
    errors: list[str] = field(default_factory=list)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of all do not exceed.

    Example:
        >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5), percentile([3.0, 1.0, 2.0, 4.0], 0.99)
        (2.0, 4.0)
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, ask, print; return 1 where there was an error or the memory grew."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve_load", description=__doc__)
    parser.add_argument("run", type=Path, help="a folder that hma train wrote")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args(arguments)
    command = [sys.executable, "-m", "hma", "serve", str(given.run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            return _measure(server, given.clients, given.seconds)
        finally:
            server.terminate()


def _measure(server: "subprocess.Popen[str]", clients: int, seconds: float) -> int:
    assert server.stdout is not None
    said = server.stdout.readline()
    where = next((word for word in said.split() if word.startswith("http://")), "").rstrip(";")
    if not where:
        print("the server did not start")
        return 1
    rows = _rows(where)
    with ThreadPoolExecutor(clients) as pool:
        end = time.monotonic() + seconds
        loads = [pool.submit(_client, where, rows, end, seed) for seed in range(clients)]
        time.sleep(seconds / 4)
        warm = resident(server.pid)
        found = [load.result() for load in loads]
    last = resident(server.pid)
    errors = [error for load in found for error in load.errors]
    asked = 0
    for path in dict.fromkeys(PATHS):
        taken = [one for load in found for one in load.taken[path]]
        asked += len(taken)
        if taken:
            middle, worst = (1000 * percentile(taken, share) for share in (0.5, 0.99))
            print(f"{path}: {len(taken)} answers, p50 {middle:.1f} ms, p99 {worst:.1f} ms")
    grown = last / warm
    print(f"{clients} clients, {seconds:g} s: {asked / seconds:.1f} answers a second")
    print(f"errors: {len(errors)}{f', such as {errors[0]}' if errors else ''}")
    print(f"memory: {warm / 2**20:.1f} MiB warmed up, {last / 2**20:.1f} MiB at the end")
    return int(bool(errors) or not asked or grown > MOST_GROWTH)


def _rows(where: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(where).netloc, timeout=TIMEOUT)
    connection.request("GET", "/run")
    rows: int = json.loads(connection.getresponse().read())["places"]
    connection.close()
    return rows


def _client(where: str, rows: int, end: float, seed: int) -> Load:
    """Ask until the time is over."""
    load, draw = Load(), random.Random(seed)
    connection = http.client.HTTPConnection(urlsplit(where).netloc, timeout=TIMEOUT)
    turn = seed
    while time.monotonic() < end:
        path, turn = PATHS[turn % len(PATHS)], turn + 1
        body = json.dumps({"places": [draw.randrange(rows)]})
        begun = time.perf_counter()
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            load.errors.append(repr(error))
            connection.close()
            continue
        if answer.status == 200:
            load.taken[path].append(time.perf_counter() - begun)
        else:
            load.errors.append(data.decode()[:200])
    connection.close()
    return load


def resident(process: int) -> float:
    """Return the bytes of memory that a process holds now; Linux only."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    held = next(line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return 1024.0 * int(held)


if __name__ == "__main__":
    sys.exit(main())
