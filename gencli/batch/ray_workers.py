"""Connection to Ray (the cluster of RAY_ADDRESS, or a local one for the duration of the run), and a
worker: an engine in its own process that takes rows and returns outcomes in short calls. The engine
runs in a thread, so it does not wait for the next call. This module imports Ray only in `connected`,
after it has set Ray's environment.
"""

from __future__ import annotations

import os
import queue
import secrets
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass

from gencli.batch.batch_records import Outcome, Row, RowEngine
from gencli.errors import UsageError

_STORE = 128 * 2**20  # bytes of the object store; rows and outcomes are small
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Share:
    """The CPUs and GPUs of each worker; fractions are allowed."""

    cpus: float
    gpus: float

    def __str__(self) -> str:
        gpus = f" and {self.gpus:g} GPU" if self.gpus else ""
        return f"{self.cpus:g} CPU{gpus}"


@contextmanager
def connected() -> Iterator[tuple[str, Mapping[str, float]]]:
    """Connect to Ray; yield the address and the numbers of CPUs and GPUs.

    A local Ray ends with the block or with this process. Raises UsageError for an invalid RAY_ADDRESS.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    if "://" in address:
        raise UsageError(
            f"RAY_ADDRESS is {address}, but has to be HOST:PORT of a node's own Ray.",
            hint="Run gencli on a node of the cluster, with RAY_ADDRESS=auto.",
        )
    is_local = address in ("", "local")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if is_local and "RAY_AUTH_MODE" not in os.environ:
        # A token for this run only; otherwise Ray stores one in the user's home.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    import ray  # not earlier: Ray reads the environment on import

    # Ray prints its messages to stdout, where the results go; a dead worker has a notice anyway.
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            with _same_handlers():
                _connect("local" if is_local else address, is_local=is_local)
            yield "this machine" if is_local else address, ray.cluster_resources()
        finally:
            with _same_handlers():
                ray.shutdown()


def _connect(address: str, *, is_local: bool) -> None:
    import ray

    of_local = {"include_dashboard": False, "object_store_memory": _STORE} if is_local else {}
    try:
        ray.init(address, log_to_driver=False, configure_logging=False, **of_local)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UsageError(
            f"Ray cannot be used ({address}): {reason}",
            hint="If it asks for a token, set RAY_AUTH_MODE=token. Without RAY_ADDRESS, gencli starts a Ray "
            "of its own.",
        ) from error


@contextmanager
def _same_handlers() -> Iterator[None]:
    """Restore the signal handlers, which Ray replaces and a resumable run needs."""
    before = {each: signal.getsignal(each) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def fair_share(
    resources: Mapping[str, float], workers: int, cpus: float | None, gpus: float | None, *, is_cpu: bool
) -> Share:
    """Return the share of each worker: as requested, otherwise an equal part of `resources`, at most one.

    Raises UsageError if the nodes have too few CPUs or GPUs.
    """
    has_cpus, has_gpus = resources.get("CPU", 0.0), 0.0 if is_cpu else resources.get("GPU", 0.0)
    # An equal part is rounded down to Ray's precision of 0.0001.
    parts = [min(1.0, int(amount / workers * 10_000) / 10_000) for amount in (has_cpus, has_gpus)]
    share = Share(parts[0] if cpus is None else cpus, parts[1] if gpus is None else gpus)
    for key, amount, has in (("worker_cpus", share.cpus, has_cpus), ("worker_gpus", share.gpus, has_gpus)):
        if amount * workers > has:
            raise UsageError(
                f"{workers} workers with `{key}` = {amount:g} need {amount * workers:g}; Ray has {has:g}.",
                hint=f"Lower `workers` or `{key}`; fractions such as 0.5 are fine.",
            )
    return share


OpenEngine = Callable[[], AbstractContextManager[RowEngine]]  # loads the model
_PATIENCE = 0.2  # seconds that a call waits for an outcome


@dataclass(frozen=True, slots=True)
class Report:
    """Events of a worker since the last call. `is_over`: it has stopped as requested."""

    outcomes: tuple[Outcome, ...] = ()
    tokens: int = 0
    notices: tuple[str, ...] = ()
    occupancy: float = 0.0
    limit: int = 0
    reading: str = ""
    is_ready: bool = False
    is_over: bool = False


class _Inbox:
    """A queue of rows: an iterator that ends when the queue is empty and continues after `put`."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        self._is_news = threading.Event()

    def put(self, rows: Sequence[Row]) -> None:
        """Add rows and wake `wait`, even without rows."""
        self._rows.extend(rows)
        self._is_news.set()

    def wait(self) -> None:
        """Block until `put` is called."""
        self._is_news.wait()
        self._is_news.clear()

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        if not self._rows:
            raise StopIteration
        return self._rows.popleft()


class Worker:
    """Runs an engine on the rows of `exchange`, which must not be called concurrently."""

    def __init__(self, open_engine: OpenEngine) -> None:
        self._inbox, self._outbox = _Inbox(), queue.SimpleQueue[Outcome]()
        self._engine: RowEngine | None = None
        self._error: BaseException | None = None
        self._num_tokens = self._reported_tokens = self._reported_notices = 0
        self._thread = threading.Thread(target=self._serve, args=(open_engine,), daemon=True)
        self._thread.start()

    def exchange(self, rows: Sequence[Row], drain: float | None = None) -> Report:
        """Take rows, wait briefly for an outcome, and return a report.

        `drain` stops the worker: running rows have `drain` more seconds. Raises the error of the engine.
        """
        self._inbox.put(rows)
        if drain is not None:
            if self._engine is None:  # it is still loading and has no rows
                return Report(is_over=True)
            self._engine.stop(drain)
            self._inbox.put(())
        is_over = not self._thread.is_alive()  # checked before the remaining outcomes are taken
        outcomes: list[Outcome] = []
        with suppress(queue.Empty):
            outcomes.append(self._outbox.get(timeout=_PATIENCE))
            while True:
                outcomes.append(self._outbox.get_nowait())
        if self._error is not None:
            raise self._error
        if (engine := self._engine) is None:
            return Report()
        notices, tokens = tuple(engine.notices), self._num_tokens
        report = Report(
            tuple(outcomes),
            tokens - self._reported_tokens,
            notices[self._reported_notices :],
            engine.occupancy,
            engine.limit,
            engine.reading,
            is_ready=True,
            is_over=is_over,
        )
        self._reported_tokens, self._reported_notices = tokens, len(notices)
        return report

    def _serve(self, open_engine: OpenEngine) -> None:
        """Body of the thread: load the model, then run rows until stopped."""
        try:
            with open_engine() as engine:
                self._engine = engine
                while not engine.is_stopped:
                    for outcome in engine.run(self._inbox, self._count):
                        self._outbox.put(outcome)
                    if not engine.is_stopped:
                        self._inbox.wait()
        except BaseException as error:
            self._error = error

    def _count(self, tokens: int) -> None:
        self._num_tokens += tokens
