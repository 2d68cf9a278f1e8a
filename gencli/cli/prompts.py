"""Where prompts come from: arguments, files, or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gencli.errors import UsageError
from gencli.files import MAX_PROMPT, read_file, read_stream

__all__ = ["read_prompts"]

_EXAMPLE = 'Give it as an argument (gencli run "Once upon a time"), with --file, or through a pipe.'


def read_prompts(arguments: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    """The prompts of a run. `-` as an argument, and no argument at all, read stdin."""
    if arguments and paths:
        raise UsageError("--file and a prompt as an argument are both given.", hint="Leave one of them out.")
    if paths:
        return tuple(_from_file(path) for path in paths)
    if not arguments and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("There is no prompt.", hint=_EXAMPLE)
    if arguments.count("-") > 1:
        raise UsageError("The prompt - (stdin) is given twice, but it can be read only once.")
    return tuple(_from_stdin() if text == "-" else _argument(text) for text in arguments or ["-"])


def _argument(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError("The prompt holds bytes that are not UTF-8 text.")
    return _filled(text, "The prompt")


def _from_file(path: str) -> str:
    try:
        data = read_file(Path(path), MAX_PROMPT, pipes=True)
    except OSError as error:
        raise UsageError(f"--file {path}: cannot be read: {error.strerror}.") from error
    return _decoded(data, f"The file {path}")


def _from_stdin() -> str:
    if sys.stdin is None:
        raise UsageError("stdin is closed.", hint=_EXAMPLE)
    try:
        data = read_stream(sys.stdin.buffer, MAX_PROMPT)
    except OSError as error:
        raise UsageError(f"stdin cannot be read: {error.strerror}.", hint=_EXAMPLE) from error
    return _decoded(data, "The input (stdin)")


def _decoded(data: bytes, source: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}.",
            hint="Convert it first, for example with iconv.",
        ) from None
    # Editors and echo end a text with a newline that is no part of it.
    for newline in ("\r\n", "\n"):
        if text.endswith(newline):
            return _filled(text.removesuffix(newline), source)
    return _filled(text, source)


def _filled(text: str, source: str) -> str:
    if not text:
        raise UsageError(f"{source} is empty.", hint=_EXAMPLE)
    return text
