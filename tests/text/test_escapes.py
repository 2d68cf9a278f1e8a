"""The escapes of --stop."""

from __future__ import annotations

import pytest

from gencli.errors import UsageError
from gencli.text.escapes import unescape


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (r"\n\t\r", "\n\t\r"),
        (r"\\n", r"\n"),
        (r"\"\'", "\"'"),
        (r"a\0b", "a\0b"),
        (r"\x41\xe9", "Aé"),
        (r"\u4f60\U0001F469", "你👩"),
        ("你\nd'été", "你\nd'été"),
        ("", ""),
    ],
)
def test_escapes_become_characters_and_the_rest_stays(text, want):
    assert unescape(text) == want


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"a\q", r"Unknown escape \\q"),
        ("a\\", "backslash at the end"),
        ("\\\n", "Unknown escape"),
        (r"\x4", "hexadecimal"),
        (r"\u12", "hexadecimal"),
        (r"\U0001F46", "hexadecimal"),
        (r"\U00110000", "beyond"),
        (r"\ud83d", "half a character"),
    ],
)
def test_other_escapes_are_refused_by_name(text, words):
    with pytest.raises(UsageError, match=words):
        unescape(text)
