"""Reads the prompts of a run from arguments, files, or stdin, which may be combined with the others."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gencli.errors import UsageError
from gencli.files import MAX_PROMPT, read_file, read_stream

if TYPE_CHECKING:
    from gencli.templates.prompt_templates import PromptTemplate

__all__ = ["PATIENCE", "STDIN", "Prompts", "read_prompts"]

PATIENCE = 5.0  # seconds to wait for a byte or the end of a pipe that accompanies a prompt
_PROMPT, _PIPED = "prompt", "stdin"  # variables of a template
STDIN = "{stdin}"  # placeholder in an argument for stdin's text
_EXAMPLE = 'Give it as an argument (gencli run "Once upon a time"), with --file, or through a pipe.'


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a run, and notices about stdin."""

    texts: tuple[str, ...]
    notices: tuple[str, ...] = ()


def read_prompts(
    arguments: Sequence[str], paths: Sequence[str], template: PromptTemplate | None = None
) -> Prompts:
    """Return the prompts of a run, each rendered by the template if there is one.

    stdin is read to its end without argument and file, for the argument `-`, and for `{stdin}` in an
    argument. Otherwise the text of a pipe or of a redirected file is appended to each prompt, after a blank
    line; a pipe that stays open and sends nothing for PATIENCE seconds is left unread, with a notice. A
    template with the variable `stdin` gets that text instead; one without `prompt` and `stdin` needs no
    prompt.

    Raises UsageError if there is no prompt, if one is empty or not UTF-8, if stdin is needed twice, and for
    variables of a template that have no value.
    """
    if template is None:
        return _read_plain(arguments, paths)
    if (arguments or paths) and _PROMPT not in template.names:
        raise UsageError(
            "The template does not use the variable prompt, so the prompt that is given would be lost.",
            hint="Write {{ prompt }} into the template, or leave the prompt out.",
        )
    if _PIPED in template.names:
        return Prompts(_with_piped(arguments, paths, template))
    if not arguments and not paths and not (_PROMPT in template.names and _is_readable()):
        return _beside_stdin((_render(template, {}),))
    found = _read_plain(arguments, paths)
    return replace(found, texts=tuple(_render(template, {_PROMPT: text}) for text in found.texts))


def _with_piped(arguments: Sequence[str], paths: Sequence[str], template: PromptTemplate) -> tuple[str, ...]:
    """Return the prompts of a template that uses the variable `stdin`."""
    if not _is_readable():
        raise UsageError(
            "The template uses the variable stdin, but nothing is piped in.",
            hint="cat notes.txt | gencli run --template 'Summarise: {{ stdin }}'",
        )
    _refuse_duplicates(arguments, paths)
    piped = _not_empty(_from_stdin(), "The input (stdin)")
    texts = tuple(map(_from_file, paths)) or _fill_in(arguments, piped)
    rows = [{_PROMPT: text, _PIPED: piped} for text in texts] or [{_PIPED: piped}]
    return tuple(_render(template, row) for row in rows)


def _render(template: PromptTemplate, columns: Mapping[str, str]) -> str:
    from gencli.templates.prompt_templates import TemplateFault

    try:
        return _not_empty(template.render(columns), "The prompt that the template makes")
    except TemplateFault as fault:
        if fault.missing == _PROMPT:
            raise UsageError("There is no prompt, and the template uses one.", hint=_EXAMPLE) from None
        if fault.missing:
            known = ", ".join(sorted({_PROMPT, _PIPED, *template.names} - {fault.missing}))
            raise UsageError(
                f"The template uses the variable {fault.missing!r}, which has no value.",
                hint=f"Give it one with --var {fault.missing}=TEXT. Variables are also: {known}.",
            ) from None
        raise UsageError(fault.message) from None


def _read_plain(arguments: Sequence[str], paths: Sequence[str]) -> Prompts:
    _refuse_duplicates(arguments, paths)
    if not arguments and not paths:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("There is no prompt.", hint=_EXAMPLE)
        return Prompts((_not_empty(_from_stdin(), "The input (stdin)"),))
    if any(text == "-" or STDIN in text for text in arguments):
        return Prompts(_with_stdin(arguments))
    texts = tuple(map(_from_file, paths)) if paths else tuple(map(_argument, arguments))
    return _beside_stdin(texts)


def _refuse_duplicates(arguments: Sequence[str], paths: Sequence[str]) -> None:
    if arguments and paths:
        raise UsageError("--file and a prompt as an argument are both given.", hint="Leave one of them out.")
    if arguments.count("-") > 1:
        raise UsageError("The prompt - (stdin) is given twice, but it can be read only once.")


def _with_stdin(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments with `-` and `{stdin}` replaced by stdin's text."""
    if "-" not in arguments and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError(
            f"The prompt holds {STDIN}, but nothing is piped in.",
            hint=f'cat notes.txt | gencli run "Summarise: {STDIN}"; in a --file it is text like any other.',
        )
    return _fill_in(arguments, _not_empty(_from_stdin(), "The input (stdin)"))


def _fill_in(arguments: Sequence[str], piped: str) -> tuple[str, ...]:
    return tuple(piped if text == "-" else _argument(text).replace(STDIN, piped) for text in arguments)


def _beside_stdin(texts: tuple[str, ...]) -> Prompts:
    """Return the prompts with stdin's text appended to each, if there is any, and a notice about it."""
    if not _is_readable():
        return Prompts(texts)
    if not _is_ready():
        notice = f"stdin is open, but gave nothing in {PATIENCE:g} s, so it is not read"
        return Prompts(texts, (f"{notice}; {STDIN} in the prompt waits for it, < /dev/null does not.",))
    piped = _from_stdin()
    if not piped:
        return Prompts(texts)
    where = "the prompt" if len(texts) == 1 else "each prompt"
    notice = f"{len(piped):,} characters of stdin are appended to {where}; < /dev/null leaves them out."
    return Prompts(tuple(f"{text}\n\n{piped}" for text in texts), (notice,))


def _is_readable() -> bool:
    """Return whether stdin is a pipe or a redirected file."""
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
        raise UsageError("The prompt holds bytes that are not UTF-8 text.")
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
        raise UsageError("stdin is closed.", hint=_EXAMPLE)
    try:
        data = read_stream(sys.stdin.buffer, MAX_PROMPT)
    except OSError as error:
        raise UsageError(f"stdin cannot be read: {error.strerror}.", hint=_EXAMPLE) from error
    return _decoded(data, "The input (stdin)")


def _decoded(data: bytes, source: str) -> str:
    """Return the decoded text without one final newline, which editors and echo add."""
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
        raise UsageError(f"{source} is empty.", hint=_EXAMPLE)
    return text
