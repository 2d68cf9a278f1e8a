"""From the options of the server to its conditions: key, hosts, names, the texts that run at once."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gencli.config.settings import Settings
from gencli.errors import UsageError
from gencli.files import read_file
from gencli.server.conditions import Conditions
from gencli.server.limits import CallLimits
from gencli.server.security import Rules

__all__ = ["API_KEY", "conditions_of", "is_loopback", "planned_batch"]

API_KEY = "GENCLI_API_KEY"
_MAX_KEY = 4096  # bytes
_FAKE = 64  # texts of the fake model, which needs no memory


def conditions_of(own: Mapping[str, Any], settings: Settings, environ: Mapping[str, str]) -> Conditions:
    """Return what the server allows. Raises UsageError for a key that cannot be read."""
    rules = Rules(_key(own["api_key_file"], environ), tuple(own["allow_host"]), tuple(own["allow_origin"]))
    return Conditions(
        rules=rules,
        limits=CallLimits(grammar_seconds=settings["grammar_timeout"]),
        max_queue=own["max_queue"],
        queue_timeout=own["queue_timeout"],
        shutdown_timeout=own["shutdown_timeout"],
        is_lenient=own["lenient"],
    )


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


def planned_batch(settings: Settings) -> int:
    """Return how many texts of the model's whole context fit into the free memory.

    Raises UsageError for several models in memory, or a model that is not here.
    """
    for key in ("draft", "contrast", "device_map"):
        if settings.is_given(key) and settings[key] not in (None, "none"):
            raise UsageError(
                f"`max_batch` = auto plans for one model on one device, but {settings.name(key)} is given.",
                hint="Give `max_batch` a number.",
            )
    if settings["model"] == "fake":
        return _FAKE
    from gencli.models.capacity import Held, plan_capacity
    from gencli.models.files.card import read_card
    from gencli.models.files.locate import find_local

    folder = find_local(settings["model"])
    if folder is None:
        raise UsageError(f"`max_batch` = auto: {settings['model']} is not on this machine.")
    card = read_card(folder)
    planned = plan_capacity(
        (Held("", card, 2),),  # any request may be guided, and then has a second lane
        tokens=card.context or 1,
        dtype=settings["dtype"],
        kv_dtype=settings["kv_dtype"],
        device=settings["device"],
        quantize=settings["quantize"],
    )
    return planned.max_batch
