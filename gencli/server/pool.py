"""Threads outside of the event loop that do not delay the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from processors.grammar.compile_guards import Lane

__all__ = ["Pool"]

P = ParamSpec("P")
T = TypeVar("T")


class Pool(Executor):
    """An executor with daemon threads, for the event loop: a grammar may compile for half a minute.

    At its end the process would wait for the threads of a ThreadPoolExecutor.
    """

    def __init__(self, threads: int) -> None:
        self._lane = Lane(threads)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function on a thread. Not thread-safe."""
        future: Future[T] = Future()
        self._lane.put(partial(_fulfil, future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads once their tasks are done, without waiting."""
        self._lane.close()


def _fulfil(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # any kind of exception: it is raised in the waiting task
        future.set_exception(error)
        del future  # the future and the traceback of its error would keep each other alive
    else:
        future.set_result(result)
