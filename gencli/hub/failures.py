"""Failures of the hub: which requests are retried, and the resulting error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from huggingface_hub import get_token
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,  # base class of the HTTP client's exceptions
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from gencli.errors import ModelError
from gencli.hub.cache import endpoint, hub_cache
from gencli.hub.names import HubName

__all__ = ["FAILURES", "TRIES", "explain", "retry_delay", "retrying"]

T = TypeVar("T")
FAILURES = (HTTPError, OfflineModeIsEnabled)
TRIES = 4
_DELAY, _MAX_DELAY = 0.5, 60.0  # seconds: after the first failure; limit if the hub asks for more
_TRANSIENT = (408, 429, 500, 502, 503, 504)


def retrying(call: Callable[[], T]) -> T:
    """Return the result of a request, retried after transient failures."""
    for attempt in range(TRIES - 1):
        try:
            return call()
        except FAILURES as error:
            seconds = retry_delay(error, attempt)
            if seconds is None:
                raise
            time.sleep(seconds)
    return call()


def retry_delay(error: Exception, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt; None if a retry would not help."""
    if isinstance(error, OfflineModeIsEnabled):
        return None
    delay: float = _DELAY * 2**attempt
    if isinstance(error, HfHubHTTPError):
        if error.response.status_code not in _TRANSIENT:
            return None
        header = error.response.headers.get("Retry-After", "")
        delay = max(delay, float(header)) if header.isdecimal() else delay
    return delay if delay <= _MAX_DELAY else None


def explain(error: Exception, name: HubName) -> ModelError:
    """Return the failure as a ModelError with a hint. Texts of the server are not shown."""
    host = urlsplit(endpoint()).hostname or "the hub"
    if isinstance(error, OfflineModeIsEnabled):
        return ModelError(f"{name} is not on this machine, and the libraries are offline.")
    if isinstance(error, HfHubHTTPError):
        return _refusal(error, name, host)
    return ModelError(
        f"The connection to {host} failed ({type(error).__name__.lstrip('_')}).",
        hint=_again(name),
    )


def _again(name: HubName) -> str:
    """Return the hint to run the command again, which continues if a part of the model has been fetched."""
    blobs = hub_cache() / f"models--{name.repo.replace('/', '--')}" / "blobs"
    if blobs.is_dir() and any(blobs.iterdir()):
        return "The fetched part is kept: run the same command again to continue."
    return "Nothing was fetched. Check the network, then run the same command again."


def _refusal(error: HfHubHTTPError, name: HubName, host: str) -> ModelError:
    status, page = error.response.status_code, f"{endpoint()}/{name.repo}"
    page = page if "@" not in endpoint() else name.repo  # an address may contain a password
    if isinstance(error, GatedRepoError):
        login = ", then log in with a token: hf auth login, or HF_TOKEN"
        return ModelError(
            f"{name.repo} is gated: its owners grant access to accounts on request.",
            hint=f"Request access at {page}{' with the account of your token' if _has_token() else login}.",
        )
    if isinstance(error, RevisionNotFoundError):
        return ModelError(f"{name.repo} has no revision {name.revision}.", hint=f"{page} lists them.")
    if isinstance(error, EntryNotFoundError):
        return ModelError(f"A file that {host} lists for {name} is not there.", hint="Try again later.")
    if isinstance(error, DisabledRepoError):
        return ModelError(f"{name.repo} is disabled on {host}.")
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        what = "the token is not valid" if status == 401 and _has_token() else "it is private"
        return ModelError(
            f"There is no model {name.repo} on {host}, or {what}.",
            hint="Check the name. A private model needs a token: hf auth login, or HF_TOKEN.",
        )
    if status == 403:
        return ModelError(f"{host} refuses access to {name.repo}.", hint=f"{page} may say why.")
    if status == 429:
        return ModelError(
            f"{host} has had too many requests from this address.",
            hint="Wait some minutes, then run the command again.",
        )
    return ModelError(f"{host} answered with error {status} for {name}.", hint=_again(name))


def _has_token() -> bool:
    return bool(get_token())
