"""Two chains on one text: where they diverge, the distances of their distributions, the comparison with
the chain of a trace, and comparisons as JSON (docs/compare.schema.json).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import fsum
from typing import Any, Literal

import torch
from torch import Tensor

from gencli.errors import GenerationError, UsageError
from gencli.explain.replay import Look, Replay, chain_of, kept_of, replay_of
from gencli.explain.trace_file import TracedText, text_label
from gencli.helpers import counted, ended
from gencli.results.run_results import significant
from gencli.text.escapes import shown
from processors.base import Vocabulary
from processors.catalog import Draw
from processors.chain import Chain
from processors.errors import ProcessorsError
from processors.explain_rows import Divergence, KeptLogits, divergence
from processors.registry import Registry

# Why a position has no measures: the kept logits do not suffice; B masks every token; B's grammar forbids A's
# text before the position.
Unmeasured = Literal["kept", "empty", "grammar"]


@dataclass(frozen=True, slots=True)
class ComparedPlace:
    """One token of A's text, at output position `pos`, and B's choice there.

    `a`: the text's id. `b`: B's id, None without measures. `decided_a`, `decided_b`: stages without which the
    same draw of the chain gives another token; `decided_b` is computed only where B chooses another token.
    """

    pos: int
    a: int
    b: int | None
    decided_a: tuple[str, ...]
    decided_b: tuple[str, ...] = ()
    divergence: Divergence | None = None
    unmeasured: Unmeasured | None = None

    @property
    def is_parted(self) -> bool:
        """Whether B chooses another token."""
        return self.b is not None and self.b != self.a


class SideBySide:
    """Runs two chains along A's text from its first token. Both are Replays that begin there."""

    def __init__(self, a: Replay, b: Replay) -> None:
        self._a, self._b = a, b
        self._pos, self._is_lost = 0, False

    def place(
        self,
        token: int,
        kept: KeptLogits,
        decided_by: Iterable[str] | None = None,
        *,
        other: KeptLogits | None = None,
    ) -> ComparedPlace:
        """Return the comparison of the next position, where A's text has `token`.

        `decided_by`: the stages that decided the token; computed if None. `other`: B's logits, if they come
        from another model. The distribution of a greedy draw is its token alone. A position has measures only
        if A chooses the text's token; otherwise the logits or the chain do not belong to the text.
        """
        if decided_by is None:
            decided_by = self._a.explain(kept, token).decided_by
        unmeasured = ComparedPlace(self._pos, token, None, tuple(decided_by))
        position = self._measured(unmeasured, kept, kept if other is None else other)
        self._is_lost = self._is_lost or not self._b.follows(token)
        if not self._is_lost:
            self._b.commit(token)
        self._a.commit(token)
        self._pos += 1
        return position

    def _measured(self, position: ComparedPlace, kept: KeptLogits, other: KeptLogits) -> ComparedPlace:
        if self._is_lost:
            return replace(position, unmeasured="grammar")
        a, b = self._a.look(kept), self._b.look(other)
        if not (a.is_exact and b.is_exact and a.token == position.a):
            return replace(position, unmeasured="kept")
        if b.token < 0:
            return replace(position, unmeasured="empty")
        position = replace(position, b=b.token, divergence=divergence(_drawn(a, self._a), _drawn(b, self._b)))
        if not position.is_parted:
            return position
        return replace(position, decided_b=self._b.explain(other, b.token).decided_by)


def _drawn(look: Look, replay: Replay) -> Tensor:
    """Return the logits [V] of the distribution that is sampled."""
    if replay.run.draw != "greedy":
        return look.logits
    alone = torch.full_like(look.logits, -torch.inf)
    alone[look.token] = 0.0
    return alone


@dataclass(frozen=True, slots=True)
class SideOutput:
    """A side's text: token ids, text, and why it ended; `error` if it failed."""

    tokens: tuple[int, ...]
    text: str
    reason: str
    error: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """A prompt with A's text, its positions, and the text of B's own run; None if B was not run.

    `names`: the texts of token ids, as far as they are known. A notebook shows the two texts.
    """

    id: str
    prompt: str
    a: SideOutput
    b: SideOutput | None
    places: tuple[ComparedPlace, ...]
    names: Mapping[int, str] = field(default_factory=dict, compare=False)

    @property
    def parted_at(self) -> int | None:
        """The first position at which the two texts have different tokens, or only one has a token.

        Without B's own text: the first position at which B chooses another token. None if there is none.
        """
        if self.b is None:
            return next((position.pos for position in self.places if position.is_parted), None)
        a, b = self.a.tokens, self.b.tokens
        length = min(len(a), len(b))
        first = next((pos for pos in range(length) if a[pos] != b[pos]), length)
        return None if first == len(a) == len(b) else first

    @property
    def is_equal(self) -> bool | None:
        """Whether both texts are equal; None if the kept logits do not suffice to tell."""
        if self.b is not None:
            return self.parted_at is None and self.a.text == self.b.text
        if any(position.a != position.b and position.unmeasured != "kept" for position in self.places):
            return False
        return None if any(position.unmeasured for position in self.places) else True

    def __repr__(self) -> str:
        count = sum(position.is_parted for position in self.places)
        tokens = counted(len(self.a.tokens), "token")
        facts = f"{tokens}, {count} chosen differently, parted_at={self.parted_at}"
        return f"Comparison(prompt={shown(self.prompt)}, {facts})"

    def _repr_html_(self) -> str:
        from gencli.explain.page import compared_fragment

        return compared_fragment(self, summarize(self.places))


@dataclass(frozen=True, slots=True)
class DivergenceSums:
    """Sums over positions, `measured` of them with measures; summaries of several texts can be added.

    The sums and means of KL are over the finite values; `infinite_ab` and `infinite_ba` count the others.
    `decided_a` and `decided_b` count, for each stage of a side, the diverging positions that it decided.
    """

    places: int = 0
    measured: int = 0
    parted: int = 0
    tv_sum: float = 0.0
    tv_max: float = 0.0
    kl_ab_sum: float = 0.0
    kl_ba_sum: float = 0.0
    infinite_ab: int = 0
    infinite_ba: int = 0
    decided_a: Counter[str] = field(default_factory=Counter)
    decided_b: Counter[str] = field(default_factory=Counter)
    unmeasured: Counter[Unmeasured] = field(default_factory=Counter)

    def __add__(self, other: DivergenceSums) -> DivergenceSums:
        sums = {sum_.name: getattr(self, sum_.name) + getattr(other, sum_.name) for sum_ in fields(self)}
        return DivergenceSums(**sums | {"tv_max": max(self.tv_max, other.tv_max)})

    @property
    def tv_mean(self) -> float | None:
        """The mean total variation; None without measures."""
        return _mean(self.tv_sum, self.measured)

    @property
    def kl_ab_mean(self) -> float | None:
        """The mean of the finite KL(A || B), in bits; None without any."""
        return _mean(self.kl_ab_sum, self.measured - self.infinite_ab)

    @property
    def kl_ba_mean(self) -> float | None:
        """The mean of the finite KL(B || A), in bits; None without any."""
        return _mean(self.kl_ba_sum, self.measured - self.infinite_ba)


def summarize(places: Sequence[ComparedPlace]) -> DivergenceSums:
    """Return the sums over the positions of a text."""
    measures = [position.divergence for position in places if position.divergence is not None]
    parted = [position for position in places if position.is_parted]
    tv, ab, ba = ([getattr(measure, key) for measure in measures] for key in ("tv", "kl_ab", "kl_ba"))
    return DivergenceSums(
        places=len(places),
        measured=len(measures),
        parted=len(parted),
        tv_sum=fsum(tv),
        tv_max=max(tv, default=0.0),
        kl_ab_sum=fsum(filter(math.isfinite, ab)),
        kl_ba_sum=fsum(filter(math.isfinite, ba)),
        infinite_ab=ab.count(math.inf),
        infinite_ba=ba.count(math.inf),
        decided_a=Counter(name for position in parted for name in position.decided_a),
        decided_b=Counter(name for position in parted for name in position.decided_b),
        unmeasured=Counter(position.unmeasured for position in places if position.unmeasured),
    )


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


@dataclass(frozen=True, slots=True)
class Other:
    """The chain B. None takes the trace's value; a draw that was greedy in the trace becomes gumbel."""

    chain: Chain
    draw: Draw | None = None
    stop_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None
    registry: Registry | None = None


def compare_trace(text: TracedText, other: Other, vocabulary: Vocabulary | None = None) -> Comparison:
    """Return the comparison of a traced text; without a vocabulary no stage may need the texts of ids.

    Raises GenerationError for a text without kept logits or an invalid head, UsageError for another
    vocabulary, ProcessorsError for a chain that cannot run.
    """
    tokens = tuple(record["id"] for record in text.records)
    output = SideOutput(tokens, "".join(record["text"] for record in text.records), text.reason)
    along, size, places = None, 0, list[ComparedPlace]()
    for record, kept in kept_of(text):
        if along is None:
            along, size = _begin(text.head, kept, other, vocabulary), kept.vocab_size
        if kept.vocab_size != size or not 0 <= record["id"] < size:
            raise GenerationError(f"Token {record['pos']} is not of the vocabulary of the tokens before it.")
        places.append(along.place(record["id"], kept, record["decided_by"]))
    name, prompt = text_label(text.key), str(text.head.get("prompt", ""))
    return Comparison(name, prompt, output, None, tuple(places), known_texts(text))


def _begin(
    head: Mapping[str, Any], kept: KeptLogits, other: Other, vocabulary: Vocabulary | None
) -> SideBySide:
    """Return both chains at the first position of a text."""
    if vocabulary is not None and vocabulary.vocab_size > kept.vocab_size:
        raise UsageError(
            f"The model's tokenizer has {vocabulary.vocab_size} tokens, but the vocabulary of the trace has "
            f"{kept.vocab_size}.",
            hint="Give the `model` of the trace, or none.",
        )
    try:
        chain, draw = chain_of(head, other.registry)
        a = replay_of(head, kept, vocabulary, chain, draw, other.registry)
    except (TypeError, ValueError, ProcessorsError) as error:
        raise GenerationError(f"The chain of the trace cannot be run: {ended(str(error))}") from None
    wanted, tail = other.chain, chain.get("tail")
    if tail is not None and vocabulary is None:
        wanted = wanted.with_stage("tail", other.registry, **tail.to_mapping())
    limits = {"stop_ids": other.stop_ids and [*other.stop_ids], "max_tokens": other.max_tokens}
    head = {**head, **{key: value for key, value in limits.items() if value is not None}}
    method = other.draw or ("gumbel" if draw == "greedy" else draw)
    return SideBySide(a, replay_of(head, kept, vocabulary, wanted, method, other.registry))


def known_texts(text: TracedText) -> dict[int, str]:
    """Return the texts of all ids in the records; the names of special tokens that were not chosen."""
    names = dict[int, str]()
    for record in text.records:
        for state in (record["raw"], record["final"], *record["stages"]):
            names |= {token: name for token, name, _ in state["top"] if isinstance(token, int)}
    return names | {record["id"]: record["text"] for record in text.records}


TextOf = Callable[[int], str | None]  # returns the text of a token id; None if unknown


def comparison_record(comparison: Comparison, text_of: TextOf) -> dict[str, Any]:
    """Return the record of a prompt; an infinite KL divergence is null while `tv` is a number."""
    return {
        "id": comparison.id,
        "prompt": comparison.prompt,
        "equal": comparison.is_equal,
        "parted_at": comparison.parted_at,
        "a": _output(comparison.a, text_of),
        "b": None if comparison.b is None else _output(comparison.b, text_of),
        "places": [_place(position, text_of) for position in comparison.places],
        "summary": summary_record(summarize(comparison.places)),
    }


def _output(output: SideOutput, text_of: TextOf) -> dict[str, Any]:
    return {
        "text": output.text,
        "finish_reason": output.reason,
        "tokens": [[token, text_of(token)] for token in output.tokens],
        "error": output.error or None,
    }


def _place(position: ComparedPlace, text_of: TextOf) -> dict[str, Any]:
    distance = position.divergence
    measures = ("tv", "kl_ab", "kl_ba")
    return {
        "pos": position.pos,
        "a": [position.a, text_of(position.a)],
        "b": None if position.b is None else [position.b, text_of(position.b)],
        "parted": position.is_parted,
        **{key: None if distance is None else significant(getattr(distance, key)) for key in measures},
        "decided_by_a": list(position.decided_a),
        "decided_by_b": list(position.decided_b),
        "unmeasured": position.unmeasured,
    }


def summary_record(summary: DivergenceSums) -> dict[str, Any]:
    """Return the totals over positions as JSON."""
    means = ("tv_mean", "kl_ab_mean", "kl_ba_mean")
    rounded = {key: None if (mean := getattr(summary, key)) is None else significant(mean) for key in means}
    return {
        "places": summary.places,
        "measured": summary.measured,
        "parted": summary.parted,
        "tv_max": significant(summary.tv_max) if summary.measured else None,
        **rounded,
        "infinite_ab": summary.infinite_ab,
        "infinite_ba": summary.infinite_ba,
        "decided_a": dict(summary.decided_a),
        "decided_b": dict(summary.decided_b),
        "unmeasured": dict(summary.unmeasured),
    }
