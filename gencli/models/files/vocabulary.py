"""Read vocabulary facts from a model's files, without its weights; compare two vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gencli.models.files.card import text_part
from gencli.models.files.config import read_config_if_any
from gencli.models.files.json_files import read_object_if_any
from gencli.models.gguf.head import is_gguf, read_gguf_head
from gencli.models.gguf.vocabulary import read_vocabulary
from gencli.text.pieces import read_rules

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer

__all__ = [
    "Difference",
    "OnTokenizer",
    "declared_ends",
    "declared_vocabulary",
    "end_ids",
    "first_difference",
    "grammar_support",
    "idle_ends",
]

# Called with the tokenizer, the width of the logits, and the ids that end a text.
OnTokenizer = Callable[["Tokenizer", int, tuple[int, ...]], None]


def declared_vocabulary(folder: Path, tokenizer: Tokenizer) -> tuple[int, tuple[int, ...]]:
    """Return the width of the logits and the end-of-text ids. Those of the loaded model may differ."""
    width = text_part(read_config_if_any(folder)).get("vocab_size")
    width = width if isinstance(width, int) else tokenizer.vocab_size
    return width, end_ids(declared_ends(folder), tokenizer, width)


def declared_ends(folder: Path) -> tuple[int, ...]:
    """Return the end-of-text ids in generation_config.json; without that file, those in config.json.

    A GGUF file names them with its tokens.
    """
    if is_gguf(folder):
        return tuple(read_vocabulary(read_gguf_head(folder)).ends)
    generation = read_object_if_any(folder / "generation_config.json")
    found = generation or text_part(read_config_if_any(folder))
    ends = found.get("eos_token_id")
    return (ends,) if isinstance(ends, int) else tuple(ends or ())


def end_ids(declared: Iterable[int], tokenizer: Tokenizer, width: int) -> tuple[int, ...]:
    """Return the end-of-text ids of the model and the tokenizer that are token ids.

    `width` is that of the logits. Ids beyond it, and -1, occur in configurations; they are never sampled.
    """
    most = min(width, tokenizer.vocab_size)
    return tuple(sorted(token for token in {*declared, *tokenizer.eos_ids} if 0 <= token < most))


def idle_ends(declared: Iterable[int], tokenizer: Tokenizer, width: int) -> Iterator[str]:
    """Yield a notice for each declared end-of-text id without a token."""
    usable = end_ids(declared, tokenizer, width)
    for token in declared:
        if token not in usable:
            yield f"Token id {token} is to end a text, but no token of the model has it: it ends none."


def grammar_support(folder: Path) -> Literal["exact", "decoded", "unknown"]:
    """Return how the bytes of a token are known: "exact" by the decoder's rules, or "decoded" in context."""
    if is_gguf(folder):
        return "exact"
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "unknown"
    decoder = read_object_if_any(path).get("decoder")
    return "exact" if decoder and read_rules(decoder) else "decoded"


Difference = tuple[int, str, str]  # token id, and its text in each tokenizer


def first_difference(one: Tokenizer, other: Tokenizer) -> Difference | None:
    """Return the first id with different tokens; None if there is none. Extra ids at one end do not count."""
    pairs = zip(one.token_bytes, other.token_bytes, strict=False)
    for token, (here, there) in enumerate(pairs):
        # Special tokens have no bytes, so their names are compared.
        if here != there or (here == b"" and _name(one, token) != _name(other, token)):
            return token, _name(one, token), _name(other, token)
    return None


def _name(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_special=False)
