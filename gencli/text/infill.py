"""Prompts that fill a hole between two texts, for tokenizers that have tokens for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gencli.text.tokenizer import Tokenizer

__all__ = ["Infill", "infill_of"]

# Tokens before prefix, suffix and middle, and tokens that end the middle besides end-of-text. Those of
# Codestral are left out: many Mistral tokenizers have them although their models do not know them.
_FAMILIES: tuple[tuple[tuple[str, str, str], tuple[str, ...]], ...] = (
    (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), ("<|fim_pad|>",)),  # Qwen, CodeGemma
    (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), ("<fim_pad>",)),  # StarCoder, Granite
    (("<fim-prefix>", "<fim-suffix>", "<fim-middle>"), ("<fim-pad>",)),  # SantaCoder
    (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), ()),  # DeepSeek
    (("▁<PRE>", "▁<SUF>", "▁<MID>"), ("▁<EOT>",)),  # CodeLlama
    (("<PRE>", "<SUF>", "<MID>"), ("<EOT>",)),
    (("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"), ()),  # GLM
)
_MARK = "\n"  # a text to which no tokenizer prepends a space


@dataclass(frozen=True, slots=True)
class Infill:
    """The ids before prefix, suffix and middle; `ends`: ids that end the middle."""

    prefix: int
    suffix: int
    middle: int
    ends: tuple[int, ...] = ()

    def prompt(self, tokenizer: Tokenizer, before: str, after: str) -> tuple[int, ...]:
        """Return the ids of a fill-in-the-middle prompt; the model continues with the text between both."""
        bos = tokenizer.bos_id
        begin = (bos,) if bos is not None and tokenizer.encode("a")[:1] == [bos] else ()
        head = tokenizer.encode(before, special=False)
        return (*begin, self.prefix, *head, self.suffix, *_inner(tokenizer, after), self.middle)


def infill_of(tokenizer: Tokenizer) -> Infill | None:
    """Return the fill-in-the-middle tokens; None if the tokenizer has none."""
    for names, ends in _FAMILIES:
        found, others = _ids(tokenizer, names), _ids(tokenizer, ends)
        if len(found) == len(names):
            prefix, suffix, middle = found
            return Infill(prefix, suffix, middle, tuple(others))
    return None


def _ids(tokenizer: Tokenizer, names: Iterable[str]) -> list[int]:
    return [token for name in names if (token := _id(tokenizer, name)) is not None]


def _id(tokenizer: Tokenizer, name: str) -> int | None:
    """Return the id of a token by name; None if the tokenizer reads the name as plain text."""
    ids = tokenizer.encode(name, special=False)
    is_token = len(ids) == 1 and _plain(tokenizer.decode(ids, skip_special=False)) == _plain(name)
    return ids[0] if is_token else None


def _plain(name: str) -> str:
    """Return the name without spaces, which SentencePiece writes as U+2581 and decoders may drop."""
    return name.replace("\u2581", "").replace(" ", "")


def _inner(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text inside another, without the space that some tokenizers prepend."""
    ids = tokenizer.encode(text, special=False)
    first = tokenizer.encode("a", special=False)
    if not first or not tokenizer.token_bytes[first[0]].startswith(b" "):
        return ids
    mark, both = tokenizer.encode(_MARK, special=False), tokenizer.encode(_MARK + text, special=False)
    return both[len(mark) :] if both[: len(mark)] == mark else ids
