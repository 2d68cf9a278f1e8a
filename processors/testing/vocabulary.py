"""`ToyVocabulary`: a small vocabulary with the difficult cases of real ones."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ToyVocabulary"]

_SPECIAL = ("<s>", "</s>", "<|user|>")
_WORDS = (
    *(" the", "the", "th", " cat", "cat", "at", " sat", "he c", "aba", "ab", "ba", "aa"),
    *("\n\n", '{"', '":', "é", "éa", "😀", " 😀", "日本", "</"),
)
_PIECES = (b"\xf0\x9f", b"\x98\x80", b"a\xc3", b"\xa9b")  # parts of UTF-8 characters


class ToyVocabulary:
    """Three special ids, some words, parts of characters, and all 256 bytes, so that any text can be encoded.

    Ids 0, 1, 2 are <s>, </s> and <|user|>; `eos_ids` is (1,).
    """

    eos_ids: tuple[int, ...] = (1,)

    def __init__(self) -> None:
        singles = (bytes([byte]) for byte in range(256))
        self._token_bytes = (*[b""] * len(_SPECIAL), *map(str.encode, _WORDS), *_PIECES, *singles)
        self._ids = {data: token for token, data in enumerate(self._token_bytes) if data}

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self._token_bytes)

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of special tokens."""
        return frozenset(range(len(_SPECIAL)))

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """The bytes that each id adds to the text."""
        return self._token_bytes

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of a text, by greedy longest match; with `special`, <s> in front."""
        data, ids = text.encode(), [0] if special else []
        longest = max(map(len, self._ids))
        while data:
            size = next(n for n in range(longest, 0, -1) if data[:n] in self._ids)
            ids.append(self._ids[data[:size]])
            data = data[size:]
        return ids

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of the ids; special ids add none."""
        return b"".join(self._token_bytes[token] for token in ids)
