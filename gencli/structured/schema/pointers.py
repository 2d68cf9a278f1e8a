"""JSON pointers (RFC 6901): the empty pointer is the whole, `/a/0` the first item of `a`."""

from __future__ import annotations

import re
from typing import Any

from processors.conditions.when import keys_of

__all__ = ["child", "descend", "keys_of", "shown"]

_INDEX = re.compile("0|[1-9][0-9]{0,8}")


def child(pointer: str, *keys: str | int) -> str:
    """Return the pointer of a place below another one."""
    return pointer + "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def descend(value: Any, key: str) -> Any:
    """Return the value at a key. Raises KeyError if there is none."""
    if isinstance(value, dict):
        return value[key]
    if isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
        return value[int(key)]
    raise KeyError(key)


def shown(pointer: str) -> str:
    """Return the pointer as messages show it."""
    return pointer or "the root"
