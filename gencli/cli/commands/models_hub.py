"""`gencli models pull`, `rm` and `alias`: models of the hub get here and go, and get names of your own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from gencli.cli.fetching import fetch_shown, refuse_offline
from gencli.cli.terminal.interrupts import interrupts
from gencli.cli.terminal.render import confirm
from gencli.cli.terminal.stderr import Stderr
from gencli.config.environment import environment_layer
from gencli.errors import ModelError, UsageError
from gencli.hub.cache import Cached, disk_bytes, hub_cache
from gencli.hub.names import HubName, read_hub_name
from gencli.models.files.locate import BUNDLED, add_alias, alias_file, full_name, read_aliases, remove_alias
from gencli.runtime.quiet import quiet_libraries
from gencli.units import size

__all__ = ["Shown", "alias", "cache_line", "partial_json", "partial_line", "pull", "remove"]

Shown = tuple[Any, str]  # as JSON, and as text


def pull(names: Sequence[str], values: Mapping[str, Any]) -> Shown:
    """Fetch a model, or what is new of it."""
    name = _hub_name(names, "pull")
    if environment_layer(os.environ).values.get("offline"):
        raise ModelError(
            f"{name} cannot be fetched: GENCLI_OFFLINE is set.", hint="Unset it for this command."
        )
    refuse_offline(f"{name} cannot be fetched")
    with interrupts(), quiet_libraries(is_on=not values["debug"]):
        folder = fetch_shown(
            name, Stderr(is_quiet=False), with_code=values["trust_remote_code"], is_asked=True
        )
    record = {"name": str(name), "folder": str(folder), "revision": folder.name}
    return record, f"{folder}\n"


def remove(names: Sequence[str], values: Mapping[str, Any]) -> Shown:
    """Remove a model, or one revision of it, from the hub's cache."""
    from gencli.hub.removal import plan_removal

    name = _hub_name(names, "rm")
    with quiet_libraries(is_on=not values["debug"]):
        removal = plan_removal(name, is_whole="@" not in full_name(names[0]))
        if not values["yes"]:
            answer = confirm(f"Remove {name} and free {size(removal.freed)}?")
            if answer is None:
                raise UsageError(f"{name} takes {size(removal.freed)}.", hint="--yes removes it.")
            if not answer:
                raise UsageError(f"{name} stays.")
        removal.execute()
    return {
        "name": str(name),
        "freed_bytes": removal.freed,
    }, f"Removed {name}: {size(removal.freed)} freed.\n"


def alias(names: Sequence[str], values: Mapping[str, Any]) -> Shown:
    """List the aliases, show or forget one, or make one."""
    match names, values["remove"]:
        case ([], False):
            found = read_aliases()
            text = "".join(f"{name}: {target}\n" for name, target in found.items())
            return found, text or f"There are no aliases; {alias_file()} would keep them.\n"
        case ([name], True):
            target = remove_alias(name)
            return {name: target}, f"{name} is {target} no longer.\n"
        case ([name], False):
            found = read_aliases()
            if name not in found:
                raise UsageError(
                    f"There is no alias {name!r}.", hint="gencli models alias NAME TARGET makes one."
                )
            return {name: found[name]}, f"{name}: {found[name]}\n"
        case ([name, target], False):
            target = add_alias(name, target, BUNDLED)
            return {name: target}, f"{name} is {target} from now on.\n"
    raise UsageError("models alias takes a name and what it stands for; --remove takes a name alone.")


def partial_line(found: Cached) -> str:
    """What a model that is here only in part lacks."""
    if found.folder is None:
        what = f"{size(disk_bytes(found.place))} so far"
    else:
        what = f"lacks {_some(found.missing)}"
    return f"{found.name}: partial, {what}; gencli models pull {found.name} goes on\n"


def partial_json(found: Cached) -> dict[str, Any]:
    """The same for programs."""
    head = {"name": found.name, "source": "hub", "partial": True, "missing": list(found.missing)}
    return {**head, "unfinished_bytes": found.unfinished, "disk_bytes": disk_bytes(found.place)}


def cache_line(count: int) -> str:
    """Where the hub's cache is, and its room."""
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
            f"models {word} takes one model.", hint="Name it as in org/name or org/name@revision."
        )
    if names[0] in BUNDLED:
        raise UsageError(f"{names[0]} comes with gencli and is no model of the hub.")
    name = read_hub_name(full_name(names[0]))
    if name is None:
        raise ModelError(
            f"{names[0]!r} is no name of the hub.", hint="They are written org/name or org/name@revision."
        )
    return name
