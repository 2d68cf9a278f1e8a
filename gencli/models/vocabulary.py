"""What a model's files say of its vocabulary, before its weights are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gencli.models.jsonfiles import read_object_if_any
from gencli.text.pieces import read_rules

if TYPE_CHECKING:
    from gencli.tokenizer import Tokenizer

__all__ = ["OnTokenizer", "declared_vocabulary", "grammar_support"]

# Called with the tokenizer, the width of the logits, and the ids that end a text.
OnTokenizer = Callable[["Tokenizer", int, tuple[int, ...]], None]


def declared_vocabulary(folder: Path, tokenizer: Tokenizer) -> tuple[int, tuple[int, ...]]:
    """The width of the logits and the ids that end a text; the loaded model may know better."""
    config = read_object_if_any(folder / "config.json")
    generation = read_object_if_any(folder / "generation_config.json")
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    width = text.get("vocab_size")
    ends = generation.get("eos_token_id") if generation else text.get("eos_token_id")
    ids = [ends] if isinstance(ends, int) else ends or []
    eos_ids = tuple(sorted({*ids, *tokenizer.eos_ids}))
    return width if isinstance(width, int) else tokenizer.vocab_size, eos_ids


def grammar_support(folder: Path) -> Literal["exact", "decoded", "unknown"]:
    """Whether grammars know the bytes of each token: by its own rules, or by decoding it among others."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "unknown"
    decoder = read_object_if_any(path).get("decoder")
    return "exact" if decoder and read_rules(decoder) else "decoded"
