"""JSON pointers (RFC 6901): the empty pointer is the whole, `/a/0` the first item of `a`."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["child", "descend", "keys_of", "shown"]

_INDEX = re.compile("0|[1-9][0-9]{0,8}")


def child(pointer: str, *keys: str | int) -> str:
    """Return the pointer of a place below another."""
    return pointer + "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def keys_of(pointer: str) -> tuple[str, ...]:
    """Return the keys of a pointer. Raises ValueError for a text that is no pointer."""
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} does not begin with a slash")
    keys = pointer[1:].split("/")
    if any("~" in key.replace("~0", "").replace("~1", "") for key in keys):
        raise ValueError(f"{pointer!r} has a ~ that is neither ~0 nor ~1")
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in keys)


def descend(value: Any, key: str) -> Any:
    """Return the value at a key. Raises KeyError if there is none."""
    if isinstance(value, dict):
        return value[key]
    if isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
        return value[int(key)]
    raise KeyError(key)


def shown(pointer: str) -> str:
    """Return the pointer as messages name it."""
    return pointer or "the root"
