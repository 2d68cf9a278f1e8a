"""Models of the hub: permission, the question about large models and the progress bar of a fetch; `gencli
models pull`, `rm` and `alias`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.filesize import decimal

from gencli.cli.render import confirm
from gencli.cli.stderr import Stderr, interrupts
from gencli.config.job_parts import named_models
from gencli.config.settings import Settings, environment_layer
from gencli.core.request import BUILT_IN_DRAFTERS, NO_DRAFTER
from gencli.errors import ModelError, UsageError
from gencli.helpers import clock, counted, size
from gencli.models.files import local_models as local
from gencli.models.files.local_models import (
    BUNDLED,
    HubName,
    find_gguf,
    find_local,
    find_snapshot,
    read_aliases,
)
from gencli.runtime.machine import quiet_libraries
from processors.registry import Registry

_LARGE = 10 * 10**9  # bytes; a larger download has to be confirmed


def fetch_models(settings: Settings, registry: Registry | None, stderr: Stderr) -> bool:
    """Fetch the models of the settings that are missing on this machine. Return whether any was fetched.

    Raises ModelError for a missing model if stderr is no terminal and --download is not given, and with
    --offline or --tp.
    """
    was_fetched, with_code = False, settings["trust_remote_code"]
    for name in dict.fromkeys(named_models(settings, registry).values()):
        target = local.full_name(name)
        hub = None if target in BUNDLED or Path(target).is_dir() else local.read_hub_name(target)
        if hub is None or not is_incomplete(hub, with_code=with_code):
            continue
        _require_permission(name, hub, settings, stderr)
        with interrupts(), quiet_libraries(is_on=not settings["debug"]):
            fetch_with_progress(hub, stderr, with_code=with_code, is_asked=settings["download"])
        was_fetched = True
    return was_fetched


def is_incomplete(name: HubName, *, with_code: bool) -> bool:
    """Return whether files of a model are missing in the hub's cache."""
    if name.gguf:
        return find_gguf(name) is None
    folder = find_snapshot(name)
    return folder is None or bool(local.missing_files(folder, with_code=with_code))


def _require_permission(name: str, hub: HubName, settings: Settings, stderr: Stderr) -> None:
    """Raise ModelError unless a missing model may be fetched: by --download, or a person at a terminal."""
    folder = None if hub.gguf else find_snapshot(hub)
    lacks = ", ".join(local.missing_files(folder, with_code=settings["trust_remote_code"])) if folder else ""
    label = name if name == str(hub) else f"{name} ({hub})"
    state = f"{label} is not on this machine"
    if lacks:
        state = f"{label} is incomplete on this machine: it lacks {lacks}"
    pull = f"gencli models pull {hub}"
    if "/" not in name and not settings["download"] and local.near_names(name):
        raise local.absent(name)  # probably a misspelt local name, so the hub is not asked
    if settings["offline"]:
        raise ModelError(f"{state}, and {settings.name('offline')} is given.", hint=f"{pull} fetches it.")
    refuse_offline(state)
    if settings["tp"] is not None:  # each process of --tp would fetch it
        raise ModelError(f"{state}.", hint=f"With --tp it has to be on this machine first: {pull}")
    if not settings["download"] and not stderr.has_reader:
        raise ModelError(f"{state}.", hint=f"--download fetches it; so does {pull}")


def refuse_offline(fault: str) -> None:
    """Raise ModelError if an environment variable keeps the libraries offline. `fault` starts the message."""
    if variable := local.is_offline():
        raise ModelError(f"{fault}, and {variable} allows no network.", hint="Unset it for this command.")


def fetch_with_progress(name: HubName, stderr: Stderr, *, with_code: bool, is_asked: bool) -> Path:
    """Fetch a model, show the progress, and return its folder.

    `is_asked`: the user requested this download, so a large model needs no confirmation. Raises ModelError if
    the user declines, or cannot be asked.
    """
    from gencli.models.files.hub_download import fetch, plan_fetch

    plan = plan_fetch(name, with_code=with_code)
    if plan.is_complete:
        stderr.say(f"{name} is up to date ({plan.listing.commit[:12]}).")
        return fetch(plan)
    here = plan.size - plan.todo
    files = f"{decimal(plan.size)} in {counted(len(plan.files), 'file')}"
    text = f"{name}: {files} from {urlsplit(local.endpoint()).hostname}"
    stderr.say(text + (f", {decimal(here)} of it is here" if here else ""))
    if plan.todo >= _LARGE and not is_asked:
        answer = confirm(f"Fetch {decimal(plan.todo)}?")
        if answer is None:
            message = f"{name} takes {decimal(plan.todo)}, and stdin is no terminal to confirm it."
            raise ModelError(message, hint="--download fetches it.")
        if not answer:
            raise ModelError(f"{name} is not fetched.", hint="A smaller or quantized model takes less.")
    start = time.monotonic()
    bar = stderr.loading(str(name), "Fetching") if stderr.has_drawing else nullcontext()
    with bar as on_bytes:
        folder = fetch(plan, on_bytes)
    stderr.say(f"Fetched {decimal(plan.todo)} in {clock(time.monotonic() - start)}.")
    return folder


CommandOutput = tuple[Any, str]  # the result of a subcommand, as JSON values and as text


def pull(names: Sequence[str], values: Mapping[str, Any]) -> CommandOutput:
    """Fetch a model, or its missing and changed files. Raises ModelError if the network is not allowed."""
    name = _hub_name(names, "pull")
    if environment_layer(os.environ).values.get("offline"):
        message = f"{name} cannot be fetched: GENCLI_OFFLINE is set."
        raise ModelError(message, hint="Unset it for this command.")
    refuse_offline(f"{name} cannot be fetched")
    stderr, with_code = Stderr(is_quiet=False), values["trust_remote_code"]
    with interrupts(), quiet_libraries(is_on=not values["debug"]):
        folder = fetch_with_progress(name, stderr, with_code=with_code, is_asked=True)
    path = find_gguf(name) if name.gguf else folder
    return {"name": str(name), "folder": str(path), "revision": folder.name}, f"{path}\n"


def remove(names: Sequence[str], values: Mapping[str, Any]) -> CommandOutput:
    """Remove a model, or one revision of it, from the hub's cache.

    Asks first, unless --yes is given. Raises UsageError if the user declines, or cannot be asked.
    """
    target = read_aliases().get(names[0]) if len(names) == 1 else None
    if target is not None and find_local(target) == Path(target).expanduser():
        raise UsageError(
            f"{names[0]} is an alias of {target}, which is not in the hub's cache, so models rm leaves it.",
            hint=f"gencli models alias --remove {names[0]} forgets the name.",
        )
    name = _hub_name(names, "rm")
    if name.gguf:
        hint = f"gencli models rm {replace(name, gguf='')} removes the whole model."
        raise UsageError(f"models rm removes whole models, and {name} is one file.", hint=hint)
    with quiet_libraries(is_on=not values["debug"]):
        removal = local.plan_removal(name, is_whole="@" not in local.full_name(names[0]))
        if not values["yes"]:
            answer = confirm(f"Remove {name} and free {size(removal.freed)}?")
            if answer is None:
                raise UsageError(f"{name} takes {size(removal.freed)}.", hint="--yes removes it.")
            if not answer:
                raise UsageError(f"{name} is not removed.")
        removal.execute()
    record = {"name": str(name), "freed_bytes": removal.freed}
    return record, f"Removed {name}: {size(removal.freed)} freed.\n"


def alias(names: Sequence[str], values: Mapping[str, Any]) -> CommandOutput:
    """List the aliases, or show, remove or add one. Raises UsageError for an unknown alias."""
    match names, values["remove"]:
        case ([], False):
            aliases = read_aliases()
            text = "".join(f"{name}: {target}\n" for name, target in aliases.items())
            return aliases, text or f"There are no aliases; their file is {local.alias_file()}.\n"
        case ([name], True):
            target = local.remove_alias(name)
            return {name: target}, f"The alias {name} of {target} is removed.\n"
        case ([name], False):
            aliases = read_aliases()
            if name not in aliases:
                hint = "gencli models alias NAME TARGET makes one."
                raise UsageError(f"There is no alias {name!r}.", hint=hint)
            return {name: aliases[name]}, f"{name}: {aliases[name]}\n"
        case ([name, target], False):
            target = local.add_alias(name, target, taken=(*BUILT_IN_DRAFTERS, NO_DRAFTER))
            return {name: target}, f"{name} is now an alias of {target}.\n"
    raise UsageError("models alias takes a name and its target; --remove takes a name alone.")


def partial_line(model: local.Cached) -> str:
    """Return a line about a partial download: its missing files, or its size so far."""
    count = len(model.missing)
    if model.folder is None:
        state = f"{size(local.disk_bytes(model.place))} so far"
    else:
        state = "lacks " + (f"{count} files, such as " if count != 1 else "") + model.missing[0]
    return f"{model.name}: partial, {state}; gencli models pull {model.name} fetches the rest\n"


def partial_json(model: local.Cached) -> dict[str, Any]:
    """Return a partial download as JSON values."""
    head = {"name": model.name, "source": "hub", "partial": True, "missing": list(model.missing)}
    return {**head, "unfinished_bytes": model.unfinished, "disk_bytes": local.disk_bytes(model.place)}


def cache_line(count: int) -> str:
    """Return a line with the path of the hub's cache, its number of models, and used and free bytes."""
    cache = local.hub_cache()
    if not cache.is_dir():
        return f"The hub's cache is {cache}; it is empty.\n"
    used, free = local.disk_bytes(cache), shutil.disk_usage(cache).free
    return f"The hub's cache is {cache}: {counted(count, 'model')}, {size(used)}, {size(free)} free.\n"


def _hub_name(names: Sequence[str], word: str) -> HubName:
    if len(names) != 1:
        hint = "Name it as in org/name, org/name@revision or org/name:Q4_0."
        raise UsageError(f"models {word} takes one model.", hint=hint)
    if names[0] in BUNDLED:
        raise UsageError(f"{names[0]} is bundled with gencli, and is not a model of the hub.")
    name = local.read_hub_name(local.full_name(names[0]))
    if name is None:
        hint = "Names are written org/name, org/name@revision or org/name:Q4_0."
        raise ModelError(f"{names[0]!r} is not the name of a model of the hub.", hint=hint)
    return name
