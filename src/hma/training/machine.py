"""The machine that a time was measured on: its processor, its cores, and what else it did."""

import os
import platform
from pathlib import Path


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
