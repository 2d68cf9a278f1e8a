"""The escapes of --stop, and those of control characters."""

from __future__ import annotations

import pytest

from gencli.errors import UsageError
from gencli.text.escapes import escape_controls, unescape


def test_escapes_become_characters_and_others_are_refused_by_name():
    for text, want in [
        (r"\n\t\r", "\n\t\r"), (r"\\n", r"\n"), (r"\"\'", "\"'"), (r"a\0b", "a\0b"), (r"\x41\xe9", "Aé"),
        (r"\u4f60\U0001F469", "你👩"), ("你\nd'été", "你\nd'été"), ("", ""),
    ]:  # fmt: skip
        assert unescape(text) == want, text

    for text, words in [
        (r"a\q", r"Unknown escape \\q"), ("a\\", "backslash at the end"), ("\\\n", "Unknown escape"),
        (r"\x4", "hexadecimal"), (r"\u12", "hexadecimal"), (r"\U0001F46", "hexadecimal"),
        (r"\U00110000", "beyond"), (r"\ud83d", "half a character"),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=words):
            unescape(text)


def test_a_joiner_stays_where_a_script_or_an_emoji_needs_it():
    for text in [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f3f3\ufe0f\u200d\U0001f308",
        "\U0001f44d\U0001f3fd\u200d\u2642\ufe0f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937",
    ]:
        assert escape_controls(text) == text, text

    for text in ["a\u200db", "\u200d", "\n\u200c", "\u0645\u200c\u200c"]:
        assert "\\u200" in escape_controls(text), text
