"""Escapes of characters: decodes those of `stop`, encodes control characters of untrusted text; texts in
the `repr` of a value.
"""

from __future__ import annotations

import re
import unicodedata

from gencli.errors import UsageError

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0"}
_KNOWN = r"""\n \t \r \\ \" \' \0 \xNN \uNNNN \UNNNNNNNN"""
_JOINERS = "\u200c\u200d"
_JOINED = ("Lo", "Lm", "Mn", "Mc", "So", "Sk")  # letters and marks of scripts with joiners, emoji, skin tones
_FIRST_JOINED = "\u0590"  # scripts before Hebrew do not use joiners


def escape_controls(text: str, *, before: str = "") -> str:
    r"""Return the text with its control and format characters (Unicode Cc and Cf) as `\x1b` or `\u202e`.

    Newline and tab are kept. So is a joiner (U+200C, U+200D) after a letter or mark of a joining script, or
    after an emoji. `before`: the character before the text.
    """
    if text.isprintable():  # no character of Cc or Cf is printable
        return text
    escaped = list[str]()
    for last, char in zip((before, *text), text, strict=False):
        is_control = not (char.isprintable() or char in "\n\t") and unicodedata.category(char) in ("Cc", "Cf")
        is_joined = last >= _FIRST_JOINED and unicodedata.category(last) in _JOINED
        escaped.append(_escape(char) if is_control and not (char in _JOINERS and is_joined) else char)
    return "".join(escaped)


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x20:  # `\\xNN` is usual below the space; from there on the escape is valid JSON too
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unescape(text: str) -> str:
    r"""Replace the C-style escapes of `text`; everything else stays as it is.

    `\xNN`, `\uNNNN` and `\UNNNNNNNN` name a character by its code point. Raises UsageError for an
    unknown or unfinished escape and for a code point that is not a character.
    """
    return _ESCAPE.sub(_replacement, text)


def _replacement(match: re.Match[str]) -> str:
    escape = match[0]
    if digits := match[1] or match[2] or match[3]:
        if (code := int(digits, 16)) > 0x10FFFF:
            raise UsageError(f"{escape} is beyond the last character, \\U0010FFFF.")
        if 0xD800 <= code <= 0xDFFF:
            raise UsageError(f"{escape} is half a character.", hint=r"Write the whole one as \UNNNNNNNN.")
        return chr(code)
    if escape == "\\":
        raise UsageError("A backslash at the end escapes nothing.", hint=r"Write \\ for a backslash.")
    if match[4] in _SIMPLE:
        return _SIMPLE[match[4]]
    if match[4] in "xuU":
        raise UsageError(f"The escape {escape} needs 2 (x), 4 (u) or 8 (U) hexadecimal digits.")
    raise UsageError(f"Unknown escape {escape}.", hint=rf"Known are {_KNOWN}; write \\ for a backslash.")


def shown(text: str, width: int = 60) -> str:
    """Return the text as Python writes it, with controls escaped, cut so that it has `width` characters."""
    quoted = repr(text[: width + 1])
    if len(text) <= width and len(quoted) <= width:
        return quoted
    size = width
    while len(quoted := repr(f"{text[:size]}...")) > width:
        size -= 1
    return quoted
