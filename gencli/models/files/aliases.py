"""User-defined model names: `aliases.json` in the user's configuration folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gencli.config.options.drafts import BUILT_IN, NO_DRAFTER
from gencli.errors import ConfigError, UsageError
from gencli.files import read_file, replaced
from gencli.hub.names import read_hub_name

__all__ = ["add_alias", "alias_file", "read_aliases", "remove_alias"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_BYTES = 2**20  # of the file


def alias_file() -> Path:
    """Return the path of the alias file."""
    from platformdirs import user_config_path

    return user_config_path("gencli") / "aliases.json"


def read_aliases() -> dict[str, str]:
    """Return the target of each alias. Raises ConfigError for a malformed file."""
    path = alias_file()
    if not path.is_file():
        return {}
    try:
        found: Any = json.loads(read_file(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(target, str) for target in found.values()):
        raise ConfigError(
            f"{path} holds no aliases.", hint='It is a JSON object of texts, as in {"small": "org/name"}.'
        )
    return {name: target for name, target in found.items() if _NAME.fullmatch(name)}


def add_alias(name: str, target: str, bundled: tuple[str, ...]) -> str:
    """Add an alias for a hub name or a folder; return the target. `bundled` names cannot be redefined.

    Raises UsageError for a name that is already in use, and for a target that is no model name.
    """
    aliases = read_aliases()
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be an alias.", hint="Letters, digits, dots, dashes, underscores.")
    if name in (*bundled, *BUILT_IN, NO_DRAFTER):
        raise UsageError(f"{name} means something else already.", hint="Take another name.")
    if target in bundled:
        raise UsageError(f"{target} comes with gencli and needs no other name.")
    if target in aliases:
        raise UsageError(f"{target} is itself an alias.", hint=f"Give what it stands for: {aliases[target]}")
    if other := next((alias for alias, old in aliases.items() if old == name), None):
        raise UsageError(f"The alias {other} stands for {name}.", hint="Take another name.")
    path = Path(os.path.expanduser(target))
    if path.is_dir():
        target = str(path.resolve())
    elif read_hub_name(target) is None:
        raise UsageError(f"{target!r} is neither a folder nor the name of a model.")
    _write({**aliases, name: target})
    return target


def remove_alias(name: str) -> str:
    """Remove an alias; return its target. Raises UsageError for an unknown alias."""
    aliases = read_aliases()
    if name not in aliases:
        raise UsageError(f"There is no alias {name!r}.", hint="gencli models alias lists them.")
    target = aliases.pop(name)
    _write(aliases)
    return target


def _write(aliases: Mapping[str, str]) -> None:
    path = alias_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as file:
            file.write(json.dumps(dict(sorted(aliases.items())), indent=2).encode() + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
