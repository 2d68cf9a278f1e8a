"""Fetches models from the hub: permission, the question about large models, and the progress bar."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.filesize import decimal

from gencli.cli.terminal.interrupts import interrupts
from gencli.cli.terminal.render import confirm
from gencli.cli.terminal.stderr import Stderr
from gencli.config.named_models import named_models
from gencli.config.settings import Settings
from gencli.errors import ModelError
from gencli.models.files.local_models import (
    BUNDLED,
    HubName,
    absent,
    endpoint,
    find_gguf,
    find_snapshot,
    full_name,
    is_offline,
    missing_files,
    near_names,
    read_hub_name,
)
from gencli.runtime.machine import quiet_libraries
from gencli.units import clock
from processors.registry import Registry

if TYPE_CHECKING:
    from gencli.models.files.hub_download import FetchPlan

__all__ = ["fetch_models", "fetch_with_progress", "is_incomplete", "refuse_offline"]

_LARGE = 10 * 10**9  # bytes; a larger download has to be confirmed


def fetch_models(settings: Settings, registry: Registry | None, voice: Stderr) -> bool:
    """Fetch the models of the settings that are missing on this machine. Return whether any was fetched.

    Raises ModelError for a missing model if stderr is no terminal and --download is not given, and with
    --offline or --tp.
    """
    fetched = False
    with_code = settings["trust_remote_code"]
    for name in dict.fromkeys(named_models(settings, registry).values()):
        target = full_name(name)
        hub = None if target in BUNDLED or Path(target).is_dir() else read_hub_name(target)
        if hub is None or not is_incomplete(hub, with_code=with_code):
            continue
        _require_permission(name, hub, settings, voice)
        with interrupts(), quiet_libraries(is_on=not settings["debug"]):
            fetch_with_progress(hub, voice, with_code=with_code, is_asked=settings["download"])
        fetched = True
    return fetched


def is_incomplete(name: HubName, *, with_code: bool) -> bool:
    """Return whether files of a model are missing in the hub's cache."""
    if name.gguf:
        return find_gguf(name) is None
    folder = find_snapshot(name)
    return folder is None or bool(missing_files(folder, with_code=with_code))


def _require_permission(name: str, hub: HubName, settings: Settings, voice: Stderr) -> None:
    """Raise ModelError unless a missing model may be fetched: by --download, or a person at a terminal."""
    folder = None if hub.gguf else find_snapshot(hub)
    lacks = ", ".join(missing_files(folder, with_code=settings["trust_remote_code"])) if folder else ""
    label = name if name == str(hub) else f"{name} ({hub})"
    state = f"{label} is here only in part: it lacks {lacks}" if lacks else f"{label} is not on this machine"
    pull = f"gencli models pull {hub}"
    if "/" not in name and not settings["download"] and near_names(name):
        raise absent(name)  # probably a misspelt local name, so the hub is not asked
    if settings["offline"]:
        raise ModelError(f"{state}, and {settings.name('offline')} is given.", hint=f"{pull} fetches it.")
    refuse_offline(state)
    if settings["tp"] is not None:  # each process of --tp would fetch it
        raise ModelError(f"{state}.", hint=f"With --tp it has to be here before: {pull}")
    if settings["download"]:
        return
    if not voice.has_reader:
        raise ModelError(f"{state}.", hint=f"--download fetches it; so does {pull}")


def refuse_offline(what: str) -> None:
    """Raise ModelError if an environment variable keeps the libraries offline. `what` starts the message."""
    if variable := is_offline():
        raise ModelError(f"{what}, and {variable} allows no network.", hint="Unset it for this command.")


def fetch_with_progress(name: HubName, voice: Stderr, *, with_code: bool, is_asked: bool) -> Path:
    """Fetch a model, show the progress, and return its folder.

    `is_asked`: the user requested this download, so a large model needs no confirmation. Raises ModelError if
    the user declines, or cannot be asked.
    """
    from gencli.models.files.hub_download import fetch, plan_fetch

    plan = plan_fetch(name, with_code=with_code)
    if plan.is_complete:
        voice.say(f"{name} is up to date ({plan.listing.commit[:12]}).")
        return fetch(plan)
    here = plan.size - plan.todo
    text = f"{name}: {decimal(plan.size)} in {len(plan.files)} files from {urlsplit(endpoint()).hostname}"
    voice.say(text + (f", {decimal(here)} of it is here" if here else ""))
    if plan.todo >= _LARGE and not is_asked:
        _ask(name, plan)
    start = time.monotonic()
    bar = voice.loading(str(name), "Fetching") if voice.has_drawing else nullcontext()
    with bar as on_bytes:
        folder = fetch(plan, on_bytes)
    voice.say(f"Fetched {decimal(plan.todo)} in {clock(time.monotonic() - start)}.")
    return folder


def _ask(name: HubName, plan: FetchPlan) -> None:
    """Ask whether to fetch the plan's missing bytes.

    Raises ModelError if the user declines, or cannot be asked.
    """
    answer = confirm(f"Fetch {decimal(plan.todo)}?")
    if answer is None:
        raise ModelError(
            f"{name} takes {decimal(plan.todo)}, and stdin is no terminal to confirm it.",
            hint="--download fetches it.",
        )
    if not answer:
        raise ModelError(f"{name} is not fetched.", hint="A smaller or quantized model takes less.")
