"""Where and when a measurement was made."""

import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

import hma
from hma.training.cost import load, processor_name, usable_cores

CHECKOUT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a reader needs to judge a number, or to measure it again."""

    date: str
    """Start of the measurement, UTC."""
    cpu: str
    """Name of the processor."""
    cores: int
    """Cores this process may use."""
    system: str
    """Operating system."""
    python: str
    """Version of Python."""
    torch: str
    """Version of torch."""
    hma: str
    """Version of this package."""
    commit: str | None
    """Commit of the checkout it ran from; None outside a checkout."""
    changed: bool | None
    """Whether files under src differed from that commit."""
    load: float | None
    """Mean number of busy processes in the minute before; None where the system does not say."""

    @property
    def warning(self) -> str:
        """Say so where other work shared the cores; two-thread steps then wait for each other."""
        if self.load is None or self.load < 0.5:
            return ""
        return f"Other work shared the cores at the start (load {self.load}): times may be long."


def this_machine() -> Machine:
    """Return the facts of this machine, now."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", "src")
    return Machine(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        cpu=processor_name(),
        cores=usable_cores(),
        system=platform.platform(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        hma=hma.__version__,
        commit=commit or None,
        changed=None if changes is None else bool(changes),
        load=load(),
    )


def _git(*arguments: str) -> str | None:
    """Return what git prints, or None; an installed copy inside another repository asks nothing."""
    if not (CHECKOUT / ".git").exists():
        return None
    command = ["git", "--no-optional-locks", "-C", str(CHECKOUT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
