"""Where prompts come from: arguments, files, a pipe, or a pipe beside one of the others."""

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
    from gencli.templates.prompt import PromptTemplate

__all__ = ["PATIENCE", "STDIN", "Prompts", "read_prompts"]

PATIENCE = 5.0  # seconds in which a pipe beside a prompt has to give its first byte, or its end
_PROMPT, _PIPED = "prompt", "stdin"  # variables of a template
STDIN = "{stdin}"  # in an argument: here goes what is piped in
_EXAMPLE = 'Give it as an argument (gencli run "Once upon a time"), with --file, or through a pipe.'


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a run, and what a person has to know of how they came about."""

    texts: tuple[str, ...]
    notices: tuple[str, ...] = ()


def read_prompts(
    arguments: Sequence[str], paths: Sequence[str], template: PromptTemplate | None = None
) -> Prompts:
    """The prompts of a run, each put into the template if there is one.

    No argument and no file, `-`, and `{stdin}` in an argument read stdin to its end. Without these, what
    comes through a pipe or from a redirected file goes behind each prompt, after a blank line; a pipe that
    stays open and gives nothing for PATIENCE seconds is let be, which a notice says. A template with the
    variable `stdin` takes the pipe instead; one without variables for either needs no prompt.
    """
    if template is None:
        return _without_template(arguments, paths)
    if (arguments or paths) and _PROMPT not in template.names:
        raise UsageError(
            "The template does not use the variable prompt, so the prompt that is given would be lost.",
            hint="Write {{ prompt }} into the template, or leave the prompt out.",
        )
    if _PIPED in template.names:
        return Prompts(_with_both(arguments, paths, template))
    if not arguments and not paths and not (_PROMPT in template.names and _is_readable()):
        return _beside_stdin((_rendered(template, {}),))
    found = _without_template(arguments, paths)
    return replace(found, texts=tuple(_rendered(template, {_PROMPT: text}) for text in found.texts))


def _with_both(arguments: Sequence[str], paths: Sequence[str], template: PromptTemplate) -> tuple[str, ...]:
    """The prompts of a template that takes what is piped in."""
    if not _is_readable():
        raise UsageError(
            "The template uses the variable stdin, but nothing is piped in.",
            hint="cat notes.txt | gencli run --template 'Summarise: {{ stdin }}'",
        )
    _refuse_twice(arguments, paths)
    piped = _filled(_from_stdin(), "The input (stdin)")
    texts = tuple(map(_from_file, paths)) or _put_in(arguments, piped)
    rows = [{_PROMPT: text, _PIPED: piped} for text in texts] or [{_PIPED: piped}]
    return tuple(_rendered(template, row) for row in rows)


def _rendered(template: PromptTemplate, columns: Mapping[str, str]) -> str:
    from gencli.templates.prompt import TemplateFault

    try:
        return _filled(template.render(columns), "The prompt that the template makes")
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


def _without_template(arguments: Sequence[str], paths: Sequence[str]) -> Prompts:
    _refuse_twice(arguments, paths)
    if not arguments and not paths:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("There is no prompt.", hint=_EXAMPLE)
        return Prompts((_filled(_from_stdin(), "The input (stdin)"),))
    if any(text == "-" or STDIN in text for text in arguments):
        return Prompts(_with_stdin(arguments))
    texts = tuple(map(_from_file, paths)) if paths else tuple(map(_argument, arguments))
    return _beside_stdin(texts)


def _refuse_twice(arguments: Sequence[str], paths: Sequence[str]) -> None:
    if arguments and paths:
        raise UsageError("--file and a prompt as an argument are both given.", hint="Leave one of them out.")
    if arguments.count("-") > 1:
        raise UsageError("The prompt - (stdin) is given twice, but it can be read only once.")


def _with_stdin(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments with what is piped in, where they ask for it."""
    if "-" not in arguments and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError(
            f"The prompt holds {STDIN}, but nothing is piped in.",
            hint=f'cat notes.txt | gencli run "Summarise: {STDIN}"; in a --file it is text like any other.',
        )
    return _put_in(arguments, _filled(_from_stdin(), "The input (stdin)"))


def _put_in(arguments: Sequence[str], given: str) -> tuple[str, ...]:
    return tuple(given if text == "-" else _argument(text).replace(STDIN, given) for text in arguments)


def _beside_stdin(texts: tuple[str, ...]) -> Prompts:
    """The prompts, and behind each of them what is piped in, if anything is."""
    if not _is_readable():
        return Prompts(texts)
    if not _has_come():
        said = f"stdin is open, but gave nothing in {PATIENCE:g} s, so the prompt stands alone"
        return Prompts(texts, (f"{said}; {STDIN} in the prompt waits for it, < /dev/null does not.",))
    given = _from_stdin()
    if not given:
        return Prompts(texts)
    where = "the prompt" if len(texts) == 1 else "each prompt"
    said = f"{len(given):,} characters of stdin stand behind {where}; < /dev/null leaves them out."
    return Prompts(tuple(f"{text}\n\n{given}" for text in texts), (said,))


def _is_readable() -> bool:
    """Whether stdin is something that text is piped or redirected from."""
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.readable():
        return False
    return not sys.stdin.isatty()


def _has_come() -> bool:
    """Whether stdin can be read: at once, or for a pipe once it gives its first byte or its end."""
    try:
        handle = sys.stdin.fileno()
        mode = os.fstat(handle).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return bool(select.select([handle], [], [], PATIENCE)[0])
    except (OSError, ValueError):  # no file of the system's, or a system that cannot wait for a pipe
        pass
    return True


def _argument(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError("The prompt holds bytes that are not UTF-8 text.")
    return _filled(text, "The prompt")


def _from_file(path: str) -> str:
    try:
        data = read_file(Path(path), MAX_PROMPT, pipes=True)
    except OSError as error:
        raise UsageError(f"--file {path}: cannot be read: {error.strerror}.") from error
    source = f"The file {path}"
    return _filled(_decoded(data, source), source)


def _from_stdin() -> str:
    """All of stdin without the newline at its end, which may be nothing."""
    if sys.stdin is None:
        raise UsageError("stdin is closed.", hint=_EXAMPLE)
    try:
        data = read_stream(sys.stdin.buffer, MAX_PROMPT)
    except OSError as error:
        raise UsageError(f"stdin cannot be read: {error.strerror}.", hint=_EXAMPLE) from error
    return _decoded(data, "The input (stdin)")


def _decoded(data: bytes, source: str) -> str:
    """The text without the newline that editors and echo end it with, which is no part of it."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}.",
            hint="Convert it first, for example with iconv.",
        ) from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _filled(text: str, source: str) -> str:
    if not text:
        raise UsageError(f"{source} is empty.", hint=_EXAMPLE)
    return text
