"""How a model is read that threads share: one lock, and eval mode for a while."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Condition, get_ident
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import nn


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put ``module`` in eval mode for a while; every submodule then gets its own mode back.

    Nothing is touched where all of it is in eval mode. A model that threads share is evaluated by
    :meth:`hma.MemoryModel.reading`, which no other thread disturbs.
    """
    training = [part for part in module.modules() if part.training]
    if training:
        module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


P = ParamSpec("P")
Result = TypeVar("Result")


class ReadWriteLock:
    """Let any number of threads read, or one thread write; served in the order they came.

    A thread that holds the lock may take it again: a writer may read and write, a reader may read.
    A reader must not write, because other readers would see the change half done.

    A copy, also one that is pickled for another process, is a new lock that nobody holds.

    Example:
        >>> lock = ReadWriteLock()
        >>> with lock.exclusive(), lock.shared():
        ...     pass
        >>> with lock.shared(), lock.exclusive():
        ...     pass
        Traceback (most recent call last):
        RuntimeError: a thread cannot write into a model while it reads it: write before or after
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._queue: deque[object] = deque()
        self._readers: set[int] = set()
        self._writer: int | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock to read."""
        thread = get_ident()
        if self._writer == thread or thread in self._readers:
            yield
            return
        with self._changed:
            self._wait(lambda: self._writer is None)
            self._readers.add(thread)
        try:
            yield
        finally:
            with self._changed:
                self._readers.remove(thread)
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock to write."""
        thread = get_ident()
        if self._writer == thread:
            yield
            return
        if thread in self._readers:
            raise RuntimeError(
                "a thread cannot write into a model while it reads it: write before or after"
            )
        with self._changed:
            self._wait(lambda: self._writer is None and not self._readers)
            self._writer = thread
        try:
            yield
        finally:
            with self._changed:
                self._writer = None
                self._changed.notify_all()

    def _wait(self, free: Callable[[], bool]) -> None:
        """Wait behind those that came before, so that neither readers nor writers starve."""
        ticket = object()
        self._queue.append(ticket)
        try:
            self._changed.wait_for(lambda: self._queue[0] is ticket and free())
        finally:
            self._queue.remove(ticket)
            if self._queue:
                self._changed.notify_all()  # the next may be a reader too

    def __reduce__(self) -> tuple[type["ReadWriteLock"], tuple[()]]:
        return ReadWriteLock, ()


class Lockable(Protocol):
    """What has a lock."""

    lock: ReadWriteLock


Model = TypeVar("Model", bound=Lockable)


def reads(
    method: Callable[Concatenate[Model, P], Result],
) -> Callable[Concatenate[Model, P], Result]:
    """Let a method share its model with other readers; nothing is locked inside a compiler."""

    @wraps(method)
    def locked(self: Model, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        if torch.compiler.is_compiling():
            return method(self, *args, **kwargs)
        with self.lock.shared():
            return method(self, *args, **kwargs)

    return locked


def writes(
    method: Callable[Concatenate[Model, P], Result],
) -> Callable[Concatenate[Model, P], Result]:
    """Let a method have its model alone; nothing is locked inside a compiler."""

    @wraps(method)
    def locked(self: Model, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        if torch.compiler.is_compiling():
            return method(self, *args, **kwargs)
        with self.lock.exclusive():
            return method(self, *args, **kwargs)

    return locked
