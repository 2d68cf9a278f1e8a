"""Input and output of a slash command: CommandContext, read-only values besides the chat, and Reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gencli.chat.show import Row
from gencli.chat.state import Chat
from gencli.core.events import Finish
from gencli.errors import UsageError
from gencli.text.tokenizer import Tokenizer

__all__ = ["CommandContext", "Reply"]


def _unexplained(chat: Chat, position: int | None) -> str:
    raise UsageError("There is no answer yet.")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Values that commands read, besides the chat.

    `context`: context length in tokens. `answers`: Finish events of the answers since the start. `explain`
    returns the explanation of the chat's last answer, or of its token at a position.
    """

    tokenizer: Tokenizer
    context: int
    describe_chain: Callable[[Chat], str]
    answers: tuple[Finish, ...] = ()
    explain: Callable[[Chat, int | None], str] = _unexplained


@dataclass(frozen=True, slots=True)
class Reply:
    """The next chat, a message or a table, a draft for the input line, and whether the chat has ended.

    `is_edit`: the next turn replaces the last one. `has_keys`: the message may name options by keys in
    backticks, as rows do.
    """

    chat: Chat
    text: str = ""
    rows: tuple[Row, ...] = ()
    draft: str = ""
    is_edit: bool = False
    is_over: bool = False
    has_keys: bool = False
