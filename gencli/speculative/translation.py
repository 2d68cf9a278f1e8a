"""Translation of tokens between two vocabularies, through the text that they spell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gencli.errors import ModelError
from gencli.text.tokenizer import Tokenizer
from processors.grammar.state.forced_tokens import tokens_behind

__all__ = ["Translation"]

_EXAMPLE = "The cat, and 12 dogs."


class Translation:
    """Translates tokens of a draft model to those of a target with another vocabulary.

    Special tokens correspond by name, end-of-text tokens by function; `ends` are further end-of-text ids of
    the draft model. `beginning`: tokens that the draft model's tokenizer puts before a text. Raises
    ModelError for a tokenizer whose tokens do not spell the text exactly.
    """

    def __init__(
        self, target: Tokenizer, draft: Tokenizer, *, ends: Iterable[int] = (), names: tuple[str, str]
    ) -> None:
        self.target, self.draft = target, draft
        for tokenizer, name in zip((target, draft), names, strict=True):
            _require_spelling(tokenizer, names[1], name)
        first = draft.encode("a")[:1]
        self.beginning = (draft.bos_id,) if draft.bos_id is not None and first == [draft.bos_id] else ()
        here, there = _markers(target), _markers(draft)
        self.to_draft = {token: there[name] for name, token in here.items() if name in there}
        self._to_target = {marker: token for token, marker in self.to_draft.items()}
        ends = (*draft.eos_ids, *ends)
        self.stops = draft.special_ids | set(ends)
        if target.eos_ids and ends:
            self.to_draft.setdefault(target.eos_ids[0], ends[0])
            self._to_target |= {end: target.eos_ids[0] for end in ends if end not in self._to_target}

    def proposal(self, anchor: str, pending: bytes, drawn: Sequence[int]) -> tuple[int, ...] | None:
        """Translate drawn draft model tokens to target tokens, after a text that ends with `anchor`.

        The drawn tokens start with the `pending` bytes, which the target's text already has; None if they
        differ from these. The last token is tokenized as if nothing followed; an incomplete character is left
        out.
        """
        is_ended = bool(drawn) and drawn[-1] in self.stops
        data = b"".join(self.draft.token_bytes[token] for token in (drawn[:-1] if is_ended else drawn))
        text = _whole(data)
        if not data.startswith(pending[: len(data)]):
            return None
        if len(data) < len(pending):
            return None if is_ended else ()
        tokens = self._behind(anchor, text, len(pending))
        end = self._to_target.get(drawn[-1]) if is_ended else None
        is_whole = len(text.encode()) == len(data) and (tokens or len(data) == len(pending))
        return (*tokens, end) if end is not None and is_whole else tokens

    def _behind(self, anchor: str, text: str, skipped: int) -> tuple[int, ...]:
        """Target tokens of `text` without its first `skipped` bytes; () if no token boundary is there."""
        # If no token boundary lies at the anchor, as inside a word, `text` is tokenized alone.
        tokens = tokens_behind(self.target, anchor, text) or tokens_behind(self.target, "", text)
        for i, token in enumerate(tokens):
            if skipped <= 0:
                return tokens[i:] if skipped == 0 else ()
            skipped -= len(self.target.token_bytes[token])
        return ()


def _whole(data: bytes) -> str:
    """The text up to the first byte that is not part of a complete character."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()


def _markers(tokenizer: Tokenizer) -> dict[str, int]:
    return {tokenizer.decode([token], skip_special=False): token for token in tokenizer.special_ids}


def _require_spelling(tokenizer: Tokenizer, draft: str, name: str) -> None:
    ids = tokenizer.encode(_EXAMPLE, special=False)
    given = b"".join(tokenizer.token_bytes[token] for token in ids).decode(errors="replace")
    if given.strip() != _EXAMPLE:
        raise ModelError(
            f"{draft} cannot draft through text: the tokenizer of {name} makes {given!r} of {_EXAMPLE!r}.",
            hint="Take a draft model whose tokens spell texts as they are; ngram and suffix need no model.",
        )
