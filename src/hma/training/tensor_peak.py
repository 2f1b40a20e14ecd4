"""Peak extra memory of a call: every allocation and release of torch's allocator, replayed.

The profiler records each of them with its size, so the peak is exact to the byte, the same on
every system and needs no process of its own. What a matrix library takes as scratch space beside
torch's allocator is not in it.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

CHATTER = (b"USDT:", b"CPUAllocator.cpp")
"""What only the profiler says: that it starts and stops, and of memory taken before it started."""


def peak_extra_bytes(call: Callable[[], object]) -> int:
    """Return how far tensor memory rose above where it stood when ``call`` began.

    Memory taken before ``call`` and released by it is not subtracted.

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
