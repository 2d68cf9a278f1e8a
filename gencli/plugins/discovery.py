"""Find plugins in installed packages and on the command line, without importing them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import entry_points

from gencli.errors import UsageError

__all__ = [
    "DRAFTERS",
    "GROUP",
    "SWITCH",
    "Plugin",
    "installed_plugins",
    "parse_plugin",
]

GROUP, DRAFTERS = "gencli.processors", "gencli.drafters"
SWITCH = "GENCLI_NO_PLUGINS"


@dataclass(frozen=True, slots=True)
class Plugin:
    """Location of a stage or drafter: a file or a module, and an attribute in it.

    `source`: shown in messages; package and version, or the text that was typed. `name`: name of the entry
    point, which has to equal the name of the stage or drafter.
    """

    source: str
    path: str = ""
    module: str = ""
    attribute: str = ""
    name: str = ""


def installed_plugins(group: str = GROUP) -> tuple[Plugin, ...]:
    """Return the entry points of installed packages; () if GENCLI_NO_PLUGINS is set."""
    if os.environ.get(SWITCH, "0") not in ("", "0"):
        return ()
    return tuple(
        Plugin(
            source=f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value,
            module=entry.module,
            attribute=entry.attr,
            name=entry.name,
        )
        for entry in entry_points(group=group)
    )


def parse_plugin(text: str) -> Plugin:
    """Parse path.py, path.py:Name or module:Name. Raises UsageError."""
    if text.endswith(".py"):
        return Plugin(text, path=text)
    head, _, attribute = text.rpartition(":")
    if not head or not attribute.isidentifier():
        raise UsageError(
            f"`plugin` = {text!r} is not of the form path.py, path.py:Class or module:Class.",
            hint="A module needs the name of the class in it.",
        )
    if head.endswith(".py"):
        return Plugin(text, path=head, attribute=attribute)
    return Plugin(text, module=head, attribute=attribute)
