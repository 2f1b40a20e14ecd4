"""Clocks: sides measured in turn, so that whatever the machine does meets all of them alike."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch

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
    """Let torch use ``threads`` threads for a while; None leaves it as it is."""
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
