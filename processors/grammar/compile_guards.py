"""What keeps native grammar code in bounds: sizes refused before compiling, slow tokens, captured lines of
standard error, a store of compiled grammars, and daemon threads, which do not delay the exit of the
program.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from processors.errors import GrammarError
from processors.request_values import Constraint

P = ParamSpec("P")
T = TypeVar("T")

MAX_CHARACTERS = 1 << 22  # characters of a grammar's text
MAX_DEPTH = 500  # nested brackets of a JSON text

# Measured with 150k ids on two cores: xgrammar takes up to 40 ms per subschema, and seconds for a bounded
# string. llguidance recurses over chains of rules: about 200 fill a stack of 512 KiB, 1,000 one of 2 MiB.
_SMALL_TEXT = {"xgrammar": 2000, "llguidance": 4000}
_SMALL_REGEX = 100
_SUBSCHEMAS = 24
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+"')
_UNBOUNDED_COST = re.compile(r"\{|\(.*[*+].*\)|\\[pPB]|\[\^|(?<!\\)\..*\.")
_PLAIN_KEYWORDS = frozenset(
    "$schema $id $comment type title description default examples enum const properties required items "
    "additionalProperties anyOf minimum maximum exclusiveMinimum exclusiveMaximum".split()
)


def check_size(constraint: Constraint) -> None:
    """Raise GrammarError for a text that is too long or JSON that is nested too deeply."""
    if len(constraint.text) > MAX_CHARACTERS:
        raise GrammarError(
            f"The {constraint.kind} has {len(constraint.text):,} characters; the limit is {MAX_CHARACTERS:,}."
        )
    if constraint.kind in ("json_schema", "structural_tag"):
        steps = ((c in "[{") - (c in "]}") for c in _STRINGS.sub("", constraint.text))
        depth = max(accumulate(steps), default=0)
        if depth > MAX_DEPTH:
            raise GrammarError(f"The {constraint.kind} is {depth:,} levels deep; the limit is {MAX_DEPTH}.")


def is_small(constraint: Constraint) -> bool:
    """Whether a back end certainly compiles this in about a second, with little memory and stack."""
    if constraint.backend == "trie":  # plain Python with its own limit
        return True
    if len(constraint.text) > _SMALL_TEXT.get(constraint.backend, 0):
        return False
    if constraint.backend == "llguidance":  # llguidance bounds time and memory itself
        return True
    if constraint.kind == "regex":
        return len(constraint.text) <= _SMALL_REGEX and not _UNBOUNDED_COST.search(constraint.text)
    if constraint.kind != "json_schema" or constraint.text.count("{") > _SUBSCHEMAS:
        return False
    try:
        return set(_keywords(json.loads(constraint.text))) <= _PLAIN_KEYWORDS
    except (ValueError, AttributeError):  # a faulty schema; the child process reports it
        return False


def _keywords(schema: Any) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    yield from schema.keys()
    several = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for inner in (*several, schema.get("items", True), schema.get("additionalProperties", True)):
        yield from _keywords(inner)


MAX_STEP_SECONDS = 0.5  # CPU time of one token
WATCHED_SECONDS = 0.01  # wall time of one token from which CPU time is measured


class SlowTokenGuard:
    """Stops an output after a token whose acceptance took more than MAX_STEP_SECONDS of CPU time.

    In some grammars each token costs a multiple of the token before, and library calls cannot be interrupted.
    Reading the CPU time of a thread takes longer than accepting most tokens, so it is read only after a token
    that took WATCHED_SECONDS of wall time.
    """

    def __init__(self, count: int = 0, slow_at: int | None = None, *, is_watched: bool = False) -> None:
        self._count, self._slow_at, self._is_watched = count, slow_at, is_watched

    @property
    def is_slow(self) -> bool:
        return self._slow_at is not None

    @property
    def limit(self) -> str:
        """Why the output must stop here; "" if it need not."""
        return f"a token took longer than the limit of {MAX_STEP_SECONDS:g} s" if self.is_slow else ""

    def step(self, accept: Callable[[], int | None]) -> int | None:
        """Call `accept` and return its result; None without a call if the output must stop."""
        if self.is_slow:
            return None
        now = time.thread_time if self._is_watched else time.perf_counter
        begin = now()
        accepted = accept()
        seconds = now() - begin
        self._count += accepted is not None
        if self._is_watched and accepted is not None and seconds > MAX_STEP_SECONDS:
            self._slow_at = self._count
        self._is_watched = self._is_watched or seconds > WATCHED_SECONDS
        return accepted

    def rollback(self, count: int) -> None:
        self._count -= count
        if self._slow_at is not None and self._slow_at > self._count:
            self._slow_at = None

    def fork(self) -> SlowTokenGuard:
        return SlowTokenGuard(self._count, self._slow_at, is_watched=self._is_watched)


_STDERR = 2
_STDERR_LOCK = Lock()  # standard error is shared by the process


@contextmanager
def caught_lines(is_ours: Callable[[str], bool]) -> Iterator[list[str]]:
    """Capture the lines written to file descriptor 2 for which `is_ours` is true.

    The list is filled when the block ends. All other lines are passed on to standard error. The libraries
    report warnings in no other way.
    """
    lines: list[str] = []
    with _STDERR_LOCK, tempfile.TemporaryFile() as file:
        try:
            saved = os.dup(_STDERR)
        except OSError:  # a process without standard error
            yield lines
            return
        os.dup2(file.fileno(), _STDERR)
        try:
            yield lines
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)
            file.seek(0)
            for line in file.read().splitlines(keepends=True):
                text = line.decode("utf-8", "replace").rstrip("\n")
                if is_ours(text):
                    lines.append(text)
                else:
                    os.write(_STDERR, line)


_DIGEST = hashlib.sha256


class GrammarStore:
    """Files named by key, each a digest followed by the content; beyond `limit` bytes the oldest are deleted.

    The digest detects corruption. It is no protection from a writer of the folder, who is trusted.
    """

    def __init__(self, folder: Path, *, limit: int = 1 << 30) -> None:
        self._folder, self._limit = folder, limit

    def get(self, key: str) -> bytes | None:
        """Return the content; None if the file is missing or corrupt."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        size = _DIGEST().digest_size
        digest, content = data[:size], data[size:]
        if _DIGEST(content).digest() != digest:
            return None
        with suppress(OSError):
            os.utime(path)  # marks it as recently used
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store the content; without effect if the folder is not writable."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".part", delete=False) as file:
                file.write(_DIGEST(content).digest() + content)
            os.replace(file.name, self._path(key))
            files = [(path.stat(), path) for path in self._folder.glob("*.grammar")]
            excess = sum(stat.st_size for stat, _ in files) - self._limit
            for stat, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
                if excess > 0:
                    path.unlink(missing_ok=True)
                    excess -= stat.st_size

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.grammar"


_STACK_SIZE_LOCK = threading.Lock()


def start_thread(target: Callable[[], None], stack: int) -> threading.Thread:
    """Start a daemon thread with a stack of `stack` bytes."""
    thread = threading.Thread(target=target, daemon=True)
    with _STACK_SIZE_LOCK:  # stack_size is a setting of the whole process
        before = threading.stack_size(stack)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


class DaemonPool(Executor):
    """An executor of `threads` daemon threads, which start with the first tasks.

    Unlike a ThreadPoolExecutor it does not delay the exit of the program: a grammar may compile for half a
    minute.
    """

    _STACK = 16 << 20  # bytes; more than the stack of the child process that tries a grammar first

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._to_start, self._started = threads, 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function on a thread. Not thread-safe."""
        future: Future[T] = Future()
        self._tasks.put(partial(_fulfil, future, partial(fn, *args, **kwargs)))
        if self._to_start:
            self._to_start, self._started = self._to_start - 1, self._started + 1
            start_thread(partial(_work, self._tasks), self._STACK)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads once their tasks are done, without waiting. A later task starts them again."""
        for _ in range(self._started):
            self._tasks.put(None)
        self._to_start, self._started = self._to_start + self._started, 0


def _work(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while task := tasks.get():
        task()
        del task  # a reference would keep the compiler alive


def _fulfil(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # any kind of exception: it is raised where the result is awaited
        future.set_exception(error)
        del future  # the future and the traceback of its error would keep each other alive
    else:
        future.set_result(result)
