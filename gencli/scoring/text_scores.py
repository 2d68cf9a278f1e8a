"""Results of scoring: conventions (which tokens the model reads together, and which of them are
scored), scores and totals in their JSON form. Perplexities of different conventions are not comparable,
so every result names its convention.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gencli.config.run_options import OPTIONS
from gencli.core.events import TokenLogprobs
from gencli.errors import UsageError
from gencli.results.run_results import entry_record
from gencli.text.tokenizer import Tokenizer

CONVENTIONS = Literal["lm-eval", "strided", "llama"]
MODES = Literal["raw", "processed"]
# Options of a run that change processed log-probabilities; a row may set them too.
CHAIN_KEYS = frozenset(
    {entry.key for entry in OPTIONS if entry.section in ("Chain", "Guidance")}
    - {"watermark", "watermark_key"}
    | set(
        "sampler max_tokens stop_id json json_schema pydantic regex grammar lark choice structural_tag "
        "constrain_after grammar_backend grammar_timeout schema_strict extra_properties property_order "
        "json_whitespace formats".split()
    )
)


@dataclass(frozen=True, slots=True)
class ScoredWindow:
    """Tokens read together; those from index `first` (>= 1) on are scored."""

    ids: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Convention:
    """How a text is cut into windows; `window` and `stride` count tokens.

    - lm-eval: a prefix token (BOS, else EOS), then disjoint windows; the last one is extended backwards for
      context. Every token is scored once. As in lm-evaluation-harness.
    - strided: windows that begin every `stride` tokens; a window scores the tokens that no earlier one
      scored. The first token is not scored; with `stride` = `window` the first of each window. As in the
      documentation of transformers.
    - llama: disjoint windows, the first token of each replaced by BOS if the tokenizer adds one; the second
      half of each is scored; an incomplete window at the end is not. As in llama-perplexity.
    """

    name: CONVENTIONS
    window: int
    stride: int
    has_bos: bool = False

    def record(self) -> dict[str, Any]:
        """Return the convention as JSON."""
        record: dict[str, Any] = {"name": self.name, "window": self.window}
        if self.name == "strided":
            record["stride"] = self.stride
        return record | ({"bos": self.has_bos} if self.name != "strided" else {})

    def __str__(self) -> str:
        parts = [f"window {self.window}", *([f"stride {self.stride}"] if self.name == "strided" else [])]
        return f"{self.name} ({', '.join(parts)})"


def prefix_id(tokenizer: Tokenizer, eos_ids: Sequence[int]) -> int:
    """Return the token before a text without context: BOS, else EOS. Raises UsageError if it has neither."""
    bos = tokenizer.bos_id
    if bos is not None:
        return bos
    for ids in (tokenizer.eos_ids, tuple(eos_ids)):
        if ids:
            return ids[0]
    raise UsageError(
        "The tokenizer has neither a beginning-of-text nor an end-of-text token, which the convention puts "
        "before a text.",
        hint="Use `convention` = strided.",
    )


def encoded(text: str, tokenizer: Tokenizer, prefix: int | None) -> list[int]:
    """Return the ids of a text; no special tokens are added to a text that begins with the prefix token."""
    name = "" if prefix is None else tokenizer.decode([prefix], skip_special=False)
    return tokenizer.encode(text, special=not (name and text.startswith(name)))


def pair_window(
    context: str, continuation: str, tokenizer: Tokenizer, prefix: int | None, window: int
) -> ScoredWindow:
    """Return the window of a continuation after a context.

    Spaces at the end of the context are moved to the continuation. Both are encoded together, and split at
    the length of the encoded context. An empty context becomes the prefix token. The context is truncated at
    its beginning so that the model reads at most `window` tokens.
    """
    if context:
        count = len(context) - len(context.rstrip())
        before = context[: len(context) - count]
        whole = encoded(context + continuation, tokenizer, prefix)
        start = len(encoded(before, tokenizer, prefix))
        head, tail = whole[:start], whole[start:]
    else:
        assert prefix is not None
        head, tail = [prefix], tokenizer.encode(continuation, special=False)
        if tail[:1] == [prefix]:
            head, tail = tail[:1], tail[1:]
    return cut_window(head, tail, window)


def cut_window(head: Sequence[int], tail: Sequence[int], window: int) -> ScoredWindow:
    """Return the window of the tokens `tail` after `head`, truncated at its beginning."""
    if len(tail) > window:
        raise UsageError(
            f"The continuation has {len(tail)} tokens, but the model reads {window} at once.",
            hint="Score it as a text.",
        )
    kept = (*head, *tail)[-(window + 1) :]
    return ScoredWindow(kept, len(kept) - len(tail))


def text_windows(ids: Sequence[int], convention: Convention, prefix: int | None) -> Iterator[ScoredWindow]:
    """Yield the windows of a text with these ids. `prefix`: the id of prefix_id."""
    window = convention.window
    if convention.name == "lm-eval":
        assert prefix is not None
        whole = (prefix, *ids)
        for begin in range(0, len(ids), window):
            end = min(len(ids), begin + window)
            kept = whole[max(0, end - window) : end + 1]
            yield ScoredWindow(kept, len(kept) - (end - begin))
    elif convention.name == "strided":
        done = 0
        for begin in range(0, len(ids), convention.stride):
            end = min(begin + window, len(ids))
            first = max(1, len(range(begin, done)))
            if begin + first < end:
                yield ScoredWindow(tuple(ids[begin:end]), first)
            done = end
            if end == len(ids):
                return
    else:
        if len(ids) < 2 * window:
            raise UsageError(
                f"The text has {len(ids)} tokens, but llama needs at least two windows of {window}.",
                hint="Give a longer text, or a smaller `window`.",
            )
        for begin in range(0, len(ids) - window + 1, window):
            part = tuple(ids[begin : begin + window])
            if prefix is not None and convention.has_bos:
                part = (prefix, *part[1:])
            yield ScoredWindow(part, window // 2 + 1)


def count_words(text: str) -> int:
    """Return the number of words as defined by lm-evaluation-harness: parts between white space."""
    return len(re.split(r"\s+", text))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over scored tokens: log-probabilities and their squares (natural logarithm).

    `tokens`: number of tokens with a probability; `possible`: sum of their log-probabilities. `banned`:
    number of further, impossible tokens; if there are any, values derived from the whole sum are None.
    `num_bytes`, `words`: size of the scored text; `words` is None if the convention scores parts of words.
    """

    tokens: int = 0
    possible: float = 0.0
    squares: float = 0.0
    num_bytes: int = 0
    words: int | None = 0
    banned: int = 0

    @classmethod
    def of(cls, logprobs: Iterable[float], *, num_bytes: int, words: int | None) -> Totals:
        """Return the totals of the scored tokens with these log-probabilities."""
        values = [*logprobs]
        possible = [value for value in values if value > -math.inf]
        return cls(
            len(possible),
            math.fsum(possible),
            math.fsum(value * value for value in possible),
            num_bytes,
            words,
            len(values) - len(possible),
        )

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.tokens + other.tokens,
            self.possible + other.possible,
            self.squares + other.squares,
            self.num_bytes + other.num_bytes,
            None if self.words is None or other.words is None else self.words + other.words,
            self.banned + other.banned,
        )

    @property
    def logprob(self) -> float | None:
        """Log-probability of all tokens; None if one of them is banned."""
        return None if self.banned else self.possible

    @property
    def nll(self) -> float | None:
        """Mean negative log-probability of a token; None without tokens."""
        return None if self.logprob is None or not self.tokens else -self.logprob / self.tokens

    @property
    def perplexity(self) -> float | None:
        """exp of `nll`."""
        return _exp(self.nll)

    @property
    def perplexity_error(self) -> float | None:
        """Standard error: perplexity * sqrt((E[nll ** 2] - nll ** 2) / (tokens - 1)), as llama-perplexity."""
        nll, perplexity = self.nll, self.perplexity
        if nll is None or perplexity is None or self.tokens < 2:
            return None
        variance = max(0.0, self.squares / self.tokens - nll * nll)
        return perplexity * math.sqrt(variance / (self.tokens - 1))

    @property
    def word_perplexity(self) -> float | None:
        """exp(-logprob / words); None if the number of words is unknown."""
        return None if self.logprob is None or not self.words else _exp(-self.logprob / self.words)

    @property
    def byte_perplexity(self) -> float | None:
        """exp(-logprob / bytes)."""
        return None if self.logprob is None or not self.num_bytes else _exp(-self.logprob / self.num_bytes)

    @property
    def bits_per_byte(self) -> float | None:
        """-logprob / (bytes * ln 2)."""
        if self.logprob is None or not self.num_bytes:
            return None
        return -self.logprob / (self.num_bytes * math.log(2))

    def record(self) -> dict[str, Any]:
        """Return the totals as JSON; `of_record` reads them back."""
        return {
            "scored": self.tokens,
            "bytes": self.num_bytes,
            "words": self.words,
            "logprob": self.logprob,
            "nll": self.nll,
            "perplexity": self.perplexity,
            "perplexity_error": self.perplexity_error,
            "word_perplexity": self.word_perplexity,
            "byte_perplexity": self.byte_perplexity,
            "bits_per_byte": self.bits_per_byte,
            "squares": self.squares,
            **({"banned": self.banned, "possible": self.possible} if self.banned else {}),
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Totals:
        """Return the totals of a record."""
        possible = record["possible"] if record.get("banned") else record["logprob"]
        return cls(
            record["scored"],
            possible,
            record["squares"],
            record["bytes"],
            record["words"],
            record.get("banned", 0),
        )


def _exp(value: float | None) -> float | None:
    """Return exp(value); None if it is not finite."""
    try:
        return None if value is None else math.exp(value)
    except OverflowError:
        return None


def shown(value: float | None) -> str:
    """Return a number of a score as text for a person; "-" for None."""
    return "-" if value is None else f"{value:.4f}"


@dataclass(frozen=True, slots=True)
class TextScore:
    """Score of a text of `tokens` tokens. `entries`: log-probabilities of the scored tokens, in order."""

    tokens: int
    totals: Totals
    convention: Convention
    entries: tuple[TokenLogprobs, ...] = field(default=(), repr=False)
    mode: MODES = "raw"


@dataclass(frozen=True, slots=True)
class PairScore:
    """Score of a continuation after a context; `is_greedy`: every token is the most likely one.

    If a stage bans a token, `logprob` and all values derived from it are None.
    """

    text: str
    tokens: int
    is_greedy: bool
    totals: Totals
    convention: Convention
    entries: tuple[TokenLogprobs, ...] = field(default=(), repr=False)
    mode: MODES = "raw"

    @property
    def logprob(self) -> float | None:
        """Sum of the tokens' log-probabilities."""
        return self.totals.logprob

    @property
    def per_token(self) -> float | None:
        """Log-probability divided by the number of tokens."""
        return self._per(max(1, self.tokens))

    @property
    def per_character(self) -> float | None:
        """Log-probability divided by the number of characters."""
        return self._per(len(self.text))

    @property
    def per_byte(self) -> float | None:
        """Log-probability divided by the number of UTF-8 bytes."""
        return self._per(len(self.text.encode()))

    def _per(self, count: int) -> float | None:
        return None if self.logprob is None else self.logprob / count


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """Scores of the choices after one context.

    `unconditional`: log-probabilities of the choices without the context; None if the model has no prefix
    token.
    """

    choices: tuple[PairScore, ...]
    unconditional: tuple[float | None, ...] | None
    convention: Convention
    mode: MODES = "raw"

    @property
    def best(self) -> dict[str, int | None]:
        """Index of the best choice by each measure, ties by lowest index; None if all are banned.

        sum, token, character, byte: the log-probability, divided by that length. unconditional:
        log-probability minus that without the context (mutual information).
        """
        scores: dict[str, list[float | None]] = {
            "sum": [choice.logprob for choice in self.choices],
            "token": [choice.per_token for choice in self.choices],
            "character": [choice.per_character for choice in self.choices],
            "byte": [choice.per_byte for choice in self.choices],
        }
        if self.unconditional is not None:
            scores["unconditional"] = [
                None if choice.logprob is None or alone is None else choice.logprob - alone
                for choice, alone in zip(self.choices, self.unconditional, strict=True)
            ]
        return {name: _largest(values) for name, values in scores.items()}

    @property
    def probabilities(self) -> tuple[float | None, ...]:
        """Probability of each choice, given that one of them occurs: softmax of the sums; 0 if banned."""
        sums = [choice.logprob for choice in self.choices]
        largest = max((value for value in sums if value is not None), default=None)
        if largest is None:
            return (None,) * len(sums)
        weights = [0.0 if value is None else math.exp(value - largest) for value in sums]
        return tuple(weight / sum(weights) for weight in weights)


Score = TextScore | PairScore | ChoiceScore


def _largest(values: Sequence[float | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return values.index(max(numbers)) if numbers else None


def score_record(score: Score, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """Return a score as JSON; with a `tokenizer` it has a row for each scored token."""
    conditions = {"convention": score.convention.record(), "mode": score.mode}
    if isinstance(score, ChoiceScore):
        alone = score.unconditional or (None,) * len(score.choices)
        rows = zip(score.choices, score.probabilities, alone, strict=True)
        choices = [
            {**_pair(choice, tokenizer), "unconditional": logprob, "prob": probability}
            for choice, probability, logprob in rows
        ]
        return {"choices": choices, "best": score.best, **conditions}
    if isinstance(score, PairScore):
        return {**_pair(score, tokenizer), **conditions}
    return {"tokens": score.tokens, **score.totals.record(), **conditions, **_rows(score.entries, tokenizer)}


def _pair(score: PairScore, tokenizer: Tokenizer | None) -> dict[str, Any]:
    return {
        "text": score.text,
        "tokens": score.tokens,
        **score.totals.record(),
        "per_token": score.per_token,
        "per_character": score.per_character,
        "per_byte": score.per_byte,
        "greedy": score.is_greedy,
        **_rows(score.entries, tokenizer),
    }


def _rows(entries: Sequence[TokenLogprobs], tokenizer: Tokenizer | None) -> dict[str, Any]:
    if tokenizer is None:
        return {}
    return {"token_scores": [entry_record(entry, tokenizer) for entry in entries]}
