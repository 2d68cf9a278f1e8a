"""Plan of `gencli serve`: settings of each model, and conditions of the server."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gencli.batch.plan import run_variables
from gencli.config.environment import untraced
from gencli.config.layers import gather
from gencli.config.settings import Settings
from gencli.errors import UsageError
from gencli.files import read_file
from gencli.server.conditions import Conditions
from gencli.server.limits import CallLimits
from gencli.server.names import served_names
from gencli.server.options import OWN
from gencli.server.security import Rules

__all__ = ["API_KEY", "Plan", "is_loopback", "make_plan"]

API_KEY = "GENCLI_API_KEY"
_MAX_KEY = 4096  # bytes of a key file


@dataclass(frozen=True, slots=True)
class Plan:
    """`models`: settings by public name. `is_auto`: `max_batch` is planned from the free memory."""

    host: str
    port: int
    models: Mapping[str, Settings]
    conditions: Conditions
    is_auto: bool
    has_page: bool

    @property
    def settings(self) -> Settings:
        """The settings of the first model; others differ only in settings of the model itself."""
        return next(iter(self.models.values()))


def make_plan(given: Mapping[str, Any], environ: Mapping[str, str]) -> Plan:
    """Return the plan of options and variables. Raises UsageError for contradictions."""
    own = {entry.key: entry.value(given[entry.key]) if entry.key in given else entry.default for entry in OWN}
    shared = {key: value for key, value in given.items() if key not in own}
    is_auto = own["max_batch"] == "auto" or environ.get("GENCLI_MAX_BATCH") == "auto"
    if "max_batch" in given and own["max_batch"] != "auto":
        shared["max_batch"], is_auto = own["max_batch"], False
    each = [{**shared, "model": name} for name in own["model"]] or [shared]
    variables = untraced(run_variables(environ))  # traces are options of requests
    settings = [gather(values, variables, is_neutral=True) for values in each]
    names = served_names([one["model"] for one in settings], own["served_name"])
    return Plan(
        own["host"],
        own["port"],
        dict(zip(names, settings, strict=True)),
        _conditions(own, settings[0], environ),
        is_auto,
        own["open"],
    )


def _conditions(own: Mapping[str, Any], settings: Settings, environ: Mapping[str, str]) -> Conditions:
    traced = _most_traced(own, settings)
    rules = Rules(_key(own["api_key_file"], environ), tuple(own["allow_host"]), tuple(own["allow_origin"]))
    return Conditions(
        rules=rules,
        limits=CallLimits(
            grammar_seconds=settings["grammar_timeout"],
            trace=traced,
            processed=bool(traced) or settings["watermark"] == "none",
        ),
        max_queue=own["max_queue"],
        queue_timeout=own["queue_timeout"],
        shutdown_timeout=own["shutdown_timeout"],
        is_lenient=own["lenient"],
    )


def _most_traced(own: Mapping[str, Any], settings: Settings) -> int:
    """Return the largest `trace` of a request; by default 0 with a watermark."""
    if own["max_trace"] is not None:
        return int(own["max_trace"])
    return CallLimits().trace if settings["watermark"] == "none" else 0


def _key(path: str | None, environ: Mapping[str, str]) -> str:
    if path is None:
        return environ.get(API_KEY, "").strip()
    try:
        key = read_file(Path(path), _MAX_KEY).decode().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"`api_key_file` = {path} cannot be read: {reason}.") from None
    if not key:
        raise UsageError(f"`api_key_file` = {path} is empty.", hint="Write the key into it.")
    return key


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
