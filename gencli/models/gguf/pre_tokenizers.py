"""Pre-tokenizers of byte-level vocabularies, by the names that llama.cpp's converter gives them.

A name stands for how a text is split before merges: the pattern of the family's tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

__all__ = ["PRE_TOKENIZERS", "PreTokenizer"]

_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_OTHER = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORDS = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|NUMBERS|{_OTHER}|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+SHORT|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*SHORT|NUMBERS"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a text is split: by `pattern`, or as GPT-2 does where it is empty, with `digits` one by one.

    `is_nfc` composes characters before. `takes_whole` takes a part that is a token as it is, without merges.
    `adds_bos` begins a text with BOS if the file does not say.
    """

    pattern: str = ""
    digits: bool = False
    is_nfc: bool = False
    takes_whole: bool = False
    adds_bos: bool = False

    def give_to(self, tokenizer: Tokenizer) -> None:
        """Set the normalizer and the pre-tokenizer of a tokenizer."""
        if self.is_nfc:
            tokenizer.normalizer = normalizers.NFC()
        parts: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if self.digits else []
        if self.pattern:
            parts.append(pre_tokenizers.Split(Regex(self.pattern), "isolated"))
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not self.pattern))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)


_GPT2, _NEOX, _DIGITS = PreTokenizer(), PreTokenizer(is_nfc=True), PreTokenizer(digits=True)
_THREE = _WORDS.replace("NUMBERS", r"\p{N}{1,3}")
_ONE = _WORDS.replace("NUMBERS", r"\p{N}")
_LLAMA3 = PreTokenizer(_THREE, takes_whole=True, adds_bos=True)
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    **dict.fromkeys(("gpt-2", "phi-2"), _GPT2),
    **dict.fromkeys(("olmo", "mpt"), _NEOX),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), PreTokenizer(_THREE)),
    "qwen2": PreTokenizer(_ONE, is_nfc=True),
    "deepseek-r1-qwen": PreTokenizer(_ONE),
    "tekken": PreTokenizer(
        _CASED.replace("SHORT", "").replace("NUMBERS", r"\p{N}"), takes_whole=True, adds_bos=True
    ),
    "gpt-4o": PreTokenizer(_CASED.replace("SHORT", f"{_SHORT}?").replace("NUMBERS", r"\p{N}{1,3}")),
}
