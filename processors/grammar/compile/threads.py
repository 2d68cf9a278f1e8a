"""Daemon threads, which do not delay the exit of the program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["Lane", "start_thread"]

_LOCK = threading.Lock()


def start_thread(target: Callable[[], None], stack: int) -> threading.Thread:
    """Start a daemon thread with a stack of `stack` bytes."""
    thread = threading.Thread(target=target, daemon=True)
    with _LOCK:  # stack_size is a setting of the whole process
        before = threading.stack_size(stack)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


class Lane:
    """A task queue served by `threads` daemon threads, which start with the first tasks.

    Unlike ThreadPoolExecutor it does not delay the exit of the program.
    """

    _STACK = 16 << 20  # bytes; more than the stack of the child process that tries a grammar first

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._to_start, self._started = threads, 0

    def put(self, task: Callable[[], None]) -> None:
        """Queue a task. Not thread-safe."""
        self._tasks.put(task)
        if self._to_start:
            self._to_start, self._started = self._to_start - 1, self._started + 1
            tasks = self._tasks
            start_thread(lambda: _work(tasks), self._STACK)

    def close(self) -> None:
        """End the threads once their tasks are done. A later task starts them again."""
        for _ in range(self._started):
            self._tasks.put(None)
        self._to_start, self._started = self._to_start + self._started, 0


def _work(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while task := tasks.get():
        task()
        del task  # a reference would keep the compiler alive
