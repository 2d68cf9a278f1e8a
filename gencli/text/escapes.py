r"""The escapes of `--stop`: shells make it hard to type a newline, so `\n` is one."""

from __future__ import annotations

import re

from gencli.errors import UsageError

__all__ = ["unescape"]

_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))",
    re.DOTALL,
)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0"}
_KNOWN = r"""\n \t \r \\ \" \' \0 \xNN \uNNNN \UNNNNNNNN"""


def unescape(text: str) -> str:
    r"""Replace the C-style escapes of `text`; everything else stays as it is.

    `\xNN`, `\uNNNN` and `\UNNNNNNNN` name a character by its code point. Raises UsageError for an
    unknown or unfinished escape and for a code point that is not a character.
    """
    return _ESCAPE.sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    escape = found[0]
    if digits := found[1] or found[2] or found[3]:
        return _character(escape, int(digits, 16))
    if escape == "\\":
        raise UsageError("A backslash at the end escapes nothing", hint=r"Write \\ for a backslash.")
    if found[4] in _SIMPLE:
        return _SIMPLE[found[4]]
    if found[4] in "xuU":
        raise UsageError(f"The escape {escape} needs 2 (x), 4 (u) or 8 (U) hexadecimal digits")
    raise UsageError(f"Unknown escape {escape}", hint=rf"Known are {_KNOWN}; write \\ for a backslash.")


def _character(escape: str, code: int) -> str:
    if code > 0x10FFFF:
        raise UsageError(f"{escape} is beyond the last character, \\U0010FFFF")
    if 0xD800 <= code <= 0xDFFF:
        raise UsageError(f"{escape} is half a character", hint=r"Write the whole one as \UNNNNNNNN.")
    return chr(code)
