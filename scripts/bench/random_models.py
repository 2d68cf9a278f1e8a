"""A random Llama and a made tokenizer, for measurements without model files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import torch

from gencli.errors import ModelError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.families import read_spec
from gencli.models.files.checkpoint import read_checkpoint
from gencli.models.files.model_files import Quantize, read_object
from gencli.text.detokenizer import ByteDecoder, PieceRules, Pieces, byte_alphabet

VOCABULARY = 32_000


def random_llama(
    *, hidden_size: int = 288, intermediate_size: int = 768, vocab_size: int = VOCABULARY
) -> Any:
    """Return a random Llama: six layers, six heads, tied embeddings, float32, no EOS.

    By default 15M parameters.
    """
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=6,
        vocab_size=vocab_size,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def native_runner(model: Any, *, max_lanes: int, quantize: Quantize = "none") -> DecoderRunner:
    """Return a runner of gencli's own decoder with the weights of a Llama of transformers."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        model.save_pretrained(folder)
        config = read_object(folder / "config.json")
        checkpoint = read_checkpoint(folder, config, read_spec(config))
        return DecoderRunner.load(checkpoint, device="cpu", max_lanes=max_lanes, quantize=quantize)


_SIGNS = ('"', ",", ":", "{", "}", "[", "]", " ", "\n")
_SYLLABLES = tuple(map("".join, product("bcdfghjklmnprstvwxyz", "aeiou")))


class MadeTokenizer:
    """All bytes, runs of JSON punctuation, and made-up words with and without a space; the last id is EOS."""

    name = "made"
    bos_id: int | None = None
    has_chat_template = has_system_turn = False

    def __init__(self, size: int) -> None:
        words = chain.from_iterable((word, f" {word}") for word in _words())
        texts = chain((bytes([byte]) for byte in range(256)), map(str.encode, chain(_signs(), words)))
        self.vocab_size = size
        self.eos_ids = (size - 1,)
        self.special_ids = frozenset(self.eos_ids)
        self.token_bytes: Sequence[bytes] = (*islice(texts, size - 1), b"")
        self._ids = {data: token for token, data in enumerate(self.token_bytes) if data}
        self._longest = max(map(len, self._ids))
        alphabet = byte_alphabet()
        names = {token: "".join(alphabet[byte] for byte in data) for data, token in self._ids.items()}
        names[size - 1] = "<end>"
        self._pieces = Pieces(PieceRules(byte_level=True), names.get, self.special_ids)

    def encode(self, text: str, *, special: bool = True, is_plain: bool = False) -> list[int]:
        """Return the ids of a text, in which no special token has a name; the longest token first."""
        data, ids, place = text.encode(), [], 0
        while place < len(data):
            sizes = range(min(self._longest, len(data) - place), 0, -1)
            size = next(n for n in sizes if data[place : place + n] in self._ids)
            ids.append(self._ids[data[place : place + size]])
            place += size
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of ids."""
        stream = self.stream(skip_special=skip_special)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> ByteDecoder:
        """Return a new decoder for the text that follows the prompt."""
        return ByteDecoder(self._pieces, prompt_ids, skip_special=skip_special)

    def renders_tools(self, tools: Sequence[Any]) -> bool:
        """Return False: there is no chat template."""
        return False

    def render_chat(self, messages: Sequence[Mapping[str, str]], **kwargs: Any) -> str:
        """Raise ModelError: there is no chat template."""
        raise ModelError("A made-up tokenizer has no chat template.")


def _signs() -> Iterator[str]:
    return ("".join(run) for size in (2, 3) for run in product(_SIGNS, repeat=size))


def _words() -> Iterator[str]:
    return ("".join(run) for size in (1, 2, 3) for run in product(_SYLLABLES, repeat=size))
