"""What a computation costs: seconds, memory, and the machine that they were measured on."""

import gc
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from hma.errors import UserError


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, on the clock and on the processor.

    Example:
        >>> timing = Timing((0.2, 0.1, 0.4))
        >>> timing.milliseconds, timing.best
        (200.0, 0.1)
    """

    seconds: tuple[float, ...]
    processor_seconds: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """The middle repeat, in seconds."""
        return median(self.seconds)

    @property
    def processor_median(self) -> float:
        """The middle repeat in seconds of this process, which others lengthen less."""
        return median(self.processor_seconds)

    @property
    def best(self) -> float:
        """The fastest repeat, in seconds."""
        return min(self.seconds)

    @property
    def milliseconds(self) -> float:
        """The middle repeat, in milliseconds."""
        return 1000 * self.median


def interleave(
    sides: Mapping[str, Callable[[], object]], repeats: int, *, warm: bool = False
) -> dict[str, Timing]:
    """Time every side ``repeats`` times in turn (A, B, A, B, ...), after one untimed round.

    Args:
        sides: What to time, by name.
        repeats: Rounds.
        warm: Every side has run already, so no round is left untimed.
    """
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for side in () if warm else sides.values():
        side()
    with _without_garbage_collection():
        for _ in range(repeats):
            for name, side in sides.items():
                clock, processor = time.perf_counter(), time.process_time()
                side()
                taken = time.perf_counter() - clock, time.process_time() - processor
                seconds[name].append(taken)
    return {name: Timing(*zip(*taken, strict=True)) for name, taken in seconds.items()}


@contextmanager
def using_threads(threads: int | None) -> Iterator[int]:
    """Let torch use ``threads`` threads for a while; None leaves it as it is.

    With one there is no waiting in small networks, and sums are the same anywhere.
    """
    before = torch.get_num_threads()
    if threads is not None:
        if threads < 1:
            raise UserError(f"threads must be at least 1 or None, got {threads}")
        torch.set_num_threads(threads)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


CHATTER = (b"USDT:", b"CPUAllocator.cpp")
"""What only the profiler says: that it starts and stops, and of memory taken before it started."""


def peak_extra_bytes(call: Callable[[], object]) -> int:
    """Return how far tensor memory rose above where it stood when ``call`` began.

    The profiler records every allocation and release of torch's allocator with its size, and they
    are replayed here: the peak is exact to the byte, the same on every system and needs no process
    of its own. What a matrix library takes as scratch space beside the allocator is not in it, and
    memory taken before ``call`` and released by it is not subtracted.

    Example:
        >>> import torch
        >>> peak_extra_bytes(lambda: torch.zeros(1024, 1024))
        4194304
    """
    activities = [ProfilerActivity.CPU]
    with (
        _without_profiler_chatter(),
        profile(activities=activities, profile_memory=True) as recorded,
    ):
        call()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    changes = sorted(
        (float(event["ts"]), int(event["args"]["Bytes"]))
        for event in events
        if event.get("name") == "[memory]"
    )
    return highest(size for _, size in changes)


def highest(changes: Iterable[int]) -> int:
    """Return the largest running total, at least 0.

    Example:
        >>> highest([5, -5, 3, 4, -1])
        7
    """
    return max(accumulate(changes, initial=0))


@contextmanager
def _without_profiler_chatter() -> Iterator[None]:
    """Drop what the profiler says of itself; no setting keeps it quiet."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            written.seek(0)
            for line in written:
                if not any(word in line for word in CHATTER):
                    os.write(2, line)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory held at once: by tensors on a GPU, else by the whole process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Stopwatch:
    """Count seconds of a run and of each of its epochs, interruptions left out."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._started = time.perf_counter()
        self._before = 0.0
        self._epoch_began = 0.0
        self._peak_before = 0
        self.epoch_seconds: list[float] = []

    @property
    def seconds(self) -> float:
        """Seconds of all starts together."""
        return self._before + time.perf_counter() - self._started

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory held at once, in any start."""
        return max(self._peak_before, peak_memory_bytes(self._device))

    def end_epoch(self) -> None:
        """Note the time of an epoch."""
        now = self.seconds
        self.epoch_seconds.append(now - self._epoch_began)
        self._epoch_began = now

    def to_json(self) -> dict[str, Any]:
        """Return where it stands, as JSON values."""
        return {
            "seconds": self.seconds,
            "epoch_began": self._epoch_began,
            "epoch_seconds": self.epoch_seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
        }

    def continue_from(self, values: dict[str, Any]) -> None:
        """Go on counting from where :meth:`to_json` found it."""
        self._before += values["seconds"]
        self._epoch_began = values["epoch_began"]
        self.epoch_seconds = list(values["epoch_seconds"])
        self._peak_before = values["peak_memory_bytes"]


def processor_name() -> str:
    """Return the name of the processor."""
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float | None:
    """Return the mean number of busy processes in the last minute, where the system says it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
