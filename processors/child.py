"""Child processes for work that may hang, crash or exhaust memory: start, ask, kill.

A child reads pickled questions from standard input and answers each with a pickle on standard output.
Both ends run this project's code; only the content of the questions is untrusted.
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

from processors.grammar.compile_guards import start_thread

OUT_OF_MEMORY = 77  # exit code of a process that reached its memory limit
_STATUS = Path("/proc/self/status")


class ChildDied(Exception):
    """The process ended without an answer; `code` is its exit code, or minus the number of a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class ChildLate(Exception):
    """The process did not answer in time and was killed."""


def _command(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", module]


class Child:
    """A process that runs a module of this project and answers questions one at a time."""

    def __init__(self, module: str) -> None:
        search = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MALLOC_ARENA_MAX": "2"}
        self._process = subprocess.Popen(
            _command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **search},
            start_new_session=True,  # Ctrl-C goes to the parent only
        )

    def ask(self, question: Any, seconds: float) -> Any:
        """Return the answer. ChildLate after `seconds`, ChildDied if the process ended; both close it."""
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
        """Whether the process still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """Kill the process and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # unread data is lost
                cast(IO[bytes], pipe).close()


def serve(answers: Callable[[Callable[[], Any], Callable[[Any], None]], None], *, stack: int) -> None:
    """Run as a child: call `answers(next_question, reply)` on a thread with a stack of `stack` bytes.

    End of input ends the process at once, even while that thread works.
    """
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output goes to standard error, so that it is not read as a reply
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
    """Limit this process to `more` bytes beyond its current memory. Linux only; elsewhere a no-op.

    Some libraries hang for ever when an allocation fails, so a watching thread ends the process before that.
    """
    if not _STATUS.exists():
        return
    import resource

    limit = _memory() + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit + more // 8, resource.RLIM_INFINITY))

    def watch() -> None:
        while _memory() < limit:
            time.sleep(0.02)
        os._exit(OUT_OF_MEMORY)

    start_thread(watch, 1 << 20)


def _memory() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) * 1024
