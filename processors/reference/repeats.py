"""References of no_repeat_ngram, dry and lz: every earlier token is compared with the last ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

from processors.catalog.repeats import DryParams, LzParams, NoRepeatNgramParams
from processors.reference.view import View, exempt, finite, masked

__all__ = ["TWINS", "dry", "lz", "no_repeat_ngram"]

_Params = NoRepeatNgramParams | DryParams | LzParams


def _since(text: tuple[int, ...], breakers: tuple[str, ...], cutting: set[int], view: View) -> int:
    """Return how many of the last tokens follow the latest breaker or exempt token."""
    for end in range(len(text), 0, -1):
        before, added = view.text(text[: end - 1]), view.text(text[end - 1 : end])
        data = before + added
        for breaker in map(str.encode, breakers):
            if added and breaker in data[max(0, len(before) - len(breaker) + 1) :]:
                return len(text) - end
        if text[end - 1] in cutting:
            return len(text) - end
    return len(text)


def _copies(params: _Params, view: View, limit: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (token, tokens before it that equal the last ones, tokens before it, distance) for the scope."""
    text = view.prompt + view.output
    start = len(view.prompt) if params.scope == "output" else 0
    end = len(view.prompt) if params.scope == "prompt" else len(text)
    if params.window is not None:
        start = max(start, end - params.window)
    for place in range(start, end):
        same = 0
        while same < min(limit, place - start) and text[place - 1 - same] == text[-1 - same]:
            same += 1
        yield text[place], same, place - start, len(text) - place


def no_repeat_ngram(logits: list[float], params: NoRepeatNgramParams, view: View) -> list[float]:
    """Mask each token that would repeat n tokens in a row."""
    spared = exempt(params.exempt, view)
    limit = _since(view.prompt + view.output, (), spared, view)
    gone = {token for token, same, _, _ in _copies(params, view, limit) if same >= params.n - 1}
    return masked(logits, gone - spared)


def dry(logits: list[float], params: DryParams, view: View) -> list[float]:
    """x = x - multiplier * base^(n - allowed) for each token that continues a repetition of n tokens."""
    spared = exempt(params.exempt, view)
    limit = _since(view.prompt + view.output, params.breakers, spared, view)
    if not params.strict:
        for token in range(len(logits)):
            if any(breaker.encode() in view.text([token]) for breaker in params.breakers):
                spared.add(token)
    elif limit <= params.allowed:
        return logits
    lengths: dict[int, list[int]] = {}
    for token, same, before, _ in _copies(params, view, limit):
        same = same if params.max_ngram is None else min(same, params.max_ngram)
        if same >= params.allowed and before and token not in spared:
            lengths.setdefault(token, []).append(same)
    longest = max(map(max, lengths.values()), default=0)
    most = math.floor(88.7228391 / math.log(params.base)) if params.base > 1 else math.inf
    new = list(logits)
    for token, found in lengths.items():
        count = 1 if params.matches == "max" else Counter(found)[longest]
        penalty = params.multiplier * params.base ** min(max(found) - params.allowed, most)
        new[token] = finite(logits[token], logits[token] - penalty * count)
    return new


def lz(logits: list[float], params: LzParams, view: View) -> list[float]:
    """x = x - strength * (log2 V - bits of the cheapest code of the token)."""
    spared = exempt(params.exempt, view)
    limit = _since(view.prompt + view.output, (), spared, view)
    most = math.log2(len(logits))
    bits: dict[int, float] = {}
    for token, same, _, distance in _copies(params, view, limit):
        size = min(same, params.length) + 1
        bits[token] = min(bits.get(token, most), (math.log2(distance + 1) + math.log2(size)) / size)
    new = list(logits)
    for token, cost in bits.items():
        if token not in spared:
            new[token] = finite(logits[token], logits[token] - params.strength * (most - cost))
    return new


TWINS: dict[str, Callable[..., list[float]]] = {"no_repeat_ngram": no_repeat_ngram, "dry": dry, "lz": lz}
