"""Translation of tokens between two vocabularies, through text; the translated text of one sample."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Iterable, Sequence

from gencli.errors import ModelError
from gencli.speculative.drafter import SampleTokens
from gencli.text.tokenizer import Tokenizer
from processors.grammar.forced_tokens import tokens_behind

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
            ids = tokenizer.encode(_EXAMPLE, special=False)
            spelled = b"".join(tokenizer.token_bytes[token] for token in ids).decode(errors="replace")
            if spelled.strip() != _EXAMPLE:
                raise ModelError(
                    f"{names[1]} cannot draft through text: the tokenizer of {name} makes {spelled!r} of "
                    f"{_EXAMPLE!r}.",
                    hint="Take a draft model whose tokens spell texts as they are; ngram and suffix need no "
                    "model.",
                )
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
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()


def _markers(tokenizer: Tokenizer) -> dict[str, int]:
    return {tokenizer.decode([token], skip_special=False): token for token in tokenizer.special_ids}


_OPEN_BYTES = 32  # bytes at the end of the open text, whose tokens may change with later text
_MAX_OPEN = 128  # characters that are tokenized again before some of their tokens are settled
_ANCHOR = 32  # characters of context before them for the tokenizer


class Transcript:
    """The text of target tokens, in the tokens of the draft model, after its beginning-of-text token.

    The result depends on the target tokens alone, not on when it is read. A special token of the target
    becomes the draft model's of the same name, or nothing; no token spans it. Bytes of an incomplete
    character are `pending` and not part of the tokens.
    """

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._settled = list(translation.beginning)
        self._before, self._open = "", ""  # settled text before the open text; open text
        self._spelled: tuple[int, ...] | None = ()  # tokens of the open text; None if not computed
        self.num_read = 0  # number of target tokens so far

    def fork(self) -> Transcript:
        other = copy.copy(self)
        other._utf8, other._settled = copy.copy(self._utf8), self._settled.copy()
        return other

    @property
    def num_settled(self) -> int:
        """Number of draft model tokens that later text cannot change."""
        return len(self._settled)

    @property
    def tokens(self) -> SampleTokens:
        if self._spelled is None:
            self._spelled = self._spell()
        return SampleTokens(self._settled, self._spelled)

    @property
    def anchor(self) -> str:
        """The last 32 characters of the text."""
        return (self._before + self._open)[-_ANCHOR:]

    @property
    def pending(self) -> bytes:
        """The bytes of an incomplete character at the end."""
        return self._utf8.getstate()[0]

    def push(self, token: int) -> None:
        """Append a target token."""
        self._spelled = None
        self.num_read += 1
        if token in self._translation.target.special_ids:
            self._open += self._utf8.decode(b"", final=True)
            self._settled += self._spell()
            self._before = self._open = ""
            is_beginning = self.num_read == 1 and token == self._translation.target.bos_id
            if not is_beginning and (marker := self._translation.to_draft.get(token)) is not None:
                self._settled.append(marker)
            return
        token_bytes = self._translation.target.token_bytes  # prompts may have ids beyond the tokenizer
        self._open += self._utf8.decode(token_bytes[token] if token < len(token_bytes) else b"")
        if len(self._open) > _MAX_OPEN:
            self._settle()

    def _spell(self) -> tuple[int, ...]:
        if not self._open:
            return ()
        draft = self._translation.draft
        behind = tokens_behind(draft, self._before, self._open) if self._before else ()
        return behind or tuple(draft.encode(self._open, special=False))

    def _settle(self) -> None:
        """Settle the tokens of the open text except for at least its last 32 bytes."""
        tokens, data, tail = self._spell(), self._open.encode(), b""
        for i in range(len(tokens) - 1, 0, -1):
            tail = self._translation.draft.token_bytes[tokens[i]] + tail
            begins_character = len(tail) >= _OPEN_BYTES and tail[0] & 0xC0 != 0x80
            if begins_character and data.endswith(tail):
                self._advance(tokens[:i], len(self._open) - len(tail.decode()))
                return
        # The tokens do not spell the text exactly, so any boundary is as good.
        boundary = len(self._open) - _OPEN_BYTES
        self._advance(tuple(self._translation.draft.encode(self._open[:boundary], special=False)), boundary)

    def _advance(self, tokens: tuple[int, ...], boundary: int) -> None:
        self._settled += tokens
        self._before = (self._before + self._open[:boundary])[-_ANCHOR:]
        self._open = self._open[boundary:]
