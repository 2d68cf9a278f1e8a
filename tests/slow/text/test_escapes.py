"""The escapes of --stop, and those of control characters."""

from __future__ import annotations

import unicodedata

from gencli.text.escapes import escape_controls, unescape


def test_control_and_format_characters_are_escaped_and_all_else_stays():
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)]))
    hidden = [char for char in text if unicodedata.category(char) in ("Cc", "Cf") and char not in "\n\t"]
    kept = "".join(char for char in text if char not in hidden)
    assert escape_controls(kept) == kept
    for char in hidden:
        assert escape_controls(char).isprintable()
        assert unescape(escape_controls(char)) == char
