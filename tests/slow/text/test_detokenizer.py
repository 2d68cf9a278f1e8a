"""Streamed text equals the text of all tokens, byte for byte [65].

The escapes of --stop, and those of control characters.
"""

from __future__ import annotations

import random
import unicodedata

from gencli.text.escapes import escape_controls, unescape
from gencli.text.tokenizer import ByteTokenizer
from tests.text.test_detokenizer import BYTE_LEVEL, FALLBACK, join


def test_every_text_streams_as_the_library_decodes_it(make, texts, hf_decode):
    for name in BYTE_LEVEL + FALLBACK:
        tokenizer = make(name)
        for text in [*texts, "".join(texts)]:
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids) == hf_decode(tokenizer, ids), name


def test_random_single_bytes_stream_as_the_library_decodes_them(make, hf_decode):
    for name in BYTE_LEVEL:
        tokenizer, rng = make(name), random.Random(1)
        single = [i for i, piece in enumerate(tokenizer.token_bytes) if len(piece) == 1]
        for _ in range(500):
            chosen = rng.choices(single, k=rng.randint(0, 16))
            assert tokenizer.decode(chosen) == hf_decode(tokenizer, chosen), name


def test_random_ids_stream_as_the_library_decodes_them(make, hf_decode):
    for skip_special in [True, False]:
        for name in BYTE_LEVEL + FALLBACK:
            tokenizer, rng = make(name), random.Random(0)
            # Broken runs of <0xNN> differ on purpose; see the tests on them below.
            bytes_of_pieces = range(3, 259) if name in FALLBACK else ()
            ids = [i for i in range(tokenizer.vocab_size + 2) if i not in bytes_of_pieces]
            ids += [i for i in sorted(tokenizer.special_ids) for _ in range(len(ids) // 10)]
            for _ in range(300):
                chosen = rng.choices(ids, k=rng.randint(0, 12))
                got = tokenizer.decode(chosen, skip_special=skip_special)
                assert got == hf_decode(tokenizer, chosen, skip_special=skip_special), chosen


def test_the_text_after_a_prompt_is_the_whole_minus_the_prompt(make, texts):
    for name in BYTE_LEVEL + FALLBACK:
        tokenizer = make(name)
        for text in texts:
            ids = tokenizer.encode(text)
            for cut in range(1, len(ids)):
                prompt = tokenizer.decode(ids[:cut])
                if not prompt.endswith("\ufffd"):
                    rest = join(tokenizer.stream(ids[:cut]), ids[cut:])
                    assert prompt + rest == tokenizer.decode(ids), (name, text, cut)

    tokenizer = make("llama-like")
    token = tokenizer.encode("x a", special=False)[-1]
    assert join(tokenizer.stream(), [token]) == "a"
    assert join(tokenizer.stream([tokenizer.bos_id]), [token]) == "a"
    assert join(tokenizer.stream(tokenizer.encode("Hello")), [token]) == " a"

    head, tail = list("é".encode())
    assert join(ByteTokenizer().stream([head]), [tail, ord("!")]) == "é!"


def test_control_and_format_characters_are_escaped_and_all_else_stays():
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)]))
    hidden = [char for char in text if unicodedata.category(char) in ("Cc", "Cf") and char not in "\n\t"]
    kept = "".join(char for char in text if char not in hidden)
    assert escape_controls(kept) == kept
    for char in hidden:
        assert escape_controls(char).isprintable()
        assert unescape(escape_controls(char)) == char
