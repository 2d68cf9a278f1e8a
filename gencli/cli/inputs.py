"""What a person gives: the prompts of a run from arguments, files or stdin, and the turns of a chat from a
terminal with history and editing or from lines of stdin.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gencli.cli.render import is_terminal, prompt
from gencli.errors import UsageError
from gencli.files import MAX_PROMPT, open_regular, read_file, read_stream
from gencli.text.escapes import escape_controls

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from gencli.templates.prompt_templates import PromptTemplate


PATIENCE = 5.0  # seconds to wait for a byte or the end of a pipe that accompanies a prompt
_PROMPT_WORD, _PIPED = "prompt", "stdin"  # variables of a template
STDIN = "{stdin}"  # placeholder in an argument for stdin's text


class _NoPrompt(UsageError):
    """There is no prompt; `read_prompts` gives the hint, which names the command."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a run, and notices about stdin."""

    texts: tuple[str, ...]
    notices: tuple[str, ...] = ()


def read_prompts(
    arguments: Sequence[str],
    paths: Sequence[str] | None,
    template: PromptTemplate | None = None,
    *,
    command: str = "run",
) -> Prompts:
    """Return the prompts of a run, each rendered by the template if there is one.

    stdin is read to its end without argument and file, for the argument `-`, and for `{stdin}` in an
    argument. Otherwise the text of a pipe or of a redirected file is appended to each prompt, after a blank
    line; a pipe that stays open and sends nothing for PATIENCE seconds is left unread, with a notice. A
    template with the variable `stdin` gets that text instead; one without `prompt` and `stdin` needs no
    prompt. `paths` is None for a command without --file; hints name the `command`.

    Raises UsageError if there is no prompt, if one is empty or not UTF-8, if stdin is needed twice, and for
    variables of a template that have no value.
    """
    try:
        return _read(arguments, paths or (), template)
    except _NoPrompt as error:
        file = "" if paths is None else ", with --file"
        hint = f'Give it as an argument (gencli {command} "Once upon a time"){file}, or through a pipe.'
        raise UsageError(error.message, hint=hint) from None


def _read(arguments: Sequence[str], paths: Sequence[str], template: PromptTemplate | None) -> Prompts:
    if template is None:
        return _read_plain(arguments, paths)
    if (arguments or paths) and _PROMPT_WORD not in template.names:
        raise UsageError(
            "The template does not use the variable prompt, so the prompt that is given would be lost.",
            hint="Write {{ prompt }} into the template, or leave the prompt out.",
        )
    if _PIPED in template.names:
        if not _is_readable():
            raise UsageError(
                "The template uses the variable stdin, but nothing is piped in.",
                hint="cat notes.txt | gencli run --template 'Summarise: {{ stdin }}'",
            )
        _refuse_duplicates(arguments, paths)
        piped = _not_empty(_from_stdin(), "The input (stdin)")
        texts = tuple(map(_from_file, paths)) or _fill_in(arguments, piped)
        rows = [{_PROMPT_WORD: text, _PIPED: piped} for text in texts] or [{_PIPED: piped}]
        return Prompts(tuple(_render(template, row) for row in rows))
    if not arguments and not paths and not (_PROMPT_WORD in template.names and _is_readable()):
        return _beside_stdin((_render(template, {}),))
    prompts = _read_plain(arguments, paths)
    return replace(prompts, texts=tuple(_render(template, {_PROMPT_WORD: text}) for text in prompts.texts))


def _render(template: PromptTemplate, columns: Mapping[str, str]) -> str:
    from gencli.templates.prompt_templates import TemplateFault

    try:
        return _not_empty(template.render(columns), "The prompt that the template makes")
    except TemplateFault as fault:
        if fault.missing == _PROMPT_WORD:
            raise _NoPrompt("There is no prompt, and the template uses one.") from None
        if fault.missing:
            others = ", ".join(sorted({_PROMPT_WORD, _PIPED, *template.names} - {fault.missing}))
            raise UsageError(
                f"The template uses the variable {fault.missing!r}, which has no value.",
                hint=f"Give it one with --var {fault.missing}=TEXT. Variables are also: {others}.",
            ) from None
        raise UsageError(fault.message) from None


def _read_plain(arguments: Sequence[str], paths: Sequence[str]) -> Prompts:
    _refuse_duplicates(arguments, paths)
    if not arguments and not paths:
        if sys.stdin is None or sys.stdin.isatty():
            raise _NoPrompt("There is no prompt.")
        return Prompts((_not_empty(_from_stdin(), "The input (stdin)"),))
    if any(text == "-" or STDIN in text for text in arguments):
        if "-" not in arguments and (sys.stdin is None or sys.stdin.isatty()):
            hint = f'cat notes.txt | gencli run "Summarise: {STDIN}"; in a --file it is text like any other.'
            raise UsageError(f"The prompt contains {STDIN}, but nothing is piped in.", hint=hint)
        return Prompts(_fill_in(arguments, _not_empty(_from_stdin(), "The input (stdin)")))
    texts = tuple(map(_from_file, paths)) if paths else tuple(map(_argument, arguments))
    return _beside_stdin(texts)


def _refuse_duplicates(arguments: Sequence[str], paths: Sequence[str]) -> None:
    if arguments and paths:
        raise UsageError("--file and a prompt as an argument are both given.", hint="Leave one of them out.")
    if arguments.count("-") > 1:
        raise UsageError("The prompt - (stdin) is given twice, but it can be read only once.")


def _fill_in(arguments: Sequence[str], piped: str) -> tuple[str, ...]:
    return tuple(piped if text == "-" else _argument(text).replace(STDIN, piped) for text in arguments)


def _beside_stdin(texts: tuple[str, ...]) -> Prompts:
    """Return the prompts with stdin's text appended to each, if there is any, and a notice about it."""
    if not _is_readable():
        return Prompts(texts)
    if not _is_ready():
        reason = f"stdin is open but sent nothing for {PATIENCE:g} s, so it is not read"
        notice = f"{reason}; {STDIN} in the prompt waits for it, < /dev/null avoids the wait."
        return Prompts(texts, (notice,))
    piped = _from_stdin()
    if not piped:
        return Prompts(texts)
    where = "the prompt" if len(texts) == 1 else "each prompt"
    notice = f"{len(piped):,} characters of stdin are appended to {where}; < /dev/null leaves them out."
    return Prompts(tuple(f"{text}\n\n{piped}" for text in texts), (notice,))


def _is_readable() -> bool:
    # A pipe or a redirected file.
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.readable():
        return False
    return not sys.stdin.isatty()


def _is_ready() -> bool:
    """Return whether reading stdin will not block: a pipe needs a byte or its end within PATIENCE seconds."""
    try:
        handle = sys.stdin.fileno()
        mode = os.fstat(handle).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return bool(select.select([handle], [], [], PATIENCE)[0])
    except (OSError, ValueError):  # stdin is not an OS file, or select does not support pipes
        pass
    return True


def _argument(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError("The prompt contains bytes that are not UTF-8 text.")
    return _not_empty(text, "The prompt")


def _from_file(path: str) -> str:
    try:
        data = read_file(Path(path), MAX_PROMPT, pipes=True)
    except OSError as error:
        raise UsageError(f"--file {path}: cannot be read: {error.strerror}.") from error
    source = f"The file {path}"
    return _not_empty(_decoded(data, source), source)


def _from_stdin() -> str:
    """Return the text of stdin without the newline at its end; it may be empty."""
    if sys.stdin is None:
        raise _NoPrompt("stdin is closed.")
    try:
        data = read_stream(sys.stdin.buffer, MAX_PROMPT)
    except OSError as error:
        raise _NoPrompt(f"stdin cannot be read: {error.strerror}.") from error
    return _decoded(data, "The input (stdin)")


def _decoded(data: bytes, source: str) -> str:
    # Without one final newline, which editors and echo add.
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}.",
            hint="Convert it first, for example with iconv.",
        ) from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _not_empty(text: str, source: str) -> str:
    if not text:
        raise _NoPrompt(f"{source} is empty.")
    return text


_CHAT_PROMPT = "> "
_EMOJI = "\u2764"
Offer = Callable[[str], tuple[str, list[str]]]  # returns the last word of a line and its completions


def open_reader(offer: Offer) -> LineReader | TerminalReader:
    """Return a TerminalReader if stdin and stdout are terminals, otherwise a LineReader."""
    is_screen = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    return TerminalReader(offer) if is_screen else LineReader()


class LineReader:
    """Reads one turn a line from stdin: from a pipe, or from a terminal if stdout is not one.

    `is_live`: a person types the turns, and the chat continues after an error.
    """

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
            raise UsageError("Without a terminal, /edit needs the new text after it.")
        if self.is_live:
            prompt(_CHAT_PROMPT)
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
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.layout.screen import Char

        class LastWordCompleter(Completer):
            """Yields the completions of the last word."""

            def get_completions(self, document: Document, _: object) -> Iterator[Completion]:
                word, completions = offer(document.text_before_cursor)
                yield from (Completion(text, start_position=-len(word)) for text in completions)

        keys = KeyBindings()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        Char.display_mappings = _DisplayMappings(Char.display_mappings)
        path = _history_file()
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(path)) if path else InMemoryHistory(),
            completer=LastWordCompleter(),
            complete_while_typing=False,
            key_bindings=keys,
            prompt_continuation=" " * len(_CHAT_PROMPT),
        )

    def read(self, draft: str = "") -> str | None:
        """Return the typed text, "" for Ctrl-C, None for Ctrl-D. `draft`: initial text of the line."""
        try:
            return self._session.prompt(_CHAT_PROMPT, default=draft)
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


def _history_file() -> Path | None:
    # None if it is not writable.
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


@contextmanager
def type_ahead() -> Iterator[None]:
    """Keep keys for the next line that is read: unseen, and with Enter as itself.

    A terminal would show them inside an answer, and would turn Enter into the line feed of Ctrl-J. Ctrl-C
    interrupts as before. Without a terminal nothing changes.
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)) or find_spec("termios") is None:
        yield
        return
    import termios

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    quiet = [*before]
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    try:
        termios.tcsetattr(handle, termios.TCSADRAIN, quiet)
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
