"""Stages that mask tokens: `tail`, `allowed`, `suppress` and `begin_suppress` by list or range,
`min_tokens`, `ignore_eos` and `eos_above` for the end of a text, and `ban`, which keeps texts out of
the output in any tokenization and may take tokens back.
"""

from __future__ import annotations

import copy
import functools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from processors.base import Admission, Env, Processor, Settled
from processors.errors import ParamError, TokenError
from processors.later import graphs, torch
from processors.params import MOST, Note, Params, Phase, param, parameters
from processors.request_values import Automaton
from processors.stages.shared import LOWEST, IdStage, TableStage, check_texts, checked, mask, mask_pairs
from processors.stages.truncation import by_parts, mass, total_mass

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows, Visible


@parameters
class TailParams(Params):
    """Mask the ids that the model has and the tokenizer does not."""

    size: int = param(
        0, "Number of ids the tokenizer knows; ids from there on are masked, 0 is off.", ge=0, le=MOST
    )


class Tail(Processor[TailParams]):
    """x[i] = -inf for i >= size: ids with a logit that the tokenizer does not know."""

    name = "tail"
    phase = Phase.CONSTRAIN
    Params = TailParams
    about = Note(
        "x[i] = -inf for i >= size",
        "Models pad their vocabulary; the ids behind the tokenizer's last one have no text.",
        "tail=32000",
        "set by gencli itself; llama.cpp and vLLM leave such ids to the model",
    )

    example_values = ({"size": 284}, {"size": 40}, {"size": 10_000})

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Writes only columns from the smallest `size` of the rows on."""
        first = min(self.columns.known("size", rows))
        end = logits[:, first:]
        ids = torch.arange(first, first + end.shape[1], device=logits.device)
        end.masked_fill_(ids >= self.columns.gather("size", rows)[:, None], -math.inf)
        return logits


@parameters
class AllowedParams(Params):
    """Allow only the listed ids."""

    ids: tuple[int, ...] | None = param(None, "Only these token ids may be chosen.", ge=0, le=MOST)

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.ids == ():
            raise ParamError("ids is an empty list, which would allow nothing. Leave it out to allow all.")


class Allowed(IdStage[AllowedParams]):
    """x[i] = -inf for i not in ids. TokenError at admission: an id outside the vocabulary."""

    name = "allowed"
    phase = Phase.CONSTRAIN
    Params = AllowedParams
    about = Note(
        "x[i] = -inf for i not in ids",
        "vLLM's allowed_token_ids.",
        "allowed=[42,43]",
        "vLLM allowed_token_ids, transformers prefix_allowed_tokens_fn",
    )

    example_values = ({"ids": (5,)}, {"ids": (9, 3, 200, 9)}, {"ids": tuple(range(284))})

    def listed(self, params: AllowedParams, request: Admission) -> Iterable[int]:
        return checked(params.ids or (), self.env, "allowed")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]: -inf, with the listed logits copied in."""
        ids, _ = self.ids.gather(rows)
        return torch.full_like(logits, -math.inf).scatter_(1, ids, logits.gather(1, ids))


@parameters
class SuppressParams(Params):
    """Mask the listed ids."""

    ids: tuple[int, ...] = param((), "These token ids are never chosen.", ge=0, le=MOST)


class Suppress(IdStage[SuppressParams]):
    """x[i] = -inf for i in ids. TokenError at admission: an id outside the vocabulary."""

    name = "suppress"
    phase = Phase.CONSTRAIN
    Params = SuppressParams
    about = Note(
        "x[i] = -inf for i in ids",
        "transformers' SuppressTokensLogitsProcessor.",
        "suppress=[0,1]",
        "transformers suppress_tokens, llama.cpp --logit-bias ID-inf",
    )

    example_values = ({"ids": (0,)}, {"ids": (7, 5, 7)})

    def listed(self, params: SuppressParams, request: Admission) -> Iterable[int]:
        return checked(params.ids, self.env, "suppress")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        return mask(logits, *self.ids.gather(rows))


@parameters
class BeginSuppressParams(Params):
    """Mask the listed ids at the beginning of the output."""

    ids: tuple[int, ...] = param((), "These token ids are never the first one of the output.", ge=0, le=MOST)


class BeginSuppress(IdStage[BeginSuppressParams]):
    """x[i] = -inf for i in ids, for the first token of the output.

    TokenError at admission: an id outside the vocabulary.
    """

    name = "begin_suppress"
    phase = Phase.CONSTRAIN
    Params = BeginSuppressParams
    about = Note(
        "x[i] = -inf for i in ids, at the first output position",
        "transformers' SuppressTokensAtBeginLogitsProcessor.",
        "begin_suppress=[220,50257]",
        "transformers begin_suppress_tokens",
    )

    example_values = ({"ids": (0,)}, {"ids": (7, 5, 7)})

    def listed(self, params: BeginSuppressParams, request: Admission) -> Iterable[int]:
        return checked(params.ids, self.env, "begin_suppress")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        ids, filled = self.ids.gather(rows)
        return mask(logits, ids, filled & (rows.positions == 0)[:, None])

    def idle(self, rows: Rows) -> list[str]:
        return ["" if position == 0 else "not the first token" for position in rows.positions.tolist()]


@parameters
class MinTokensParams(Params):
    """Mask every end-of-text and stop id until enough tokens are there."""

    count: int = param(
        0, "No end of text, stop id or stop string before this many output tokens.", ge=0, le=MOST
    )


class MinTokens(IdStage[MinTokensParams]):
    """x[i] = -inf for every end-of-text and stop id while the output has fewer than `count` tokens.

    Drafts that a row sees count as output. TokenError at admission: an id outside the vocabulary.
    """

    name = "min_tokens"
    phase = Phase.CONSTRAIN
    Params = MinTokensParams
    about = Note(
        "x[i] = -inf for every end-of-text and stop id i while fewer than count tokens are there",
        "transformers' MinNewTokensLengthLogitsProcessor.",
        "min_tokens=20",
        "transformers min_new_tokens, vLLM and SGLang min_tokens",
    )

    example_values = ({"count": 1}, {"count": 4}, {"count": 100})

    def listed(self, params: MinTokensParams, request: Admission) -> Iterable[int]:
        return checked((*self.env.eos_ids, *request.stop_ids), self.env, "min_tokens")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        ids, filled = self.ids.gather(rows)
        early = rows.positions < self.columns.gather("count", rows)
        return mask(logits, ids, filled & early[:, None])

    def idle(self, rows: Rows) -> list[str]:
        counts, positions = self.columns.gather("count", rows).tolist(), rows.positions.tolist()
        pairs = zip(counts, positions, strict=True)
        return [f"{count} tokens are reached" if position >= count else "" for count, position in pairs]


@parameters
class IgnoreEosParams(Params):
    """Mask the end-of-text ids, so that no end marker appears."""

    enabled: bool = param(False, "Never choose an end-of-text id.")


class IgnoreEos(IdStage[IgnoreEosParams]):
    """x[i] = -inf for every end-of-text id; stop ids are not masked.

    TokenError at admission: an end-of-text id outside the vocabulary.
    """

    name = "ignore_eos"
    phase = Phase.CONSTRAIN
    Params = IgnoreEosParams
    about = Note(
        "x[i] = -inf for every end-of-text id i",
        "vLLM's and llama.cpp's ignore_eos; here the id is masked, so none appears in the text.",
        "ignore_eos=true",
        "llama.cpp --ignore-eos masks as well; vLLM and SGLang generate the id and go on",
    )

    example_values = ({"enabled": True},)

    def listed(self, params: IgnoreEosParams, request: Admission) -> Iterable[int]:
        return checked(self.env.eos_ids, self.env, "ignore_eos") if params.enabled else ()

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        return mask(logits, *self.ids.gather(rows))


@parameters
class EosAboveParams(Params):
    """End the text as soon as its end is likely."""

    p: float = param(
        0.0, "Allow only end-of-text ids where one is more probable than this; 0 is off.", ge=0, lt=1
    )


class EosAbove(IdStage[EosAboveParams]):
    """x[i] = -inf for every other id i if some end-of-text id e has p[e] > p, p = softmax(x).

    TokenError at admission: an end-of-text id outside the vocabulary.
    """

    name = "eos_above"
    phase = Phase.CONSTRAIN
    Params = EosAboveParams
    about = Note(
        "x[i] = -inf for every i that ends no text, where p[e] > p for an end-of-text id e",
        "transformers' BarkEosPrioritizerLogitsProcessor.",
        "eos_above=0.2",
        "transformers min_eos_p",
    )

    example_values = tuple({"p": p} for p in (1e-300, 0.003, 0.999))

    def listed(self, params: EosAboveParams, request: Admission) -> Iterable[int]:
        return checked(self.env.eos_ids, self.env, "eos_above")

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Masses are float64."""
        ids, filled = self.ids.gather(rows)
        ends = logits.gather(1, ids)
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        bound = self.columns.exact("p", rows)[:, None] * by_parts(total_mass, logits, peak)
        likely = mass(ends.amax(1, keepdim=True), peak) > bound
        decided = filled & likely
        kept = torch.where(decided, ends, logits.gather(1, ids))
        return logits.masked_fill_(decided, -math.inf).scatter_(1, ids, kept)

    def idle(self, rows: Rows) -> list[str]:
        return [f"no end of text above {p:g}" for p in self.columns.exact("p", rows).tolist()]


_Span = tuple[int, int]


BAN_LIMIT = 16384  # bytes of all banned texts; the stage's tables grow with them
REWIND_LIMIT = 256  # bytes of a text that is banned with rewind; up to this much output is held back


@parameters
class BanParams(Params):
    """Keep texts out of the output, however they are cut into tokens."""

    texts: tuple[str, ...] = param((), "These texts never appear in the output, not even inside a word.")
    rewind: bool = param(
        False,
        "Where such a text appears, go back to the token where it began, ban that one there and draw again.",
    )
    ignore_case: bool = param(
        False,
        "A to Z are as a to z; other letters are found as written, in lower or upper case, capitals first.",
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        longest = max((len(text.encode(errors="surrogatepass")) for text in self.texts), default=0)
        if self.rewind and longest > REWIND_LIMIT:
            raise ParamError(
                f"texts has one of {longest} bytes, but with rewind the limit is {REWIND_LIMIT}. "
                "Shorten it, or leave rewind out."
            )
        check_texts("texts", self.texts, BAN_LIMIT, ", which would ban everything")


class Ban(TableStage[BanParams, "Banned"]):
    """Mask every token that would complete one of the texts.

    Matches bytes, so a text is found inside words, across tokens and across partial characters, also if it
    begins in the prompt. Special tokens have no bytes and do not interrupt a text. With `rewind`, if the
    caller can take tokens back, a text is removed once it is complete (see Rewinder); otherwise it is masked.
    TokenError at admission: no tokenizer.
    """

    name = "ban"
    phase = Phase.CONSTRAIN
    Params = BanParams
    about = Note(
        "x[i] = -inf where output + token i holds a banned text, however it is cut into tokens; "
        "with rewind for the ids with which one began at this place",
        "Aho and Corasick 1975, on the bytes of the tokens.",
        'ban=["fox","once upon"]',
        "bad_words of transformers and vLLM see whole tokenizations only; rewind is what ExLlamaV2's and "
        "koboldcpp's banned_strings do",
    )

    example_values = (
        {"texts": ("cat",)},
        {"texts": ("aba", "bab", "ab")},
        {"texts": ("\n", "é")},
        {"texts": ("😀", "the cat sat", "he")},
        {"texts": ("ABA", "É"), "ignore_case": True},
        {"texts": ("ab", " the"), "rewind": True},
    )

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._rewinders: dict[int, Rewinder] = self.by_slot(lambda rewinder: rewinder.fork())

    def admit(self, slot: int, params: BanParams, request: Admission) -> None:
        super().admit(slot, params, request)
        banned = self._of[slot]
        self._rewinders.pop(slot, None)
        if params.rewind and request.can_rewind:
            rewinder = self._rewinders[slot] = Rewinder(banned.automaton, banned.token_bytes)
            rewinder.read_prompt(request.prompt)

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
        if rewinder := self._rewinders.get(slot):
            rewinder.read(tokens)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct list of texts."""
        places: dict[Banned, list[int]] = {}
        pairs: list[tuple[int, int]] = []
        for row, slot in enumerate(rows.host_slots):
            rewinder = self._rewinders.get(slot)
            if rewinder is None or rewinder.is_masking:
                places.setdefault(self._of[slot], []).append(row)
            if rewinder is not None and rewinder.has_bans:
                pairs += [(row, token) for token in rewinder.banned(len(rows.host_drafts[row]))]
        for banned, index in places.items():
            at = graphs.upload(index, logits.device)
            tail = banned.spelling.tail(rows.select(index).visible(), banned.reach)
            banned.mask(logits, at[:, None], tail)
        if pairs:
            mask_pairs(logits, pairs)
        return logits

    def idle(self, rows: Rows) -> list[str]:
        return ["no token completes a banned text"] * len(rows)

    @functools.cached_property
    def _spelling(self) -> VocabularyBytes:
        if self.env.vocabulary is None:
            raise TokenError("ban works on texts, but there is no tokenizer. Use suppress with token ids.")
        return VocabularyBytes(self.env.vocabulary.token_bytes, self.env.vocab_size, self.env.device)

    @functools.cached_property
    def _lowered(self) -> VocabularyBytes:
        plain = [data.lower() for data in self._spelling.token_bytes]
        return VocabularyBytes(plain, self.env.vocab_size, self.env.device)

    def tables(self, params: BanParams) -> Banned:
        texts, spelling = params.texts, self._spelling
        if params.ignore_case:
            texts, spelling = tuple(dict.fromkeys(form for t in texts for form in _forms(t))), self._lowered
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

    def __init__(self, texts: tuple[bytes, ...], spelling: VocabularyBytes) -> None:
        device = spelling.order.device
        self.spelling, self.token_bytes = spelling, spelling.token_bytes
        self.automaton = automaton = Automaton(texts)
        self.reach = max(map(len, texts)) - 1  # number of last bytes that may belong to a text in progress
        self._order = spelling.order
        always = [token for token in range(spelling.width) if automaton.hits(spelling.token_bytes[token])]
        self._always = graphs.upload(always, device, torch.int64)
        rows = [[*row, 0] for row in automaton.table]  # NO_BYTE leads to the start state
        self._table = graphs.upload(rows, device, torch.int32).flatten()
        spans = _spans(automaton, texts, spelling)
        flat = [span for state in spans for span in state] or [(0, 0)]
        table = graphs.upload(flat, device, torch.int64)
        self._starts, self._sizes = table[:, 0].contiguous(), table[:, 1] - table[:, 0]
        self._counts = graphs.upload([len(state) for state in spans], device)
        self._first = self._counts.cumsum(0) - self._counts
        self._most_spans = max(map(len, spans))
        self._most_ids = max(sum(high - low for low, high in state) for state in spans)

    def mask(self, logits: Tensor, at: Tensor, tail: Tensor) -> None:
        """Mask the forbidden ids in the rows `at` [A, 1] of the logits, given the bytes before them."""
        logits.index_put_((at, self._always), logits.new_full((), -math.inf))  # a number would synchronise
        if self._most_ids:
            state = tail.new_zeros(len(tail))
            for byte in tail.T.flip(0):  # they come latest first
                state = self._table[state * (NO_BYTE + 1) + byte].long()
            ids, any_forbidden = self._completing(state)
            logits[at, ids] = logits[at, ids].masked_fill_(any_forbidden, -math.inf)

    def _completing(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids [A, N] that complete a text in progress, padded with the last, and if any do [A, 1]."""
        columns = torch.arange(self._most_spans, device=state.device)
        at = (self._first[state][:, None] + columns).clamp_(max=len(self._starts) - 1)
        sizes = torch.where(columns < self._counts[state][:, None], self._sizes[at], 0)
        ends = sizes.cumsum(1)
        total = ends[:, -1:]
        index = torch.arange(self._most_ids, device=state.device).minimum(total - 1).clamp_(min=0)
        span = torch.searchsorted(ends, index, right=True).clamp_(max=self._most_spans - 1)
        where = self._starts[at].gather(1, span) + index - (ends - sizes).gather(1, span)
        return self._order[where], total > 0


def _spans(automaton: Automaton, texts: tuple[bytes, ...], spelling: VocabularyBytes) -> list[list[_Span]]:
    """Return for each state the spans of tokens that start with the rest of a text in progress.

    The texts in progress in a state include those in progress in its fallback.
    """
    begun: dict[int, set[_Span]] = {}
    for text, path in zip(texts, automaton.paths, strict=True):
        for size in range(max(1, len(text) - spelling.longest), len(text)):
            low, high = spelling.starting_with(text[size:])
            if low < high:
                begun.setdefault(path[size - 1], set()).add((low, high))
    spans: list[list[_Span]] = [[]] * len(automaton.states)
    for state in automaton.states:
        spans[state] = inherited = spans[automaton.fallback[state]]
        if state in begun:
            spans[state] = []
            # Spans of prefixes are nested or disjoint; those inside another one are dropped.
            for span in sorted(begun[state].union(inherited), key=lambda span: (span[0], -span[1])):
                if not spans[state] or span[0] >= spans[state][-1][1]:
                    spans[state].append(span)
    return spans


MOST_REWINDS = 32  # rewinds without a new certain token; then the texts are masked until there is one
MOST_HELD = 64  # limit of held tokens, each of which is a row of logits in the next step


class Rewinder:
    """Banned texts of a slot, and the state of their automaton after its certain output.

    Tokens whose bytes may still become a banned text are held. If a text is complete, the output is cut back
    to the token with the text's first byte, or to the first token that is not certain. The id at that
    position is banned there as long as the tokens before it stay. Tokens are processed one by one, so the
    result does not depend on how many tokens a step chose.
    """

    def __init__(self, automaton: Automaton, token_bytes: Sequence[bytes]) -> None:
        self._automaton, self._token_bytes = automaton, token_bytes
        self._state = 0  # automaton state after the certain tokens
        self._count = 0  # number of certain output tokens
        self._bans: dict[int, set[int]] = {}  # banned ids by output position
        self._held: tuple[int, ...] = ()
        self._misses = 0  # rewinds since a token became certain

    @property
    def is_masking(self) -> bool:
        """Whether the texts have to be masked, after MOST_REWINDS rewinds without a certain token."""
        return self._misses >= MOST_REWINDS

    @property
    def has_bans(self) -> bool:
        return bool(self._bans)

    def banned(self, drafts: int) -> set[int]:
        """Return the ids banned after this number of drafts."""
        return self._bans.get(self._count + drafts, set())

    def fork(self) -> Rewinder:
        """Return an independent copy."""
        other = copy.copy(self)
        other._bans = {position: {*ids} for position, ids in self._bans.items()}
        return other

    def read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._state = self._step(self._state, token)[0]
        if self._held[: len(tokens)] == tuple(tokens):
            self._held = self._held[len(tokens) :]
        self._count += len(tokens)
        self._bans = {position: ids for position, ids in self._bans.items() if position >= self._count}

    def read_prompt(self, tokens: Sequence[int]) -> None:
        """Read the end of the prompt, in which a text may begin."""
        longest, size, first = max(self._automaton.depth), 0, len(tokens)
        while first and size < longest:
            first -= 1
            size += len(self._token_bytes[tokens[first]])
        self.read(tokens[first:])
        self._count = 0

    def may_hold(self, tokens: Sequence[int]) -> bool:
        """Whether `settle` may hold or take back any of these tokens."""
        state = self._state
        for token in tokens:
            state, end, _ = self._step(state, token)
            if end or self._automaton.depth[state]:
                return True
        return self._misses > 0

    def settle(self, tokens: Sequence[int], *, is_final: bool) -> Settled:
        """Hold tokens that may begin a banned text, and take a complete one back; see Processor.settle."""
        # Drop the bans after a held token that came out differently, as rounding differs between batches.
        pairs = enumerate(zip(self._held, tokens, strict=False))
        if (first := next((n for n, (old, new) in pairs if old != new), None)) is not None:
            self._bans = {at: ids for at, ids in self._bans.items() if at <= self._count + first}
        ends, state, certain = [0], self._state, 0  # end offset in bytes of each token
        for index, token in enumerate(tokens):
            size = len(self._token_bytes[token]) if token < len(self._token_bytes) else 0
            ends.append(ends[-1] + size)
            state, length, end = self._step(state, token)
            if length:
                began = _token_at(ends, ends[index] + end - length)
                # Cut the output back to before that token, and ban its id at its position.
                index = max(certain, began)
                position = self._count + index
                self._bans.setdefault(position, set()).add(tokens[index])
                self._bans = {at: ids for at, ids in self._bans.items() if at <= position}
                self._misses += 1
                return self._keep(tokens[:index], certain, is_whole=False)
            depth = self._automaton.depth[state]
            safe = _token_at(ends, ends[-1] - depth) if depth else index + 1
            safe = max(safe, index + 1 - MOST_HELD)
            if safe > certain:
                certain, was_masking, self._misses = safe, self.is_masking, 0
                if was_masking and index + 1 < len(tokens):  # the tokens after it were chosen under the mask
                    return self._keep(tokens[: index + 1], certain, is_whole=False)
        return self._keep(tokens, len(tokens) if is_final else certain)

    def _keep(self, tokens: Sequence[int], certain: int, *, is_whole: bool = True) -> Settled:
        self._held = tuple(tokens)
        return Settled(certain, len(tokens) - certain, is_whole)

    def _step(self, state: int, token: int) -> tuple[int, int, int]:
        """Return the state after a token, the length of a text that ends in it (0: none), and its end."""
        table, ending = self._automaton.table, self._automaton.ending
        length, end = 0, 0
        data = self._token_bytes[token] if token < len(self._token_bytes) else b""
        for offset, byte in enumerate(data, start=1):
            state = table[state][byte]
            if ending[state] and not length:
                length, end = ending[state], offset
        return state, length, end


def _token_at(ends: Sequence[int], byte: int) -> int:
    """Return the index of the token that contains a byte, -1 for a byte before all.

    `ends`: 0, then end offsets.
    """
    return bisect_right(ends, byte) - 1


NO_BYTE = 256  # stands for bytes before the start of the text


class VocabularyBytes:
    """The bytes of each token. Special tokens have none and are skipped."""

    def __init__(self, token_bytes: Sequence[bytes], width: int, device: torch.device) -> None:
        missing = [b""] * (width - len(token_bytes))  # ids without a token in the tokenizer
        self.token_bytes = [*token_bytes, *missing]
        self.longest = max(map(len, self.token_bytes), default=0)
        flat = bytearray(b"".join(self.token_bytes) or b"\0")
        self._flat = torch.frombuffer(flat, dtype=torch.uint8).to(device, non_blocking=True)
        self._lengths = graphs.upload([len(data) for data in self.token_bytes], device)
        self._starts = self._lengths.cumsum(0) - self._lengths
        self.width = width
        ids = sorted(range(width), key=self.token_bytes.__getitem__)
        self.order = graphs.upload(ids, device)
        self._sorted = [self.token_bytes[token] for token in ids]

    def starting_with(self, prefix: bytes) -> tuple[int, int]:
        """Return the range in `order` of the tokens that start with these bytes."""
        size = len(prefix)
        low = bisect_left(self._sorted, prefix)
        return low, bisect_right(self._sorted, prefix, lo=low, key=lambda data: data[:size])

    def tail(self, seen: Visible, size: int) -> Tensor:
        """Return the last `size` bytes before each row [R, size], latest first; NO_BYTE before the start."""
        ids = torch.nn.functional.pad(seen.ids, (1, 0)).flip(1)  # one extra column, so that W > 0
        counted = torch.nn.functional.pad(seen.valid, (1, 0)).flip(1)
        # Bytes from the start of each token to the end.
        ends = torch.where(counted, self._lengths[ids], 0).cumsum(1)
        places = torch.arange(size, device=ids.device).expand(len(ids), -1).contiguous()
        at = torch.searchsorted(ends, places, right=True)  # index of the token that contains the byte
        within = at < ids.shape[1]
        at = at.clamp(max=ids.shape[1] - 1)
        offset = (ends.gather(1, at) - 1 - places).clamp(min=0)
        byte = self._flat[(self._starts[ids.gather(1, at)] + offset).clamp(max=len(self._flat) - 1)].long()
        return torch.where(within, byte, NO_BYTE)
