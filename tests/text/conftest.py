"""Tokenizers for the tests: tiny ones made on the spot, and large ones of published models."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from gencli.text.detokenizer import byte_alphabet
from gencli.text.tokenizer import HFTokenizer
from tests.helpers.tokenizers import unpack_tokenizer

TEXTS = [
    "Hello, world! It's 3 o'clock -  two  spaces",
    " leading and trailing ",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 tone",
    "你好,世界。日本語のテキスト",
    "สวัสดีชาวโลก",
    "مرحبا بالعالم",
    "e\u0301 a\u0308\u0323 combining",
    "a genuine \ufffd sign",
    "line\nbreak\ttab\r\n",
]


@cache
def byte_level() -> HFTokenizer:
    """Byte-level BPE, as GPT-2."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(byte_alphabet().values()),
        special_tokens=["<s>", "</s>", "<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.add_tokens(["<tool>", "two words", "中"])
    return wrap(tokenizer, "byte-level")


def _meta_vocabulary() -> dict[str, int]:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = sorted({char for text in TEXTS[:2] for char in text if char != " "} | {"▁", "你", "好"})
    return {piece: i for i, piece in enumerate([*pieces, *letters, "▁▁", "▁He", "ll", "▁a"])}


def _meta(decoder: Any, pre_tokenizer: Any, name: str) -> HFTokenizer:
    merges = [("▁", "▁"), ("l", "l"), ("▁", "a")]
    vocabulary = _meta_vocabulary()
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens(["<tool>"])
    return wrap(tokenizer, name)


@cache
def llama_like() -> HFTokenizer:
    """Sentencepiece-like BPE with byte fallback; the decoder strips one space, as Llama 2."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    pre = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return _meta(decoders.Sequence(steps), pre, "llama-like")


@cache
def metaspace() -> HFTokenizer:
    """Byte fallback, then a Metaspace decoder that drops the first token's meta characters."""
    steps = [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")]
    pre = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    return _meta(decoders.Sequence(steps), pre, "metaspace")


@cache
def gemma_like() -> HFTokenizer:
    """Sentencepiece-like BPE that adds and strips no space."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    pre = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    return _meta(decoders.Sequence(steps), pre, "gemma-like")


@cache
def wordpiece() -> HFTokenizer:
    """A vocabulary whose decoder looks at neighbours, so that only the window decoder fits."""
    words = ["[UNK]", "<s>", "</s>", "a", "b", "hello", "world", "##ing", "##s", "go", ","]
    model = models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return wrap(tokenizer, "wordpiece")


def wrap(tokenizer: tokenizers.Tokenizer, name: str, **config: Any) -> HFTokenizer:
    """As transformers would load it."""
    from transformers import PreTrainedTokenizerFast

    config = {"bos_token": "<s>", "eos_token": "</s>", **config}
    return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer, **config), name)


MAKERS: dict[str, Callable[[], HFTokenizer]] = {
    "byte-level": byte_level, "llama-like": llama_like, "metaspace": metaspace, "gemma-like": gemma_like,
    "wordpiece": wordpiece,
}  # fmt: skip


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], HFTokenizer]:
    """Makes the tokenizer of a name in MAKERS, or loads gpt-2 or qwen2 from files."""

    @cache
    def load(name: str) -> HFTokenizer:
        folder = tmp_path_factory.mktemp(name)
        unpack_tokenizer(name, folder)
        return HFTokenizer.load(folder)

    return lambda name: MAKERS[name]() if name in MAKERS else load(name)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Texts of many scripts, with spaces and line breaks at awkward places."""
    return TEXTS


@pytest.fixture(scope="session")
def hf_decode() -> Callable[..., str]:
    """What the tokenizers library itself makes of ids."""

    def decode(tokenizer: HFTokenizer, ids: list[int], *, skip_special: bool = True) -> str:
        backend = tokenizer._hf.backend_tokenizer
        return str(backend.decode(ids, skip_special_tokens=skip_special))

    return decode
