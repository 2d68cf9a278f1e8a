"""What the process that renders templates is told, what it answers, and its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MAX_CHAT", "MAX_MEMORY", "MAX_PROMPT", "SECONDS", "Order", "Rendered"]

MAX_CHAT = 2**24  # characters of a rendered conversation
MAX_PROMPT = 2**20  # characters of a rendered prompt
MAX_MEMORY = 512 << 20  # bytes that the process may take in addition to what it starts with
SECONDS = 5.0  # of wall-clock time for one rendering


@dataclass(frozen=True, slots=True)
class Order:
    """A template and the variables it is rendered with; None only checks its syntax.

    `is_chat` takes the environment of chat templates, else that of prompts. `limit` is in characters.
    """

    template: str
    variables: Mapping[str, Any] | None
    is_chat: bool
    limit: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text, or what is wrong with the template; `line` is given for wrong syntax.

    `is_undefined` says that it names a variable that there is not. `names` are the variables of a template
    whose syntax was checked, sorted.
    """

    text: str = ""
    error: str = ""
    line: int = 0
    is_undefined: bool = False
    names: tuple[str, ...] = ()
