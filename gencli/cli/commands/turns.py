"""Readers of a chat's turns: a terminal with history and editing, or lines of stdin."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gencli.cli.terminal.render import prompt
from gencli.errors import UsageError
from gencli.files import MAX_PROMPT, open_regular
from gencli.text.escapes import escape_controls

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings

__all__ = ["LineReader", "Offer", "Reader", "TerminalReader", "open_reader"]

_PROMPT = "> "
_EMOJI = "\u2764"
Offer = Callable[[str], tuple[str, list[str]]]  # returns the last word of a line and its completions


class Reader(Protocol):
    """Interface that reads a chat's turns.

    `is_live`: a person types them, and the chat continues after an error.
    """

    is_live: bool

    def read(self, draft: str = "") -> str | None:
        """Return the next turn, None at the end. `draft` is the initial text of the input line."""
        ...


class LineReader:
    """Reads one turn a line from stdin: from a pipe, or from a terminal if stdout is not one."""

    def __init__(self) -> None:
        if sys.stdin is None:
            raise UsageError("stdin is closed.", hint="gencli chat reads its turns from it.")
        self.is_live = sys.stdin.isatty()
        self._count = 0

    def read(self, draft: str = "") -> str | None:
        """Return the next line without its line end, None at the end.

        Raises UsageError for a line that is too long or not UTF-8, and for a draft without a terminal.
        """
        if draft and not self.is_live:
            raise UsageError("/edit needs the new words after it where there is no terminal.")
        if self.is_live:
            prompt(_PROMPT)
        self._count += 1
        data = sys.stdin.buffer.readline(MAX_PROMPT + 1)
        if len(data) > MAX_PROMPT:
            raise UsageError(f"Line {self._count} of stdin has more than {MAX_PROMPT:,} bytes.")
        try:
            return data.decode("utf-8-sig").rstrip("\r\n") if data else None
        except UnicodeDecodeError:
            raise UsageError(f"Line {self._count} of stdin is not UTF-8 text.") from None


class TerminalReader:
    """Reads turns with prompt_toolkit: line editing, completion, and the history of earlier chats."""

    is_live = True

    def __init__(self, offer: Offer) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.layout.screen import Char

        Char.display_mappings = _DisplayMappings(Char.display_mappings)
        path = _history_file()
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(path)) if path else InMemoryHistory(),
            completer=_completer(offer),
            complete_while_typing=False,
            key_bindings=_new_line_keys(),
            prompt_continuation=" " * len(_PROMPT),
        )

    def read(self, draft: str = "") -> str | None:
        """Return the typed text, "" for Ctrl-C, None for Ctrl-D."""
        try:
            return self._session.prompt(_PROMPT, default=draft)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None


class _DisplayMappings(dict[str, str]):
    """prompt_toolkit's table of display forms of control characters, extended by format characters (Cf)."""

    def __contains__(self, char: object) -> bool:
        return super().__contains__(char) or self[str(char)] != char

    def __missing__(self, char: str) -> str:
        # The character before a joiner is unknown here; an emoji keeps the joiner.
        return escape_controls(char, before=_EMOJI)


def _completer(offer: Offer) -> Completer:
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.document import Document

    class Words(Completer):
        """Yields the completions of the last word."""

        def get_completions(self, document: Document, _: object) -> Iterator[Completion]:
            word, completions = offer(document.text_before_cursor)
            yield from (Completion(text, start_position=-len(word)) for text in completions)

    return Words()


def _new_line_keys() -> KeyBindings:
    """Return key bindings for Alt-Enter and Ctrl-J, which insert a line break."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def open_reader(offer: Offer) -> Reader:
    """Return a TerminalReader if stdin and stdout are terminals, otherwise a LineReader."""
    is_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    return TerminalReader(offer) if is_terminal else LineReader()


def _history_file() -> Path | None:
    """Return the path of the user's history, None if it is not writable."""
    from platformdirs import user_state_path

    path = user_state_path("gencli") / "chat-history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            open_regular(path).close()  # a pipe without a reader would block
        path.open("a", encoding="utf-8").close()
    except OSError:
        return None
    return path
