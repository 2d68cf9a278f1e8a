"""Streamed text equals the text of all tokens, byte for byte [65].

The escapes of --stop, and those of control characters.
"""

from __future__ import annotations

import pickle
import random

import pytest

from gencli.errors import UsageError
from gencli.text.detokenizer import WindowDecoder
from gencli.text.escapes import escape_controls, unescape
from gencli.text.tokenizer import ByteTokenizer

BYTE_LEVEL = ["byte-level", "gpt-2", "qwen2"]
FALLBACK = ["llama-like", "metaspace", "gemma-like"]


def join(decoder, ids):
    return "".join(decoder.push(token_id) for token_id in ids) + decoder.flush()


def test_bytes_and_hidden_tokens_stream(make):
    tokenizer, rng = ByteTokenizer(), random.Random(2)
    likely = [*"aé你👩\u200d\ufffd".encode(), 0xC0, 0xED, 0xA0, 0xF4, 0x90, 0xFF, 256, 257]
    for _ in range(2000):
        ids = rng.choices(likely, k=rng.randint(0, 12))
        whole = bytes(i for i in ids if i < 256).decode("utf-8", "replace")
        assert join(tokenizer.stream(), ids) == whole == tokenizer.decode(ids)

    tokenizer = make("byte-level")
    [end] = tokenizer.encode("<|end|>", special=False)
    decoder = tokenizer.stream()
    assert (decoder.push(end), decoder.hidden(end), decoder.hidden(5)) == ("", "<|end|>", "")
    shown = tokenizer.stream(skip_special=False)
    assert (shown.push(end), shown.hidden(end)) == ("<|end|>", "")


def test_incomplete_bytes_are_held_while_they_can_complete():
    decoder = ByteTokenizer().stream()
    assert [decoder.push(byte) for byte in "👩".encode()[:3]] == ["", "", ""]
    assert decoder.flush() == "\ufffd"

    decoder = ByteTokenizer().stream()
    assert [decoder.push(byte) for byte in b"\xf0\x9fab"] == ["", "", "\ufffda", "b"]

    decoder = ByteTokenizer().stream()
    assert [decoder.push(byte) for byte in "\ufffd".encode()] == ["", "", "\ufffd"]

    decoder, sizes = ByteTokenizer().stream(), []
    for _ in range(40):
        for _ in range(500):
            decoder.push(0xF0)
        sizes.append(len(pickle.dumps(decoder)))
    assert len(set(sizes)) == 1


def test_byte_tokens_are_characters_as_soon_as_they_can_be(make, hf_decode):
    for name in FALLBACK:
        tokenizer = make(name)
        decoder = tokenizer.stream([tokenizer.encode("a", special=False)[-1]])
        ids = [3 + byte for byte in "👩é".encode()]
        assert [decoder.push(token_id) for token_id in ids] == ["", "", "", "👩", "", "é"], name

    for name in FALLBACK:
        tokenizer = make(name)
        ids = [3 + byte for byte in "你".encode() + b"\xff"]
        assert tokenizer.decode(ids) == "你\ufffd", name
        assert hf_decode(tokenizer, ids) == "\ufffd" * 4, name  # where streaming would have to take text back


def test_a_decoder_that_looks_at_neighbours_streams_through_a_window(make, hf_decode):
    tokenizer, rng = make("wordpiece"), random.Random(3)
    assert isinstance(tokenizer.stream(), WindowDecoder)
    for _ in range(200):
        ids = rng.choices(range(tokenizer.vocab_size), k=rng.randint(0, 20))
        assert tokenizer.decode(ids) == hf_decode(tokenizer, ids)

    rng = random.Random(4)
    for _ in range(500):
        text = "".join(rng.choices("a é你👩\u200d\u0301", k=8)) + "\ufffd\u0301"
        decoder = WindowDecoder(lambda ids: bytes(ids).decode("utf-8", "replace"), chr, frozenset())
        assert join(decoder, text.encode()) == text

    decoder = WindowDecoder(lambda ids: bytes(ids).decode("utf-8", "replace"), chr, frozenset())
    assert [decoder.push(0xFF) for _ in range(4)] == ["", "", "", "\ufffd" * 3]
    assert [decoder.push(0xFF) for _ in range(4)] == ["\ufffd", "\ufffd", "\ufffd", "\ufffd\ufffd"]
    assert decoder.push(ord("a")) == "a"
    assert (decoder.push(0xC3), decoder.flush()) == ("", "\ufffd")


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
