"""Processes that do hostile work for this one, which can end them at any time: started, asked, killed.

Such a process reads pickles from its standard input and answers each with one on its standard output. Both
ends are this project's code; only what the work is about comes from others.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, cast

from processors.grammar.compile.threads import start_thread

__all__ = ["OUT_OF_MEMORY", "Child", "ChildDied", "ChildLate", "limit_memory", "serve"]

OUT_OF_MEMORY = 77  # the exit code of a process that came near its limit
_STATUS = Path("/proc/self/status")


class ChildDied(Exception):
    """The process ended instead of answering; `code` is its exit code, below 0 that of a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class ChildLate(Exception):
    """The process did not answer in time and was killed."""


class Child:
    """A process that runs a module of this project and answers one question after the other."""

    def __init__(self, module: str) -> None:
        search = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MALLOC_ARENA_MAX": "2"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **search},
            start_new_session=True,  # an interrupt from the keyboard is for its parent
        )

    def ask(self, question: Any, seconds: float) -> Any:
        """The answer. ChildLate after that time, ChildDied if there is none; the process is then gone."""
        source, target = cast(IO[bytes], self._process.stdout), cast(IO[bytes], self._process.stdin)
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            pickle.dump(question, target)
            target.flush()
            return pickle.load(source)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self.close()
            raise (ChildLate() if late.is_set() else ChildDied(self._process.returncode)) from error
        finally:
            timer.cancel()

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it from another thread than the one that waits for its answer, which gets ChildDied."""
        self._process.kill()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not read is lost
                cast(IO[bytes], pipe).close()


def serve(answers: Callable[[Callable[[], Any], Callable[[Any], None]], None], *, stack: int) -> None:
    """Be such a process: `answers(next_question, reply)` runs on a thread with a stack of so many bytes.

    The end of the input ends the process at once, whatever that thread does.
    """
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no reply
    questions: SimpleQueue[Any] = SimpleQueue()

    def reply(answer: Any) -> None:
        pickle.dump(answer, target)
        target.flush()

    start_thread(lambda: answers(questions.get, reply), stack)
    with suppress(EOFError):
        while True:
            questions.put(pickle.load(sys.stdin.buffer))
    os._exit(0)


def limit_memory(more: int) -> None:
    """Let the process take this many bytes more than now, where the system tells and limits that: on Linux.

    Out of memory, some libraries wait for ever on one of their threads. So the process ends shortly before.
    """
    if not _STATUS.exists():
        return
    import resource

    most = _memory() + more
    resource.setrlimit(resource.RLIMIT_DATA, (most + more // 8, resource.RLIM_INFINITY))
    start_thread(lambda: _watch_memory(most), 1 << 20)


def _watch_memory(most: int) -> None:
    while _memory() < most:
        time.sleep(0.02)
    os._exit(OUT_OF_MEMORY)


def _memory() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) * 1024
