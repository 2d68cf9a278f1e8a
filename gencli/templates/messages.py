"""Messages to and from the process that renders templates, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MAX_CHAT", "MAX_MEMORY", "MAX_PROMPT", "SECONDS", "Order", "Rendered"]

MAX_CHAT = 2**24  # characters of a rendered conversation
MAX_PROMPT = 2**20  # characters of a rendered prompt
MAX_MEMORY = 512 << 20  # bytes that the process may allocate after its start
SECONDS = 5.0  # seconds of wall-clock time for one rendering


@dataclass(frozen=True, slots=True)
class Order:
    """A template and its variables; variables of None only check the syntax.

    `is_chat`: use the environment of chat templates instead of that of prompts. `limit`: maximum length of
    the result in characters.
    """

    template: str
    variables: Mapping[str, Any] | None
    is_chat: bool
    limit: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """The rendered text, or the error and, for wrong syntax, its line.

    `is_undefined`: the template uses a variable without a value. `names`: the sorted variables of a template
    whose syntax was checked.
    """

    text: str = ""
    error: str = ""
    line: int = 0
    is_undefined: bool = False
    names: tuple[str, ...] = ()
