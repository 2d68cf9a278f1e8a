"""Threads that the end of a program does not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["Lane", "start_thread"]

_LOCK = threading.Lock()


def start_thread(target: Callable[[], None], stack: int) -> threading.Thread:
    """A daemon thread with a stack of so many bytes."""
    thread = threading.Thread(target=target, daemon=True)
    with _LOCK:  # the size is one for the whole process
        before = threading.stack_size(stack)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


class Lane:
    """Tasks, done in order by so many threads, which start with the first tasks.

    ThreadPoolExecutor would let the end of a program wait for its tasks.
    """

    _STACK = 16 << 20  # more than the process has in which a grammar is tried

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._to_start, self._started = threads, 0

    def put(self, task: Callable[[], None]) -> None:
        """Do this after the tasks before it. Not to be called by two threads at once."""
        self._tasks.put(task)
        if self._to_start:
            self._to_start, self._started = self._to_start - 1, self._started + 1
            tasks = self._tasks
            start_thread(lambda: _work(tasks), self._STACK)

    def close(self) -> None:
        """Let the threads end when they have done their tasks. A task after that starts them again."""
        for _ in range(self._started):
            self._tasks.put(None)
        self._to_start, self._started = self._to_start + self._started, 0


def _work(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while task := tasks.get():
        task()
        del task  # it keeps the compiler alive that it belongs to
