"""The stage `ban`: keep texts out of the output in any tokenization."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor, Settled
from processors.catalog import BanParams, Phase
from processors.errors import TokenError
from processors.rows import Rows
from processors.stages.automaton import Automaton
from processors.stages.rewind import Rewinder
from processors.stages.spelling import NO_BYTE, Spelling
from processors.upload import upload

__all__ = ["Ban", "Banned"]

_Span = tuple[int, int]


class Ban(Processor[BanParams]):
    """Mask every token that would complete one of the texts.

    Matches bytes, so a text is found inside words, across tokens and across partial characters, also if it
    begins in the prompt. Special tokens have no bytes and do not interrupt a text. With `rewind`, if the
    caller can take tokens back, a text is removed once it is complete (see Rewinder); otherwise it is masked.
    TokenError at admission: no tokenizer.
    """

    name = "ban"
    phase = Phase.CONSTRAIN
    Params = BanParams

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._of: dict[int, Banned] = {}
        self._rewinders: dict[int, Rewinder] = {}
        self._build = functools.lru_cache(maxsize=16)(self._built)

    def admit(self, slot: int, params: BanParams, request: Admission) -> None:
        """Build the tables of the texts, or reuse those of an earlier request."""
        super().admit(slot, params, request)
        banned = self._of[slot] = self._build(params.texts, params.ignore_case)
        self._rewinders.pop(slot, None)
        if params.rewind and request.can_rewind:
            rewinder = self._rewinders[slot] = Rewinder(banned.automaton, banned.token_bytes)
            rewinder.read_prompt(request.prompt)

    def release(self, slot: int) -> None:
        """Drop the reference to the tables."""
        self._of.pop(slot, None)
        self._rewinders.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        """Share the immutable tables."""
        super().fork(source, target)
        self._of[target] = self._of[source]
        self._rewinders.pop(target, None)
        if rewinder := self._rewinders.get(source):
            self._rewinders[target] = rewinder.fork()

    def withholds(self, slot: int) -> bool:
        """Whether banned texts of the slot are taken back rather than masked."""
        return slot in self._rewinders

    def may_hold(self, slot: int, tokens: Sequence[int]) -> bool:
        """Whether a banned text may begin or end in these tokens."""
        return self._rewinders[slot].may_hold(tokens)

    def settle(self, slot: int, tokens: Sequence[int], *, is_final: bool) -> Settled:
        """Hold tokens that may begin a banned text; take back a complete one."""
        return self._rewinders[slot].settle(tokens, is_final=is_final)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot's rewinder, if it has one."""
        if rewinder := self._rewinders.get(slot):
            rewinder.read(tokens)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct list of texts."""
        places: dict[Banned, list[int]] = {}
        pairs: list[tuple[int, int]] = []
        for place, slot in enumerate(rows.host_slots):
            rewinder = self._rewinders.get(slot)
            if rewinder is None or rewinder.is_masking:
                places.setdefault(self._of[slot], []).append(place)
            if rewinder is not None and rewinder.has_bans:
                pairs += [(place, token) for token in rewinder.banned(len(rows.host_drafts[place]))]
        for banned, index in places.items():
            at = upload(index, logits.device)
            tail = banned.spelling.tail(rows.select(index).visible(), banned.reach)
            banned.mask(logits, at[:, None], tail)
        if pairs:
            at = upload(pairs, logits.device, torch.int64)
            # Assigning a Python number would synchronise with the device.
            logits.index_put_((at[:, 0], at[:, 1]), logits.new_full((), -math.inf))
        return logits

    def idle(self, rows: Rows) -> list[str]:
        """Return the reason: no token completes a banned text."""
        return ["no token completes a banned text"] * len(rows)

    @functools.cached_property
    def _spelling(self) -> Spelling:
        if self.env.vocabulary is None:
            raise TokenError("ban works on texts, but there is no tokenizer. Use suppress with token ids.")
        return Spelling(self.env.vocabulary.token_bytes, self.env.vocab_size, self.env.device)

    @functools.cached_property
    def _folded(self) -> Spelling:
        """The tokens' bytes with A to Z in lower case."""
        plain = [data.lower() for data in self._spelling.token_bytes]
        return Spelling(plain, self.env.vocab_size, self.env.device)

    def _built(self, texts: tuple[str, ...], ignore_case: bool) -> Banned:
        spelling = self._folded if ignore_case else self._spelling
        if ignore_case:
            texts = tuple(dict.fromkeys(form for text in texts for form in _forms(text)))
        return Banned(tuple(text.encode(errors="surrogatepass") for text in texts), spelling)


def _forms(text: str) -> tuple[str, ...]:
    """Return forms of a text for `ignore_case`: as written, lower, upper, title and capitalized; A-Z lowered.

    Letters outside ASCII change their byte length with case, so only these forms of them are matched.
    """
    forms = (text, text.lower(), text.upper(), text.title(), text.capitalize())
    return tuple(form.encode(errors="surrogatepass").lower().decode(errors="surrogatepass") for form in forms)


class Banned:
    """Tables of one list of texts: which tokens are forbidden in which state of the automaton.

    A token is forbidden in a state if its bytes lead from there through an accepting state. Either it
    contains a whole text, in any state, or it starts with the rest of a text in progress. Tokens with a
    common prefix are neighbours in sorted order, so a state stores a few spans instead of a row of V flags.
    """

    def __init__(self, texts: tuple[bytes, ...], spelling: Spelling) -> None:
        device = spelling.order.device
        self.spelling, self.token_bytes = spelling, spelling.token_bytes
        self.automaton = automaton = Automaton(texts)
        self.reach = max(map(len, texts)) - 1  # number of last bytes that may belong to a text in progress
        self._order = spelling.order
        always = [token for token in range(spelling.width) if automaton.hits(spelling.token_bytes[token])]
        self._always = upload(always, device, torch.int64)
        rows = [[*row, 0] for row in automaton.table]  # NO_BYTE leads to the start state
        self._table = upload(rows, device, torch.int32).flatten()
        spans = _spans(automaton, texts, spelling)
        flat = [span for state in spans for span in state] or [(0, 0)]
        table = upload(flat, device, torch.int64)
        self._starts, self._sizes = table[:, 0].contiguous(), table[:, 1] - table[:, 0]
        self._counts = upload([len(state) for state in spans], device)
        self._first = self._counts.cumsum(0) - self._counts
        self._most_spans = max(map(len, spans))
        self._most_ids = max(sum(high - low for low, high in state) for state in spans)

    def mask(self, logits: Tensor, at: Tensor, tail: Tensor) -> None:
        """Mask the forbidden ids in the rows `at` [A, 1] of the logits, given the bytes before them."""
        logits.index_put_((at, self._always), logits.new_full((), -math.inf))  # a number would synchronise
        if self._most_ids:
            ids, any_forbidden = self._completing(self._state(tail))
            logits[at, ids] = logits[at, ids].masked_fill_(any_forbidden, -math.inf)

    def _state(self, tail: Tensor) -> Tensor:
        """Return the state [A] after the bytes [A, reach], given latest first."""
        state = tail.new_zeros(len(tail))
        for byte in tail.T.flip(0):
            state = self._table[state * (NO_BYTE + 1) + byte].long()
        return state

    def _completing(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids [A, N] that complete a text in progress, padded with the last, and if any do [A, 1]."""
        columns = torch.arange(self._most_spans, device=state.device)
        at = (self._first[state][:, None] + columns).clamp_(max=len(self._starts) - 1)
        sizes = torch.where(columns < self._counts[state][:, None], self._sizes[at], 0)
        ends = sizes.cumsum(1)
        total = ends[:, -1:]
        place = torch.arange(self._most_ids, device=state.device).minimum(total - 1).clamp_(min=0)
        span = torch.searchsorted(ends, place, right=True).clamp_(max=self._most_spans - 1)
        where = self._starts[at].gather(1, span) + place - (ends - sizes).gather(1, span)
        return self._order[where], total > 0


def _spans(automaton: Automaton, texts: tuple[bytes, ...], spelling: Spelling) -> list[list[_Span]]:
    """Return for each state the spans of tokens that start with the rest of a text in progress.

    The texts in progress in a state include those in progress in its fallback.
    """
    own: dict[int, set[_Span]] = {}
    for text, path in zip(texts, automaton.paths, strict=True):
        for size in range(max(1, len(text) - spelling.longest), len(text)):
            low, high = spelling.starting_with(text[size:])
            if low < high:
                own.setdefault(path[size - 1], set()).add((low, high))
    spans: list[list[_Span]] = [[]] * len(automaton.states)
    for state in automaton.states:
        inherited = spans[automaton.fallback[state]]
        spans[state] = _merged(own[state].union(inherited)) if state in own else inherited
    return spans


def _merged(spans: set[_Span]) -> list[_Span]:
    """Return the spans that lie in no other; two spans of prefixes are nested or disjoint."""
    kept: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept
