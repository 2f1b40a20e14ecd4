"""What happens between steps, a few times a second: progress, log, checkpoints, stopping."""

import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist

from hma.errors import Interrupted
from hma.training.log import ScalarLog
from hma.training.loop import Training, selecting_metric
from hma.training.progress import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequests:
    """Within the block, remember a first SIGINT or SIGTERM instead of dying from it.

    Python lets only the main thread receive signals; in any other the block changes nothing.
    A signal that the process was told to ignore stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.idle = False
        """Whether nothing runs that has anything to keep, so that not even the first waits."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler is not None and handler != signal.SIG_IGN:
                    self._before[number] = handler
                    signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.idle:
            raise Interrupted("stopped; the same command goes on", number)
        if self.received is not None:
            raise Interrupted(
                "stopped at once, without a checkpoint of the last steps; start the same run again "
                "to go on from the one before",
                number,
            )
        self.received = number


SHOW_EVERY_SECONDS = 0.2
LOG_EVERY_SECONDS = 1.0
MOST_OF_THE_TIME = 0.05
"""Share of the time that checkpoints by the clock may take; large ones come less often."""
AGREE_EVERY_CALLS = 10
"""Several processes ask each other only so often whether to stop or to write a checkpoint."""


class BetweenSteps:
    """Called after every step and every evaluated batch; nearly always it only reads the clock.

    Args:
        training: The run.
        save: Writes a checkpoint; None where there is nowhere to.
        progress, log: Told how far the run is.
        stop: Whether somebody asked to stop.
        clock: Seconds since some moment.
    """

    def __init__(
        self,
        training: Training,
        *,
        save: Callable[[], None] | None,
        progress: Progress,
        log: ScalarLog,
        stop: StopRequests,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.training, self.progress, self.log, self.stop = training, progress, log, stop
        self._save = save
        self._clock = clock
        self._together = training.fabric.world_size > 1
        self._calls = 0
        self._saved_step = self._logged_step = training.step
        self._every_steps = training.recipe.checkpoint_every_steps if save is not None else None
        seconds = training.recipe.checkpoint_every_seconds
        self._every_seconds = seconds if save is not None else math.inf
        now = clock()
        self._show_at, self._log_at, self._save_at = now, now, now + self._every_seconds
        self._next = now

    def run_callbacks(self) -> None:
        """Show, log, save or stop, whatever is due."""
        self._calls += 1
        step = self.training.step
        if self._every_steps and step % self._every_steps == 0 and step != self._saved_step:
            self.save()
        now = self._clock()
        if self._together:
            self._agree(now)
        elif self.stop.received is not None:
            self._stop(self.stop.received)
        elif now >= self._save_at:
            self.save()
        if now >= self._next:
            self._tell(now)

    def _agree(self, now: float) -> None:
        if self._calls % AGREE_EVERY_CALLS:
            return
        due = self.training.fabric.is_global_zero and now >= self._save_at
        wishes = torch.tensor([self.stop.received or 0, int(due)])
        wishes = wishes.to(self.training.fabric.device)
        dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
        received, due = wishes.tolist()
        if received:
            self._stop(received)
        if due:
            self.save()

    def save(self) -> None:
        """Write a checkpoint, if there is a place for it."""
        if self._save is not None:
            began = self._clock()
            self._save()
            self.log.flush()
            self._saved_step = self.training.step
            now = self._clock()
            rest = (now - began) * (1 / MOST_OF_THE_TIME - 1) if self._every_seconds else 0.0
            self._save_at = now + max(self._every_seconds, rest)

    def _stop(self, received: int) -> None:
        self.save()
        name = {signal.SIGINT: "Ctrl-C"}.get(received, signal.Signals(received).name)  # type: ignore[call-overload]
        kept = "start the same run again to go on from there"
        lost = "nothing was kept, because the run has no folder"
        raise Interrupted(
            f"stopped by {name} after step {self.training.step} of {self.training.steps}; "
            f"{lost if self._save is None else kept}",
            received,
        )

    def _tell(self, now: float) -> None:
        loss, step = float(self.training.last_loss), self.training.step
        if now >= self._show_at:
            self.progress.update(step, self._note(loss))
            self._show_at = now + SHOW_EVERY_SECONDS
        if now >= self._log_at:
            if step != self._logged_step:
                self.log.add(step, {"train/loss": loss})
            self._log_at, self._logged_step = now + LOG_EVERY_SECONDS, step
        self._next = min(self._show_at, self._log_at)

    def _note(self, loss: float) -> str:
        standing = self.training.standing
        epoch = min(standing.epoch + 1, self.training.epochs)
        word = self.training.recipe.round
        note = f"{word} {epoch}/{self.training.epochs} loss {loss:.3f}"
        if standing.best_epoch is not None:
            metric = selecting_metric(self.training.task, self.training.recipe).name.replace(
                "_", " "
            )
            note += f" best validation {metric} {standing.best_score:.3f}"
        return note
