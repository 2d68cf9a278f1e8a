"""The stages `no_repeat_ngram`, `dry` and `lz`: tokens that would continue a repetition of the last
tokens; positions where a repetition ends, and matches of suffixes.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from processors.base import Admission, Env, Processor, grown
from processors.errors import TokenError
from processors.later import graphs, torch
from processors.params import MOST, Note, Params, Phase, param, parameters
from processors.stages.shared import HIGHEST, LOWEST, Scope, check_texts, exempt_ids, grouped, place, quoted

if TYPE_CHECKING:
    from torch import Tensor

    from processors.history import History
    from processors.rows import Rows

P = TypeVar("P", bound="NoRepeatNgramParams | DryParams | LzParams")
_LOG_OF_MOST = 88.7228391  # ln of the largest float32; dry keeps base^exponent below it


@dataclass(frozen=True, slots=True, eq=False)
class _Copies:
    """Copies of each row: ids [A, W], each below V; `is_open` [A, W] where a penalty is allowed.

    lengths [A, W]: tokens before the copy that equal the last tokens, up to a cut. before [A, W]: tokens in
    scope before the copy. distance [A, W]: distance from the end, 1 for the last token. limit [A, 1]: tokens
    since the latest cut.
    """

    ids: Tensor
    lengths: Tensor
    is_open: Tensor
    before: Tensor
    limit: Tensor
    distance: Tensor


class _Repeats(Processor[P]):
    """Base of stages that lower the logits of copies. Drafts that a row sees are part of its text.

    A token forced by a grammar is never a copy or part of a repetition.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._suffixes = Suffixes(env.device)
        self._cuts = Cuts(env)

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Set the state after the prompt. TokenError for an exempt text that is not one token."""
        super().admit(slot, params, request)
        self._suffixes.admit(slot, request.prompt)
        exempt = exempt_ids(params.exempt, self.env, request, self.name)
        self._cuts.admit(slot, request.prompt, exempt=exempt, stage=self.name, **self._breakers(params))

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self._suffixes.commit(slot, tokens)
        self._cuts.commit(slot, tokens)

    def release(self, slot: int) -> None:
        self._suffixes.release(slot)
        self._cuts.release(slot)

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self._suffixes.copy(source, target)
        self._cuts.copy(source, target)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Among several copies of a token the lowest result counts."""
        copies = self._copies(logits.shape[1], rows)
        if copies is None:
            return logits
        old = logits.gather(1, copies.ids)
        new = torch.where(copies.is_open, self._lowered(old, copies, rows), old)
        return logits.scatter_reduce_(1, copies.ids, new, "amin")

    def notes(self, rows: Rows, tokens: Sequence[int]) -> list[str]:
        """Return for each row which tokens its token would repeat, their position, and the penalty."""
        copies = self._copies(self.env.vocab_size, rows)
        if copies is None:
            return [""] * len(rows)
        is_own = copies.is_open & (copies.ids == graphs.upload_ints(tokens, copies.ids.device)[:, None])
        zero = torch.zeros(copies.ids.shape, device=copies.ids.device)
        penalty = torch.where(is_own, -self._lowered(zero, copies, rows), 0)
        texts, longest = rows.visible().ids.tolist(), torch.where(is_own, copies.lengths, -1).max(1)
        totals = (rows.history.lengths[rows.slots] + rows.offsets).tolist()
        prompts = rows.history.prompt_lengths[rows.slots].tolist()
        wheres = map(place, longest.indices.tolist(), prompts)
        sizes, subtracted = longest.values.tolist(), penalty.amax(1).tolist()
        notes = []
        for token, text, total, size, where, less in zip(
            tokens, texts, totals, sizes, wheres, subtracted, strict=True
        ):
            repeated = quoted([*text[total - size : total], token], self.env.vocabulary)
            note = f"would repeat {repeated}, {size + 1} tokens, as at {where}"
            notes.append("" if size < 0 else note if less == math.inf else f"{note}: -{less:.3g}")
        return notes

    def idle(self, rows: Rows) -> list[str]:
        return ["no tail repeats"] * len(rows)

    @abstractmethod
    def _lowered(self, old: Tensor, copies: _Copies, rows: Rows) -> Tensor:
        """Return the logit [A, W] float32 of each copy, lowered from `old` [A, W]."""

    def _breakers(self, params: P) -> dict[str, Any]:
        return {}

    def _copies(self, width: int, rows: Rows) -> _Copies | None:
        ids = rows.visible().ids
        if not ids.shape[1]:
            return None
        scope = self.columns.gather("scope", rows)  # prompt 0, output 1, both 2
        start, end = rows.bounds(scope != 1, scope != 0, self.columns.gather("window", rows))
        column = torch.arange(ids.shape[1], device=ids.device)
        before, limit = column - start[:, None], self._cuts.num_since(rows)[:, None]
        is_open = (before >= 0) & (column < end[:, None]) & (ids < width)
        lengths = torch.minimum(self._suffixes.gather(rows, ids), torch.minimum(before, limit))
        total = (rows.history.lengths[rows.slots] + rows.offsets)[:, None]
        if rows.has_forced:
            chosen = rows.unforced(ids.shape[1])
            runs = _runs(chosen)
            limit = torch.minimum(limit, runs.gather(1, total))
            lengths, is_open = torch.minimum(lengths, torch.minimum(runs[:, :-1], limit)), is_open & chosen
        ids = ids.clamp(0, width - 1)
        is_open &= ~self._cuts.is_spared(ids, rows)
        return _Copies(ids, lengths, is_open, before, limit, total - column)


def _runs(chosen: Tensor) -> Tensor:
    """Return for each column of flags [A, W], and one more, how many flags right before it are set."""
    column = torch.arange(1, chosen.shape[1] + 1, device=chosen.device)
    latest = torch.where(chosen, 0, column).cummax(1).values  # the column after the latest unset flag
    return torch.nn.functional.pad(column - latest, (1, 0))


_SCOPE = "Where the earlier occurrence lies: prompt, output or both."
_WINDOW = "Only the last this many tokens of the scope count; null is all."
_ALL = "null means all tokens."
_EXEMPT = "Never penalised, and no part of a repetition: special, stop, token ids, texts that are one token."


@parameters
class NoRepeatNgramParams(Params):
    """Mask tokens that would repeat n tokens in a row (Paulus et al. 2017)."""

    n: int = param(0, "No n tokens in a row occur twice; 0 is off, 1 forbids all tokens seen.", ge=0, le=MOST)
    scope: Scope = param("both", _SCOPE)
    window: int | None = param(None, _WINDOW, ge=1, le=MOST, hint=_ALL)
    exempt: tuple[int | str, ...] = param(("special",), _EXEMPT, ge=0, le=MOST)


class NoRepeatNgram(_Repeats[NoRepeatNgramParams]):
    """Mask tokens that would repeat n tokens in a row (Paulus, Xiong and Socher 2017)."""

    name = "no_repeat_ngram"
    phase = Phase.CONSTRAIN
    Params = NoRepeatNgramParams
    about = Note(
        "x[i] = -inf if the last n - 1 tokens, followed by i, occurred in the scope",
        "Paulus, Xiong and Socher 2017, A Deep Reinforced Model for Abstractive Summarization, "
        "arXiv 1705.04304.",
        "no_repeat_ngram=3",
        "transformers no_repeat_ngram_size, which has no exempt tokens (exempt=[]); "
        "encoder_no_repeat_ngram_size is scope=prompt",
    )

    example_values = (
        {"n": 1},
        {"n": 2, "exempt": ()},
        {"n": 3, "scope": "output", "window": 5},
        {"n": 2, "scope": "prompt", "exempt": ("stop", 7)},
    )

    def _lowered(self, old: Tensor, copies: _Copies, rows: Rows) -> Tensor:
        is_repeated = copies.lengths >= self.columns.gather("n", rows)[:, None] - 1
        return old.masked_fill(is_repeated, -math.inf)


BREAKER_LIMIT = 1024  # bytes of all breakers; the text of each token is searched for all of them


@parameters
class DryParams(Params):
    """Subtract more from a token the longer the repetition is that it would continue (p-e-w 2024, DRY)."""

    multiplier: float = param(
        0.0, "Subtracted from a token that continues a repetition of the allowed length; 0 is off.", ge=0
    )
    base: float = param(1.75, "Each further token of the repetition multiplies the penalty by this.", ge=1)
    allowed: int = param(2, "Repetitions of fewer tokens are not penalised.", ge=0, le=MOST)
    window: int | None = param(None, _WINDOW, ge=1, le=MOST, hint=_ALL)
    scope: Scope = param("both", _SCOPE)
    breakers: tuple[str, ...] = param(
        ("\n", ":", '"', "*"), "Texts that end a repetition, in whatever tokens; one-token ones are spared."
    )
    max_ngram: int | None = param(
        None, "Longer repetitions count as this many tokens; null is no limit.", ge=1, le=MOST
    )
    matches: Literal["max", "count"] = param(
        "max",
        "The longest repetition of a token decides (max), or how often it continued the longest one (count).",
    )
    strict: bool = param(
        False,
        "As koboldcpp: none until more tokens than allowed follow a breaker, and breakers are not spared.",
    )
    exempt: tuple[int | str, ...] = param(("special",), _EXEMPT, ge=0, le=MOST)

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        check_texts("breakers", self.breakers, BREAKER_LIMIT, ", which would end every repetition")


class Dry(_Repeats[DryParams]):
    """x = x - multiplier * base^(n - allowed) for tokens that continue a repetition of n tokens (p-e-w 2024).

    TokenError at admission: breakers without a tokenizer, an exempt text that is not one token.
    """

    name = "dry"
    phase = Phase.ADJUST
    Params = DryParams
    keeps_faults = True
    about = Note(
        "x[i] = x[i] - multiplier * base^(n - allowed), n the most last tokens, at least allowed, "
        "that occurred before an earlier i; none beyond a breaker",
        "p-e-w 2024, text-generation-webui pull request 5677; breakers and arithmetic as in llama.cpp.",
        "dry:multiplier=0.8,window=1024",
        "llama.cpp --dry-*, with window=64 and exempt=[]; koboldcpp: strict=true; text-generation-webui "
        "takes one token for a breaker; ExLlamaV2: matches=count,max_ngram=20",
    )

    example_values = (
        {"multiplier": 0.8, "allowed": 1},
        {"multiplier": 2.0, "base": 1.1, "allowed": 0, "breakers": (), "exempt": ()},
        {
            "multiplier": 1.0,
            "allowed": 1,
            "window": 6,
            "breakers": ("at s", "cab", "\n"),
            "exempt": ("stop", 7),
        },
        {"multiplier": 1.5, "allowed": 1, "matches": "count", "max_ngram": 2, "breakers": ("😀",)},
        {"multiplier": 1.0, "base": 1.0, "allowed": 1, "strict": True, "scope": "output", "breakers": ("a",)},
        {"multiplier": 1e300, "base": 1e30, "allowed": 0, "scope": "prompt", "breakers": ("ab", "b")},
    )

    def _breakers(self, params: DryParams) -> dict[str, Any]:
        return {"breakers": params.breakers, "spares_breakers": not params.strict}

    def _lowered(self, old: Tensor, copies: _Copies, rows: Rows) -> Tensor:
        allowed = self.columns.gather("allowed", rows)[:, None]
        base = self.columns.exact("base", rows)[:, None]
        lengths = torch.minimum(copies.lengths, self.columns.gather("max_ngram", rows)[:, None])
        has_penalty = (lengths >= allowed) & (copies.before > 0)  # the first continues nothing
        if True in self.columns.known("strict", rows):
            is_strict = self.columns.gather("strict", rows)[:, None]
            has_penalty &= ~is_strict | (copies.limit > allowed)
        most_exponent = (_LOG_OF_MOST / base.log()).floor()
        penalty = base ** torch.minimum((lengths - allowed).double(), most_exponent)
        penalty *= self.columns.exact("multiplier", rows)[:, None]
        if "count" in self.columns.known("matches", rows):
            is_counted = self.columns.gather("matches", rows)[:, None] == 1  # max 0, count 1
            is_open = has_penalty & copies.is_open
            longest = torch.where(is_open, lengths, -1).amax(1, keepdim=True)
            has_penalty &= ~is_counted | (lengths == longest)
            count = _counts(copies.ids, has_penalty & copies.is_open)
            penalty = torch.where(is_counted, penalty * count, penalty)
        return _minus(old, torch.where(has_penalty, penalty, 0))


@parameters
class LzParams(Params):
    """Subtract what a Lempel-Ziv code saves on a token, in bits (Ginart et al. 2025)."""

    strength: float = param(0.0, "Subtracted from a logit for each bit that the code saves; 0 is off.", ge=0)
    length: int = param(32, "Longer repetitions count as this many tokens.", ge=1, le=MOST)
    window: int | None = param(512, _WINDOW, ge=1, le=MOST, hint=_ALL)
    scope: Scope = param("output", _SCOPE)
    exempt: tuple[int | str, ...] = param(("special",), _EXEMPT, ge=0, le=MOST)


class Lz(_Repeats[LzParams]):
    """x = x - strength * (bits that a Lempel-Ziv code saves on the token) (Ginart et al. 2025).

    A copy at distance d, after k - 1 tokens that equal the last ones, codes k tokens in log2(d + 1) + log2 k
    bits; a token without a copy takes log2 V bits.
    """

    name = "lz"
    phase = Phase.ADJUST
    Params = LzParams
    keeps_faults = True
    about = Note(
        "x[i] = x[i] - strength * (log2 V - min(log2 V, (log2(d + 1) + log2 k) / k)), the least over "
        "earlier i: d tokens back, k - 1 last tokens before it",
        "Ginart et al. 2025, LZ Penalty, arXiv 2504.20131.",
        "lz=0.15",
        "SGLang pull request 4647 (closed), which skips the first tokens of the window",
    )

    example_values = (
        {"strength": 0.15},
        {"strength": 1.0, "length": 1, "scope": "both", "exempt": ()},
        {"strength": 1e300, "length": 3, "window": 4, "scope": "prompt", "exempt": ("stop", 9)},
    )

    def _lowered(self, old: Tensor, copies: _Copies, rows: Rows) -> Tensor:
        size = torch.minimum(copies.lengths, self.columns.gather("length", rows)[:, None]).clamp_(min=0) + 1
        bits = ((copies.distance + 1).clamp(min=2).double().log2() + size.double().log2()) / size
        saved = (math.log2(self.env.vocab_size) - bits).clamp_(min=0)
        return _minus(old, self.columns.exact("strength", rows)[:, None] * saved)


def _minus(old: Tensor, penalty: Tensor) -> Tensor:
    """Return old - penalty in float32, clamped to finite values; infinite logits are unchanged."""
    new = (old.double() - penalty).clamp_(LOWEST, HIGHEST)
    return torch.where(old.isinf(), old, new.float())


def _counts(ids: Tensor, where: Tensor) -> Tensor:
    """Return for each entry of ids [A, W] how often its id occurs among entries with `where` [A, W] True."""
    chosen = torch.where(where, ids, -1)
    ordered = chosen.sort(1).values
    return torch.searchsorted(ordered, chosen, right=True) - torch.searchsorted(ordered, chosen)


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """Rule of a slot: breakers of more than one byte, ids that cut on their own, spared ids [V] bool."""

    breakers: tuple[bytes, ...]
    cutting: frozenset[int]
    spared: Tensor

    @property
    def reach(self) -> int:
        """Number of bytes before a token that may belong to a breaker that ends in the token."""
        return max(map(len, self.breakers), default=1) - 1


@dataclass(frozen=True, slots=True)
class _Place:
    """State after some tokens: the last bytes, in which a breaker may have begun, and tokens since a cut."""

    tail: bytes
    num_since: int


class Cuts:
    """Counts for each slot the tokens since the latest cut.

    A token cuts if a breaker ends in it (alone, inside it, or begun in earlier tokens), or if its id is
    exempt. Special tokens have no bytes. Tokens that contain a whole breaker, and exempt ids, are spared:
    they get no penalty.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        self._bytes = env.vocabulary.token_bytes if env.vocabulary else ()
        self._rules: dict[int, _Rule] = {}
        self._places: dict[int, _Place] = {}
        self._build = functools.lru_cache(maxsize=16)(self._built)

    def admit(
        self,
        slot: int,
        prompt: Sequence[int],
        *,
        breakers: tuple[str, ...] = (),
        exempt: Iterable[int] = (),
        spares_breakers: bool = True,
        stage: str = "",
    ) -> None:
        """Set the state after a request's prompt. TokenError for breakers without a tokenizer."""
        if breakers and self._env.vocabulary is None:
            raise TokenError(
                f"{stage} has breakers, which are texts, but there is no tokenizer. Set breakers=[]."
            )
        rule = self._build(breakers, frozenset(exempt), spares_breakers)
        self._rules[slot], self._places[slot] = rule, self._begun(rule, prompt)

    def commit(self, slot: int, tokens: Iterable[int]) -> None:
        rule, state = self._rules[slot], self._places[slot]
        for token in tokens:
            state = self._next(rule, state, token)
        self._places[slot] = state

    def release(self, slot: int) -> None:
        self._rules.pop(slot, None)
        self._places.pop(slot, None)

    def copy(self, source: int, target: int) -> None:
        self._rules[target], self._places[target] = self._rules[source], self._places[source]

    def num_since(self, rows: Rows) -> Tensor:
        """Return for each row the number of tokens that it sees after the latest cut [R]."""
        counts: list[int] = []
        state, before = _Place(b"", 0), (-1, tuple[int, ...]())
        for slot, drafts in zip(rows.host_slots, rows.host_drafts, strict=True):
            if not drafts or before != (slot, drafts[:-1]):  # else the row sees one draft more
                state = self._places[slot]
                for token in drafts[:-1]:
                    state = self._next(self._rules[slot], state, token)
            if drafts:
                state = self._next(self._rules[slot], state, drafts[-1])
            before = slot, drafts
            counts.append(state.num_since)
        return graphs.upload_ints(counts, rows.history.device)

    def is_spared(self, ids: Tensor, rows: Rows) -> Tensor:
        """Return which of the ids [R, W] are spared; every id is below V."""
        rows_of = grouped(self._rules[slot] for slot in rows.host_slots)
        if len(rows_of) == 1:
            (rule,) = rows_of
            return rule.spared[ids]
        flags = torch.zeros_like(ids, dtype=torch.bool)
        for rule, some in rows_of.items():
            at = graphs.upload(some, ids.device)
            flags[at] = rule.spared[ids[at]]
        return flags

    def _built(self, breakers: tuple[str, ...], exempt: frozenset[int], spares_breakers: bool) -> _Rule:
        texts = tuple(text.encode(errors="surrogatepass") for text in breakers)
        whole = {token for text in texts for token, data in enumerate(self._bytes) if text in data}
        spared = torch.zeros(self._env.vocab_size, dtype=torch.bool)
        ids = [token for token in (exempt | whole if spares_breakers else exempt) if token < len(spared)]
        spared[ids] = True
        longer = tuple(text for text in texts if len(text) > 1)
        return _Rule(longer, exempt | whole, spared.to(self._env.device, non_blocking=True))

    def _begun(self, rule: _Rule, prompt: Sequence[int]) -> _Place:
        """Return the state after a prompt, found by a search from its end."""
        since = next((i for i, token in enumerate(reversed(prompt)) if token in rule.cutting), len(prompt))
        if not rule.breakers:
            return _Place(b"", since)
        parts = [self._spelled(token) for token in prompt]
        text = b"".join(parts)
        ends = [text.rfind(breaker) + len(breaker) for breaker in rule.breakers if breaker in text]
        if ends:
            sizes = accumulate(map(len, reversed(parts)))  # bytes of the last token, the last two, and so on
            since = min(since, sum(size <= len(text) - max(ends) for size in sizes))
        return _Place(text[max(0, len(text) - rule.reach) :], since)

    def _next(self, rule: _Rule, state: _Place, token: int) -> _Place:
        if not rule.breakers:
            return _Place(b"", 0 if token in rule.cutting else state.num_since + 1)
        tail, added = state.tail, self._spelled(token)
        text = tail + added
        cuts = token in rule.cutting or any(
            text.find(breaker, max(0, len(tail) - len(breaker) + 1)) >= 0 for breaker in rule.breakers
        )
        return _Place(text[max(0, len(text) - rule.reach) :], 0 if cuts else state.num_since + 1)

    def _spelled(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""


class Suffixes:
    """For each column of a slot's text: the number of tokens before it that equal the last tokens.

    Lengths [S, L] int32 are computed once from the whole text, on the host. Each appended token then updates
    them: length[j + 1] = length[j] + 1 if column j holds the appended token, else 0. A step thus costs one
    comparison over the history, however repetitive the text is.

    The lengths depend on the history alone, so caching them between steps changes no result.
    """

    def __init__(self, device: torch.device) -> None:
        self._lengths = torch.zeros(8, 64, dtype=torch.int32, device=device)
        self._known: dict[int, int] = {}  # number of tokens that a slot's lengths cover
        self._texts: dict[int, list[int]] = {}  # texts whose lengths were not requested yet

    def admit(self, slot: int, prompt: Sequence[int]) -> None:
        self.release(slot)
        self._texts[slot] = list(prompt)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot; once its lengths are computed, tokens are read from the history instead."""
        if slot in self._texts:
            self._texts[slot] += tokens

    def release(self, slot: int) -> None:
        self._known.pop(slot, None)
        self._texts.pop(slot, None)

    def copy(self, source: int, target: int) -> None:
        self.release(target)
        if source in self._texts:
            self._texts[target] = list(self._texts[source])
        elif source in self._known:
            self._reserve(target + 1, 0)
            self._lengths[target] = self._lengths[source]
            self._known[target] = self._known[source]

    def gather(self, rows: Rows, ids: Tensor) -> Tensor:
        """Return the lengths for each row [R, W] int32, given the `ids` [R, W] of `rows.visible()`.

        Column j compares the tokens before j with the last tokens that the row sees; columns past the row's
        text are undefined.
        """
        slots = sorted(set(rows.host_slots))
        self._follow(rows.history, slots, ids.shape[1])
        lengths = self._lengths[:, : ids.shape[1]]
        if not rows.drafts.shape[1]:
            return lengths.index_select(0, rows.slots)
        return _with_drafts(lengths, rows, slots, ids)

    def _follow(self, history: History, slots: Sequence[int], width: int) -> None:
        """Extend the lengths of these slots by the tokens committed since the last call."""
        self._reserve(max(slots) + 1, width)
        for slot in slots:
            size = history.length(slot)
            if self._known.get(slot, size + 1) > size:  # no lengths yet, or the text has been truncated
                text = self._texts.pop(slot, None)
                if text is None or len(text) > size:
                    text = history.tokens[slot, :size].tolist()
                lengths = graphs.upload(suffix_lengths(text), history.device, torch.int32)
                self._lengths[slot, : len(text)], self._known[slot] = lengths, len(text)
        while late := [slot for slot in slots if self._known[slot] < history.length(slot)]:
            sizes = [self._known[slot] for slot in late]
            index, width_needed = graphs.upload_ints(late, history.device), max(sizes) + 1
            ids = history.tokens[:, :width_needed].index_select(0, index)
            old = self._lengths[:, :width_needed].index_select(0, index)
            last = ids.gather(1, graphs.upload_ints(sizes, history.device)[:, None])
            self._lengths[:, :width_needed].index_copy_(0, index, _extended(old, ids, last))
            self._known.update((slot, size + 1) for slot, size in zip(late, sizes, strict=True))

    def _reserve(self, slots: int, width: int) -> None:
        with torch.inference_mode(False):  # else it could not be changed outside of that mode
            self._lengths = grown(self._lengths, slots, width)


def _with_drafts(lengths: Tensor, rows: Rows, slots: Sequence[int], ids: Tensor) -> Tensor:
    """Return the lengths by row [R, W]: those of the slots [S, W], extended by the drafts that the row sees.

    Consecutive rows of a request differ by one draft, so each is extended from the row before.
    """
    offsets = [len(drafts) for drafts in rows.host_drafts]
    some_row = {slot: row for row, slot in enumerate(rows.host_slots)}
    index_of = {slot: number for number, slot in enumerate(slots)}
    index = graphs.upload_ints(slots, ids.device)
    ids = ids.index_select(0, graphs.upload_ints([some_row[slot] for slot in slots], ids.device))
    state, first = lengths.index_select(0, index), rows.history.lengths[index, None]
    by_row = state.new_zeros(len(rows), ids.shape[1])
    for offset in range(max(offsets) + 1):
        at = [row for row, count in enumerate(offsets) if count == offset]
        where = graphs.upload_ints([index_of[rows.host_slots[row]] for row in at], ids.device)
        by_row.index_copy_(0, graphs.upload_ints(at, ids.device), state.index_select(0, where))
        if offset < max(offsets):
            state = _extended(state, ids, ids.gather(1, first + offset))
    return by_row


def _extended(lengths: Tensor, ids: Tensor, last: Tensor) -> Tensor:
    """Return the lengths [A, W] after the token `last` [A, 1] was appended to the texts `ids` [A, W]."""
    longer = torch.where(ids[:, :-1] == last, lengths[:, :-1] + 1, 0)
    return torch.nn.functional.pad(longer, (1, 0))


def suffix_lengths(tokens: Sequence[int]) -> list[int]:
    """Return for each index j how many tokens before j equal the last tokens, in linear time.

    Z-algorithm on the reversed text (Gusfield 1997, Algorithms on Strings, Trees and Sequences, 1.3).
    """
    text = tokens[::-1]
    size, left, right = len(text), 0, 0
    lengths = [0] * size
    for start in range(1, size):
        same = min(right - start, lengths[start - left]) if start < right else 0
        while start + same < size and text[same] == text[start + same]:
            same += 1
        if start + same > right:
            left, right = start, start + same
        lengths[start] = same
    return [0, *lengths[:0:-1]][:size]
