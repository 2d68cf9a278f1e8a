"""From one vocabulary to another, by the text that their tokens stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gencli.errors import ModelError
from gencli.text.tokenizer import Tokenizer
from processors.grammar.state.forced_tokens import tokens_behind

__all__ = ["Translation"]

_EXAMPLE = "The cat, and 12 dogs."


class Translation:
    """What a draft's tokens are to a target of another vocabulary.

    Markers are those of the same name. The ends of texts are ends, whatever they are called: `ends` are the
    draft's. `beginning` is what the draft's tokenizer puts before a text. Raises ModelError for a tokenizer
    whose tokens do not spell a text.
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
        """What the drawn tokens are in the target's, behind a text that ends in `anchor`.

        They repeat the bytes that are `pending` behind it; None if they contradict these. The last token
        is what it is if nothing follows; a character that is not complete is left out.
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
        """The tokens of a text but for its first bytes; none if none begins behind these."""
        # A text that stops inside a word is spelled as it stands, and what follows as if it stood alone.
        tokens = tokens_behind(self.target, anchor, text) or tokens_behind(self.target, "", text)
        for i, token in enumerate(tokens):
            if skipped <= 0:
                return tokens[i:] if skipped == 0 else ()
            skipped -= len(self.target.token_bytes[token])
        return ()


def _whole(data: bytes) -> str:
    """The text up to the first byte that belongs to no character."""
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
