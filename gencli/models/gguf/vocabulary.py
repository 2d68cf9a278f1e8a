"""The vocabulary in a GGUF file: tokens, their kinds, and the ids with a role. Light to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gencli.errors import ModelError
from gencli.models.gguf.head import GgufHead

__all__ = ["BYTE", "CONTROL", "NORMAL", "UNKNOWN", "UNUSED", "USER_DEFINED", "Vocabulary", "read_vocabulary"]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_PREFIX = "tokenizer.ggml."
# Control tokens that end a turn or a text. Few files say so otherwise: llama.cpp knows them by these names.
_ENDS = frozenset(
    """
    <|eot_id|> <|im_end|> <|end|> <end_of_turn> <|endoftext|> <|end_of_text|> <|eom_id|> <EOT> </s> <eos>
    <end_of_utterance>
    """.split()
)
_SENTENCEPIECE = {"bos": 1, "eos": 2, "unknown": 0}  # ids of roles where the file names none
_ROLES = ("bos", "eos", "eot", "eom", "unknown", "padding")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, and the kind of each; `ids` are the ids with a role, such as "bos"."""

    tokens: Sequence[str]
    kinds: Sequence[int]
    ids: dict[str, int]

    @property
    def ends(self) -> list[int]:
        """The ids that end a text, sorted."""
        named = {self.ids[role] for role in ("eos", "eot", "eom") if role in self.ids}
        pairs = enumerate(zip(self.tokens, self.kinds, strict=True))
        return sorted(named | {index for index, (text, kind) in pairs if kind == CONTROL and text in _ENDS})

    @property
    def special(self) -> frozenset[str]:
        """The texts of the tokens that are no text."""
        pairs = zip(self.tokens, self.kinds, strict=True)
        return frozenset(text for text, kind in pairs if kind in (CONTROL, UNKNOWN))


def read_vocabulary(head: GgufHead) -> Vocabulary:
    """Return the vocabulary of a file. Raises ModelError if it has none, or a faulty one."""
    tokens = head.texts(f"{_PREFIX}tokens")
    if not tokens:
        raise ModelError(
            f"{head.path} has no tokenizer.", hint="Its converter left it out; take another file."
        )
    tokens = [text or f"[EMPTY_{index}]" for index, text in enumerate(tokens)]
    if len(set(tokens)) != len(tokens):
        raise head.wrong(f"{_PREFIX}tokens", "has a token twice")
    found = head.numbers(f"{_PREFIX}token_type")
    kinds = [NORMAL] * len(tokens) if found is None else [int(kind) for kind in found]
    if len(kinds) != len(tokens):
        raise head.wrong(f"{_PREFIX}token_type", f"has {len(kinds)} values for {len(tokens)} tokens")
    known = _SENTENCEPIECE if head.text(f"{_PREFIX}model") == "llama" else {}
    ids = {role: head.count(f"{_PREFIX}{role}_token_id") for role in _ROLES}
    given = {role: known.get(role) if number is None else number for role, number in ids.items()}
    inside = {role: number for role, number in given.items() if number is not None and number < len(tokens)}
    return Vocabulary(tokens, kinds, inside)
