"""What can go wrong with the hub: what is worth another try, and what a person is told."""

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
    HTTPError,  # the base of all that the HTTP client raises
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from gencli.errors import ModelError
from gencli.hub.cache import endpoint
from gencli.hub.names import HubName

__all__ = ["FAILURES", "TRIES", "explain", "patiently", "pause"]

T = TypeVar("T")
FAILURES = (HTTPError, OfflineModeIsEnabled)
TRIES = 4
_PAUSE, _LONGEST = 0.5, 60.0  # seconds: after the first failure, and at most if the hub asks for more
_PASSING = (408, 429, 500, 502, 503, 504)


def patiently(call: Callable[[], T]) -> T:
    """Return the result of a request, tried again after failures that pass."""
    for attempt in range(TRIES - 1):
        try:
            return call()
        except FAILURES as error:
            seconds = pause(error, attempt)
            if seconds is None:
                raise
            time.sleep(seconds)
    return call()


def pause(error: Exception, attempt: int) -> float | None:
    """Seconds to wait before another try; None where that would not help."""
    if isinstance(error, OfflineModeIsEnabled):
        return None
    wanted: float = _PAUSE * 2**attempt
    if isinstance(error, HfHubHTTPError):
        if error.response.status_code not in _PASSING:
            return None
        asked = error.response.headers.get("Retry-After", "")
        wanted = max(wanted, float(asked)) if asked.isdecimal() else wanted
    return wanted if wanted <= _LONGEST else None


def explain(error: Exception, name: HubName) -> ModelError:
    """Return the failure as an error that says what to do. Texts of the server are not passed on."""
    host = urlsplit(endpoint()).hostname or "the hub"
    if isinstance(error, OfflineModeIsEnabled):
        return ModelError(f"{name} is not on this machine, and the libraries are offline.")
    if isinstance(error, HfHubHTTPError):
        return _refusal(error, name, host)
    return ModelError(
        f"The connection to {host} failed ({type(error).__name__.lstrip('_')}).",
        hint="What was fetched is kept: the same command goes on when the network is there again.",
    )


def _refusal(error: HfHubHTTPError, name: HubName, host: str) -> ModelError:
    status, page = error.response.status_code, f"{endpoint()}/{name.repo}"
    page = page if "@" not in endpoint() else name.repo  # an address may hold a password
    if isinstance(error, GatedRepoError):
        login = ", then log in with a token: hf auth login, or HF_TOKEN"
        return ModelError(
            f"{name.repo} is gated: its owners give access to accounts that ask for it.",
            hint=f"Ask at {page}{' with the account of your token' if _has_token() else login}.",
        )
    if isinstance(error, RevisionNotFoundError):
        return ModelError(f"{name.repo} has no revision {name.revision}.", hint=f"{page} lists them.")
    if isinstance(error, EntryNotFoundError):
        return ModelError(f"A file that {host} lists for {name} is not there.", hint="Try again later.")
    if isinstance(error, DisabledRepoError):
        return ModelError(f"{name.repo} is disabled on {host}.")
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        what = "the token that was sent is not valid" if status == 401 and _has_token() else "it is private"
        return ModelError(
            f"{host} knows no model {name.repo}, or {what}.",
            hint="Check the name. A private model needs a token: hf auth login, or HF_TOKEN.",
        )
    if status == 403:
        return ModelError(f"{host} refuses access to {name.repo}.", hint=f"{page} may say why.")
    if status == 429:
        return ModelError(f"{host} had too many requests from here.", hint="Wait some minutes, then go on.")
    kept = "What was fetched is kept: the same command goes on."
    return ModelError(f"{host} answers with an error ({status}) for {name}.", hint=kept)


def _has_token() -> bool:
    return bool(get_token())
