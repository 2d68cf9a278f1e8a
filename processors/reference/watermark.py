"""References of the watermarks: Mersenne Twister, hash and Philox in plain Python.

They define the correct result.
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
from collections.abc import Callable, Iterable, Sequence

from processors.catalog.watermark import GumbelMarkParams, KgwParams, SynthIdParams
from processors.reference.view import View, exp_all, finite, masked, ranking

__all__ = ["TWINS", "green_ids", "gumbel_mark", "hashed", "kgw", "permutation", "synthid", "uniform"]

_TABLE = 1_000_003
_WORD = 2**32 - 1


def kgw(logits: list[float], params: KgwParams, view: View) -> list[float]:
    """Add the bias to the green ids; with selfhash only among the 40 most likely ids."""
    context, vocab = (*view.prompt, *view.output), params.vocab or len(logits)
    if len(context) < params.width:
        return logits
    if params.scheme == "lefthash":
        chosen = set(green_ids(params, vocab, context))
    else:
        candidates = [token for token in ranking(logits)[:40] if token < vocab]
        chosen = {token for token in candidates if token in green_ids(params, vocab, (*context, token))}
    return [
        finite(logit, logit + params.bias) if token in chosen else logit for token, logit in enumerate(logits)
    ]


def green_ids(params: KgwParams, vocab: int, context: Sequence[int]) -> list[int]:
    """Return the green ids after a context, in order; with selfhash it ends with the token itself."""
    assert params.key is not None
    (key,) = params.key.numbers
    seed = key * context[-1]
    if params.scheme == "selfhash":
        table = permutation(key, _TABLE, _TABLE)
        own = table[context[-1] % _TABLE] + 1
        seed = min(_signed(key * (table[token % _TABLE] + 1) * own) for token in context[-params.width :])
    return list(permutation(seed % (2**64 - 1), vocab, int(vocab * params.ratio)))


@functools.lru_cache(maxsize=64)
def permutation(seed: int, size: int, count: int) -> tuple[int, ...]:
    """Return the first entries of torch.randperm(size) with a generator of this seed on a CPU."""
    draw, order = _twister(seed), list(range(size))
    for place in range(min(count, size - 1)):
        other = place + draw() % (size - place)
        order[place], order[other] = order[other], order[place]
    return tuple(order[:count])


def _twister(seed: int) -> Callable[[], int]:
    """Return a function for the 32-bit numbers of a Mersenne Twister seeded by 32 bits (Matsumoto 2002)."""
    words = [seed & _WORD]
    for place in range(1, 624):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + place) & _WORD)
    source = random.Random()
    source.setstate((3, (*words, 624), None))
    return lambda: source.getrandbits(32)


def synthid(logits: list[float], params: SynthIdParams, view: View) -> list[float]:
    """Add the logarithm of each token's factor, tournament after tournament."""
    assert params.key is not None
    width, output = params.ngram - 1, view.output
    context = _context(output, width, 0)
    first = max(width if params.skip_first else 0, len(output) - params.history)
    before = [_context(output[:place], width, 0) for place in range(first, len(output))]
    if context in before or (params.skip_first and len(output) < width):
        return logits
    table, start = _bits(params.table_seed, params.table_size), hashed(1, context)
    weights = exp_all(logits)
    total = math.fsum(weights)
    masses, shift = [weight / total if total else 0.0 for weight in weights], [0.0] * len(logits)
    for key in params.key.numbers:
        wins = [table[hashed(start, (token, key)) % params.table_size] for token in range(len(logits))]
        lost = max(math.fsum(p for p, win in zip(masses, wins, strict=True) if not win), 1e-300)
        factors = [1 + lost if win else lost for win in wins]
        masses = [p * factor for p, factor in zip(masses, factors, strict=True)]
        shift = [sum_ + math.log(factor) for sum_, factor in zip(shift, factors, strict=True)]
    return [finite(logit, logit + more) for logit, more in zip(logits, shift, strict=True)]


def hashed(state: int, ids: Iterable[int]) -> int:
    """Return the int64 hash of ids appended to a state; the first state is 1."""
    for token in ids:
        state = _signed((state + token) * 6364136223846793005 + 1)
    return state


@functools.cache
def _bits(seed: int, size: int) -> tuple[int, ...]:
    draw = _twister(seed)
    return tuple(draw() % 2 for _ in range(size))


def gumbel_mark(logits: list[float], params: GumbelMarkParams, view: View) -> list[float]:
    """Mask all ids but the one with the largest logit plus noise. With two keys `alpha` has to be 0 or 1."""
    assert params.key is not None
    (key,) = params.key.numbers
    if params.alpha is not None:
        name = b"key_b" if params.alpha else b"key_a"
        key = int.from_bytes(hashlib.sha256(name + key.to_bytes(8, "big")).digest()[:8], "big")
    context = _context(view.output, params.width, -1)
    has_prompt = params.deduplicate == "all"
    seen = (*view.prompt, *view.output) if has_prompt else view.output
    first = 0 if params.history is None else max(0, len(seen) - params.history)
    before = [_context(seen[:place], params.width, -1) for place in range(first, len(seen))]
    is_plain = _context(seen, params.width, -1) in before and params.deduplicate != "none"
    if is_plain or (has_prompt and len(view.output) < params.width) or max(logits) == -math.inf:
        return logits
    scores = [
        -math.inf if logit == -math.inf else logit - math.log(-math.log(uniform(key, context, token)))
        for token, logit in enumerate(logits)
    ]
    winner = ranking(scores)[0]
    return masked(logits, [token for token in range(len(logits)) if token != winner])


def uniform(key: int, context: Sequence[int], token: int) -> float:
    """Return the uniform number of a token after a context, in double precision."""
    low, high = key & _WORD, key >> 32
    state = [0x574D4358, len(context), 0, 0]
    for first in range(0, len(context), 4):
        block = [token & _WORD for token in context[first : first + 4]]
        block += [_WORD - place for place in range(len(block), 4)]
        state = _philox([a ^ b for a, b in zip(state, block, strict=True)], low ^ first, high)
    words = _philox([token >> 2, *state[:3]], low ^ state[3], high ^ 0x574D544B)
    return ((words[token & 3] >> 8) + 1) / (2**24 + 1)


def _philox(counter: list[int], low: int, high: int) -> list[int]:
    zero, one, two, three = counter
    for _ in range(10):
        first, second = 0xD2511F53 * zero, 0xCD9E8D57 * two
        zero, one = (second >> 32) ^ one ^ low, second & _WORD
        two, three = (first >> 32) ^ three ^ high, first & _WORD
        low, high = (low + 0x9E3779B9) & _WORD, (high + 0xBB67AE85) & _WORD
    return [zero, one, two, three]


def _context(ids: Sequence[int], width: int, fill: int) -> tuple[int, ...]:
    """Return the last `width` ids, padded with `fill` in front."""
    last = tuple(ids[-width:])
    return (fill,) * (width - len(last)) + last


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


TWINS: dict[str, Callable[..., list[float]]] = {
    "kgw": kgw,
    "synthid": synthid,
    "gumbel_mark": gumbel_mark,
}
