"""Tokenizers: ids, bytes, BOS, chat templates, loading."""

from __future__ import annotations

import subprocess
import sys

NAMES = ["byte-level", "llama-like", "metaspace", "gemma-like", "gpt-2", "qwen2"]


def test_token_bytes_join_to_the_text(make, texts, hf_decode):
    for name in NAMES:
        tokenizer = make(name)
        pieces = tokenizer.token_bytes
        assert len(pieces) == tokenizer.vocab_size, name
        for text in texts:
            ids = tokenizer.encode("a" + text, special=False)
            joined = b"".join(pieces[token_id] for token_id in ids).decode()
            assert joined.removeprefix(" ") == hf_decode(tokenizer, ids), name

    for name in NAMES:
        tokenizer = make(name)
        assert tokenizer.special_ids, name
        assert all(tokenizer.token_bytes[token_id] == b"" for token_id in tokenizer.special_ids), name

    pieces = make("llama-like").token_bytes
    assert pieces[3 + 0xF0] == b"\xf0"
    assert {b" ", b"  ", b" a", b"<tool>"} <= set(pieces)

    tokenizer = make("wordpiece")
    assert tokenizer.token_bytes[:8] == (b" [UNK]", b"", b"", b" a", b" b", b" hello", b" world", b"ing")


def test_importing_the_module_imports_neither_torch_nor_transformers():
    code = "import sys, gencli.text.tokenizer, gencli.text.text_stream; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "regex"} & set(done.stdout.split())
