"""Connection to Ray: the cluster of RAY_ADDRESS, or a local one for the duration of the run."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

from gencli.errors import UsageError

__all__ = ["Share", "connected", "fair_share"]

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
    _set_environ(is_local=is_local)
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


def _set_environ(*, is_local: bool) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if is_local and "RAY_AUTH_MODE" not in os.environ:
        # A token for this run only; otherwise Ray stores one in the user's home.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))


def _connect(address: str, *, is_local: bool) -> None:
    import ray

    of_local = {"include_dashboard": False, "object_store_memory": _STORE} if is_local else {}
    try:
        ray.init(address, log_to_driver=False, configure_logging=False, **of_local)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UsageError(
            f"Ray cannot be used ({address}): {said}",
            hint="If it asks for a token, set RAY_AUTH_MODE=token. Without RAY_ADDRESS one is started.",
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
    there: Mapping[str, float], workers: int, cpus: float | None, gpus: float | None, *, is_cpu: bool
) -> Share:
    """Return the share of each worker: as requested, otherwise an equal part of `there`, at most one.

    Raises UsageError if the nodes have too few CPUs or GPUs.
    """
    has_cpus, has_gpus = there.get("CPU", 0.0), 0.0 if is_cpu else there.get("GPU", 0.0)
    share = Share(
        _part(has_cpus, workers) if cpus is None else cpus, _part(has_gpus, workers) if gpus is None else gpus
    )
    for key, each, has in (
        ("worker_cpus", share.cpus, has_cpus),
        ("worker_gpus", share.gpus, has_gpus),
    ):
        if each * workers > has:
            raise UsageError(
                f"{workers} workers with `{key}` = {each:g} need {each * workers:g}; Ray has {has:g}.",
                hint=f"Lower `workers` or `{key}`; fractions such as 0.5 are fine.",
            )
    return share


def _part(there: float, workers: int) -> float:
    """Return an equal part, at most 1, rounded down to Ray's precision of 0.0001."""
    return min(1.0, int(there / workers * 10_000) / 10_000)
