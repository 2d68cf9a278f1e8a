"""`gencli models pull`, `rm` and `alias`: fetch and remove models of the hub, and name models."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gencli.cli.fetching import fetch_with_progress, refuse_offline
from gencli.cli.terminal.interrupts import interrupts
from gencli.cli.terminal.render import confirm
from gencli.cli.terminal.stderr import Stderr
from gencli.config.environment import environment_layer
from gencli.errors import ModelError, UsageError
from gencli.models.files.local_models import (
    BUNDLED,
    Cached,
    HubName,
    add_alias,
    alias_file,
    disk_bytes,
    find_gguf,
    find_local,
    full_name,
    hub_cache,
    read_aliases,
    read_hub_name,
    remove_alias,
)
from gencli.runtime.machine import quiet_libraries
from gencli.units import size

__all__ = ["Output", "alias", "cache_line", "partial_json", "partial_line", "pull", "remove"]

Output = tuple[Any, str]  # the result of a subcommand, as JSON values and as text


def pull(names: Sequence[str], values: Mapping[str, Any]) -> Output:
    """Fetch a model, or its missing and changed files. Raises ModelError if the network is not allowed."""
    name = _hub_name(names, "pull")
    if environment_layer(os.environ).values.get("offline"):
        raise ModelError(
            f"{name} cannot be fetched: GENCLI_OFFLINE is set.", hint="Unset it for this command."
        )
    refuse_offline(f"{name} cannot be fetched")
    with interrupts(), quiet_libraries(is_on=not values["debug"]):
        folder = fetch_with_progress(
            name, Stderr(is_quiet=False), with_code=values["trust_remote_code"], is_asked=True
        )
    if name.gguf:
        file = find_gguf(name)
        return {"name": str(name), "folder": str(file), "revision": folder.name}, f"{file}\n"
    record = {"name": str(name), "folder": str(folder), "revision": folder.name}
    return record, f"{folder}\n"


def remove(names: Sequence[str], values: Mapping[str, Any]) -> Output:
    """Remove a model, or one revision of it, from the hub's cache.

    Asks first, unless --yes is given. Raises UsageError if the user declines, or cannot be asked.
    """
    from gencli.models.files.local_models import plan_removal

    target = read_aliases().get(names[0]) if len(names) == 1 else None
    if target is not None and find_local(target) == Path(target).expanduser():
        raise UsageError(
            f"{names[0]} is an alias of {target}, which is not in the hub's cache: it is yours to remove.",
            hint=f"gencli models alias --remove {names[0]} forgets the name.",
        )
    name = _hub_name(names, "rm")
    if name.gguf:
        hint = f"gencli models rm {replace(name, gguf='')} removes all that is here of it."
        raise UsageError(f"models rm removes whole models, and {name} is one file.", hint=hint)
    with quiet_libraries(is_on=not values["debug"]):
        removal = plan_removal(name, is_whole="@" not in full_name(names[0]))
        if not values["yes"]:
            answer = confirm(f"Remove {name} and free {size(removal.freed)}?")
            if answer is None:
                raise UsageError(f"{name} takes {size(removal.freed)}.", hint="--yes removes it.")
            if not answer:
                raise UsageError(f"{name} is not removed.")
        removal.execute()
    return {
        "name": str(name),
        "freed_bytes": removal.freed,
    }, f"Removed {name}: {size(removal.freed)} freed.\n"


def alias(names: Sequence[str], values: Mapping[str, Any]) -> Output:
    """List the aliases, or show, remove or add one. Raises UsageError for an unknown alias."""
    match names, values["remove"]:
        case ([], False):
            aliases = read_aliases()
            text = "".join(f"{name}: {target}\n" for name, target in aliases.items())
            return aliases, text or f"There are no aliases; their file is {alias_file()}.\n"
        case ([name], True):
            target = remove_alias(name)
            return {name: target}, f"The alias {name} of {target} is removed.\n"
        case ([name], False):
            aliases = read_aliases()
            if name not in aliases:
                raise UsageError(
                    f"There is no alias {name!r}.", hint="gencli models alias NAME TARGET makes one."
                )
            return {name: aliases[name]}, f"{name}: {aliases[name]}\n"
        case ([name, target], False):
            target = add_alias(name, target, BUNDLED)
            return {name: target}, f"{name} is now an alias of {target}.\n"
    raise UsageError("models alias takes a name and what it stands for; --remove takes a name alone.")


def partial_line(found: Cached) -> str:
    """Return a line about a partial download: its missing files, or its size so far."""
    if found.folder is None:
        state = f"{size(disk_bytes(found.place))} so far"
    else:
        state = f"lacks {_some(found.missing)}"
    return f"{found.name}: partial, {state}; gencli models pull {found.name} goes on\n"


def partial_json(found: Cached) -> dict[str, Any]:
    """Return a partial download as JSON values."""
    head = {"name": found.name, "source": "hub", "partial": True, "missing": list(found.missing)}
    return {**head, "unfinished_bytes": found.unfinished, "disk_bytes": disk_bytes(found.place)}


def cache_line(count: int) -> str:
    """Return a line with the path of the hub's cache, its number of models, and used and free bytes."""
    cache = hub_cache()
    if not cache.is_dir():
        return f"The hub's cache is {cache}; it is empty.\n"
    used, free = disk_bytes(cache), shutil.disk_usage(cache).free
    return f"The hub's cache is {cache}: {count} models, {size(used)}, {size(free)} free.\n"


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} files, such as {names[0]}"


def _hub_name(names: Sequence[str], word: str) -> HubName:
    if len(names) != 1:
        raise UsageError(
            f"models {word} takes one model.",
            hint="Name it as in org/name, org/name@revision or org/name:Q4_0.",
        )
    if names[0] in BUNDLED:
        raise UsageError(f"{names[0]} comes with gencli and is no model of the hub.")
    name = read_hub_name(full_name(names[0]))
    if name is None:
        raise ModelError(
            f"{names[0]!r} is no name of the hub.",
            hint="They are written org/name, org/name@revision or org/name:Q4_0.",
        )
    return name
