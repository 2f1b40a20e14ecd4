"""Time and memory taken by a run, over all of its starts."""

import time
from typing import Any

import torch

from hma.training.provenance import peak_memory_bytes


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
