"""Twins of draws, watermarks, guidance and contrastive search, and of stages that follow the draw or have
a threshold: plain-Python float64 references, one row at a time, without torch.
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from processors.stages.feedback import AdaptivePParams, MirostatParams, SkewParams
from processors.stages.thresholds import EpsilonParams, EtaParams, PLessParams, TopAParams, TopNSigmaParams
from processors.stages.truncation import XtcParams
from processors.stages.watermarks import GumbelMarkParams, KgwParams, SynthIdParams

if TYPE_CHECKING:
    from processors.testing.checks import View


HIGHEST = (2 - 2**-23) * 2.0**127  # the largest float32
LOWEST = -HIGHEST


def exempt(keys: Iterable[int | str], view: View) -> set[int]:
    """Return the exempt ids: those of keywords, and ids listed one by one."""
    token_bytes = view.vocabulary.token_bytes if view.vocabulary else ()
    keywords: dict[int | str, Iterable[int]] = {
        "special": view.vocabulary.special_ids if view.vocabulary else (),
        "eos": view.eos_ids,
        "stop": (*view.eos_ids, *view.stop_ids),
        "newline": [token for token, data in enumerate(token_bytes) if b"\n" in data],
    }
    return {token for key in keys for token in (keywords[key] if key in keywords else [view.token_id(key)])}


def masked(logits: list[float], ids: Iterable[int]) -> list[float]:
    """Return the logits with these ids masked."""
    gone = set(ids)
    return [-math.inf if token in gone else logit for token, logit in enumerate(logits)]


def ranking(logits: list[float]) -> list[int]:
    """Return the ids by descending logit; the lowest id wins a tie."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


def exp_all(logits: list[float]) -> list[float]:
    """Return exp(x - max(x)), proportional to the softmax."""
    top = max(max(logits), LOWEST)
    return [math.exp(logit - top) for logit in logits]


def finite(old: float, new: float) -> float:
    """Return `new` clamped to finite float32; an infinite `old` logit is kept."""
    return old if math.isinf(old) else min(max(new, LOWEST), HIGHEST)


_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_TOKEN, _BLOCK, _ACCEPT, _RESIDUAL = 1, 2, 4, 5


def mix(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, position: int, stream: int, number: int) -> float:
    """Return a number in the open interval (0, 1), determined by the arguments."""
    key = mix(mix(seed + position * _GAMMA) + stream * _GAMMA)
    return ((mix(key + number * _GAMMA) >> 12) + 0.5) * 2.0**-52


def gumbel(seed: int, position: int, stream: int, number: int) -> float:
    """Return standard Gumbel noise, -log(-log(u)) for uniform u in (0, 1)."""
    return -math.log(-math.log(uniform(seed, position, stream, number)))


def greedy(logits: Sequence[float]) -> int:
    """Return the token of the largest logit; the lowest id wins a tie."""
    return max(range(len(logits)), key=lambda token: (logits[token], -token))


def gumbel_max(logits: Sequence[float], seed: int, position: int, first: int = 0) -> int:
    """Return argmax(logits + Gumbel noise); ids count from `first`."""
    noisy = [logit + gumbel(seed, position, _TOKEN, first + i) for i, logit in enumerate(logits)]
    return first + greedy(noisy)


def gumbel_max_in_blocks(logits: Sequence[float], seed: int, position: int, block: int = 512) -> int:
    """Draw a block by its log-sum-exp, then a token inside it: the same distribution as gumbel_max.

    The maximum of Gumbel-perturbed logits is Gumbel around their log-sum-exp, and independent of which of
    them attains it (Maddison, Tarlow, Minka 2014).
    """
    blocks = [logits[start : start + block] for start in range(0, len(logits), block)]
    sums = [log_sum_exp(part) + gumbel(seed, position, _BLOCK, i) for i, part in enumerate(blocks)]
    chosen = greedy(sums)
    return gumbel_max(blocks[chosen], seed, position, first=chosen * block)


def log_sum_exp(logits: Sequence[float]) -> float:
    """Return the log of the sum of exponentials; -inf if all are masked."""
    top = max(logits)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(x - top) for x in logits))


def inverse_cdf(logits: Sequence[float], seed: int, position: int) -> int:
    """Return the first id whose cumulative weight exceeds u times the sum, for one uniform number u."""
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    target = uniform(seed, position, _TOKEN, 0) * math.fsum(weights)
    mass, last = 0.0, 0
    for token, weight in enumerate(weights):
        mass += weight
        if weight > 0:
            last = token
        if weight > 0 and mass > target:
            return token
    return last


def rejection(
    target: Sequence[Sequence[float]],
    drafts: Sequence[int],
    drawn_from: Sequence[Sequence[float] | None],
    seed: int,
    position: int,
) -> list[int]:
    """Return the accepted drafts of one request and one more token (Leviathan et al. 2023).

    `target` has the logits of each position, one more than there are drafts. `drawn_from` has the logits that
    each draft was sampled from; None for a certain draft.
    """
    for offset, (draft, source) in enumerate(zip(drafts, drawn_from, strict=True)):
        here = position + offset
        p = _softmax(target[offset])
        q = _softmax(source) if source else [float(token == draft) for token in range(len(p))]
        if uniform(seed, here, _ACCEPT, 0) * q[draft] >= p[draft]:
            excess = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
            weights = excess if any(excess) else p
            logits = [math.log(weight) if weight else -math.inf for weight in weights]
            replaced = mix(mix(seed + here * _GAMMA) + _RESIDUAL * _GAMMA)
            return [*drafts[:offset], gumbel_max_in_blocks(logits, replaced, here)]
    return [*drafts, gumbel_max(target[-1], seed, position + len(drafts))]


def _softmax(logits: Sequence[float]) -> list[float]:
    total = log_sum_exp(logits)
    return [math.exp(logit - total) for logit in logits]


def mirostat(logits: list[float], params: MirostatParams, view: View) -> list[float]:
    """Keep tokens by mu, which follows the surprise of the drafts before the row."""
    mu = 2 * params.tau
    for before, token in view.earlier:
        left = _cut(before, mu, params.version)
        if before[token] > -math.inf:
            surprise = (log_sum_exp(left) - before[token]) / math.log(2)
            mu -= params.eta * (surprise - params.tau)
    return _cut(logits, mu, params.version)


def _cut(logits: list[float], mu: float, version: int) -> list[float]:
    order = ranking(logits)
    if logits[order[0]] == -math.inf:
        return logits
    count = _zipf_count([logits[token] for token in order], mu)
    if version == 2:
        least = log_sum_exp(logits) - mu * math.log(2)
        count = max(1, sum(logit >= least for logit in logits))
    return masked(logits, order[count:])


def _zipf_count(ranked: list[float], mu: float) -> int:
    """Return how many tokens have a cross-entropy of mu bits under Zipf's law, by the paper's formula."""
    gaps = [a - b for a, b in pairwise(ranked[:100]) if b > -math.inf]
    points = [(math.log((i + 2) / (i + 1)), gap) for i, gap in enumerate(gaps)]
    if not points:
        return 1
    squares = math.fsum(step * step for step, _ in points)
    s, width = math.fsum(step * gap for step, gap in points) / squares, math.log(len(ranked))
    ratio = (s - 1) / -math.expm1((1 - s) * width) if s != 1 else 1 / width
    room = mu * math.log(2) + math.log(ratio)
    if s == 0:  # equal probabilities: the formula keeps one token, or all
        return len(ranked) if room > 0 else 1
    return min(max(1, math.floor(math.exp(min(width, room / s)))), len(ranked))


def adaptive_p(logits: list[float], params: AdaptivePParams, view: View) -> list[float]:
    """Prefer tokens whose probability compensates that of the tokens before."""
    average = params.target
    for before, token in view.earlier:
        chance = math.exp(before[token] - log_sum_exp(before))
        average = params.decay * average + (1 - params.decay) * chance
    if sum(logit > -math.inf for logit in logits) < 2:
        return logits
    wanted = min(max(2 * params.target - average, 0.0), 1.0)
    total = log_sum_exp(logits)
    away = [abs(math.exp(logit - total) - wanted) / 0.3 for logit in logits]
    return [
        5 - 10 * u * u / (1 + u) if logit > -math.inf else logit
        for u, logit in zip(away, logits, strict=True)
    ]


def skew(logits: list[float], params: SkewParams, view: View) -> list[float]:
    """Return the distribution of a draw by inverse CDF whose random number is raised to e^-s."""
    gain, total, new = math.exp(params.s), log_sum_exp(logits), list(logits)
    weights: list[float] = []
    for token in ranking(logits):
        if logits[token] == -math.inf:
            break
        weights.append(math.exp(logits[token] - max(logits)))
        ratio = logits[token] - max(logits) - math.log(math.fsum(weights))  # ln(p / c)
        chance = math.exp(ratio)
        if len(weights) == 1:
            bent = 0.0
        elif chance * max(gain, 1.0) < 1e-9:
            bent = math.log(gain) + ratio
        else:
            bent = math.log(-math.expm1(gain * math.log1p(-chance)))
        cumulative = math.log(math.fsum(weights)) + max(logits) - total
        new[token] = max(bent + gain * cumulative + total, LOWEST)
    return new


_XTC = 3  # stream of its random number


def xtc(logits: list[float], params: XtcParams, view: View) -> list[float]:
    """Exclude all tokens that reach the threshold except the least likely; or average over both cases."""
    weights, spared = exp_all(logits), exempt(params.exempt, view)
    total = math.fsum(weights)
    if not total:
        return logits
    threshold = max(logits) + math.log(params.threshold) + math.log(total)
    top = [
        x
        for x in ranking(logits)
        if logits[x] > threshold or (logits[x] == threshold and params.compare == "ge")
    ]
    if params.on_exempt == "uncount":
        top = [token for token in top if token not in spared]
    last = min((logits[token] for token in top), default=math.inf)
    stays = next((token for token in top if logits[token] == last), None)  # ties by lowest id
    gone = [x for x in top if logits[x] > last or (params.ties == "cut" and x != stays)]
    if params.on_exempt == "skip" and spared.intersection(gone):
        return logits
    gone = [token for token in gone if token not in spared]
    if sum(logit > -math.inf for logit in logits) - len(gone) < params.keep:
        return logits
    if params.mode == "roll":
        acts = uniform(view.seed, len(view.output), _XTC, 0) < params.probability
        return masked(logits, gone) if acts else logits
    share = math.fsum(weights[token] for token in gone) / total
    left = 1 - params.probability
    if not left:
        return masked(logits, gone)
    shift = math.log(left * (1 - share) / (1 - left * share))
    return [finite(x, x + shift) if token in gone else x for token, x in enumerate(logits)]


def top_n_sigma(logits: list[float], params: TopNSigmaParams, view: View) -> list[float]:
    """Keep logits within n standard deviations of the largest one."""
    finite = [logit for logit in logits if logit != -math.inf]
    if not finite:
        return logits
    mean = math.fsum(finite) / len(finite)
    squares = math.fsum((logit - mean) ** 2 for logit in finite)
    among = len(finite) - (params.std == "sample")
    sigma = math.sqrt(squares / among) if among else 0.0
    return _above(logits, max(finite) - params.n * sigma, params.keep)


def epsilon(logits: list[float], params: EpsilonParams, view: View) -> list[float]:
    return _at_least(logits, params.cutoff, params.keep)


def eta(logits: list[float], params: EtaParams, view: View) -> list[float]:
    """Keep tokens at least as probable as the cutoff, or as sqrt(cutoff) exp(-entropy)."""
    entropy = -math.fsum(p * math.log(p) for p in _probabilities(logits) if p > 0)
    return _at_least(logits, min(params.cutoff, math.sqrt(params.cutoff) * math.exp(-entropy)), params.keep)


def top_a(logits: list[float], params: TopAParams, view: View) -> list[float]:
    """Keep tokens at least as probable as a times the largest probability squared."""
    return _at_least(logits, params.a * max(_probabilities(logits)) ** 2, params.keep)


def p_less(logits: list[float], params: PLessParams, view: View) -> list[float]:
    """Keep tokens at least as probable as the mean probability of an order."""
    probabilities = [p for p in _probabilities(logits) if p > 0]
    count = sum(logit > -math.inf for logit in logits)
    mean = math.fsum(p**params.order for p in probabilities) ** (1 / (params.order - 1)) if count else 0.0
    if params.norm:
        mean = (count * mean - 1) / (count - 1) if count > 1 else 0.0
    return _at_least(logits, mean, params.keep)


def _probabilities(logits: list[float]) -> list[float]:
    weights = exp_all(logits)
    total = math.fsum(weights)
    return [weight / total if total else 0.0 for weight in weights]


def _at_least(logits: list[float], least: float, keep: int) -> list[float]:
    weights = exp_all(logits)
    total = math.fsum(weights)
    threshold = max(logits) + math.log(least * total) if least > 0 and total else -math.inf
    return _above(logits, threshold, keep)


def _above(logits: list[float], threshold: float, keep: int) -> list[float]:
    threshold = min(threshold, max(logits))
    count = sum(logit >= threshold for logit in logits)
    return masked(logits, ranking(logits)[max(count, keep) :])


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
        factor = table[context[-1] % _TABLE] + 1
        seed = min(_signed(key * (table[token % _TABLE] + 1) * factor) for token in context[-params.width :])
    return list(permutation(seed % (2**64 - 1), vocab, int(vocab * params.ratio)))


@functools.lru_cache(maxsize=64)
def permutation(seed: int, size: int, count: int) -> tuple[int, ...]:
    """Return the first entries of torch.randperm(size) with a generator of this seed on a CPU."""
    draw, order = _twister(seed), list(range(size))
    for index in range(min(count, size - 1)):
        other = index + draw() % (size - index)
        order[index], order[other] = order[other], order[index]
    return tuple(order[:count])


def _twister(seed: int) -> Callable[[], int]:
    """Return a function for the 32-bit numbers of a Mersenne Twister seeded by 32 bits (Matsumoto 2002)."""
    words = [seed & _WORD]
    for index in range(1, 624):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + index) & _WORD)
    source = random.Random()
    source.setstate((3, (*words, 624), None))
    return lambda: source.getrandbits(32)


def synthid(logits: list[float], params: SynthIdParams, view: View) -> list[float]:
    """Add the logarithm of each token's factor, tournament after tournament."""
    assert params.key is not None
    width, output = params.ngram - 1, view.output
    context = _context(output, width, 0)
    first = max(width if params.skip_first else 0, len(output) - params.history)
    before = [_context(output[:end], width, 0) for end in range(first, len(output))]
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
    before = [_context(seen[:end], params.width, -1) for end in range(first, len(seen))]
    is_plain = _context(seen, params.width, -1) in before and params.deduplicate != "none"
    if is_plain or (has_prompt and len(view.output) < params.width) or max(logits) == -math.inf:
        return logits
    scores = [
        -math.inf if logit == -math.inf else logit - math.log(-math.log(philox_uniform(key, context, token)))
        for token, logit in enumerate(logits)
    ]
    winner = ranking(scores)[0]
    return masked(logits, [token for token in range(len(logits)) if token != winner])


def philox_uniform(key: int, context: Sequence[int], token: int) -> float:
    """Return the uniform number of a token after a context, in double precision."""
    low, high = key & _WORD, key >> 32
    state = [0x574D4358, len(context), 0, 0]
    for first in range(0, len(context), 4):
        block = [token & _WORD for token in context[first : first + 4]]
        block += [_WORD - index for index in range(len(block), 4)]
        state = _philox([a ^ b for a, b in zip(state, block, strict=True)], low ^ first, high)
    words = _philox([token >> 2, *state[:3]], low ^ state[3], high ^ 0x574D544B)
    return ((words[token & 3] >> 8) + 1) / (2**24 + 1)


def _philox(counter: list[int], low: int, high: int) -> list[int]:
    a, b, c, d = counter
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b = (second >> 32) ^ b ^ low, second & _WORD
        c, d = (first >> 32) ^ d ^ high, first & _WORD
        low, high = (low + 0x9E3779B9) & _WORD, (high + 0xBB67AE85) & _WORD
    return [a, b, c, d]


def _context(ids: Sequence[int], width: int, fill: int) -> tuple[int, ...]:
    last = tuple(ids[-width:])
    return (fill,) * (width - len(last)) + last


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


DRAW_TWINS: tuple[Callable[..., list[float]], ...] = (
    *(mirostat, skew, adaptive_p, xtc, top_n_sigma, epsilon, eta, top_a, p_less),
    *(kgw, synthid, gumbel_mark),
)


def fold(
    logits: Sequence[float], companion: Sequence[float], scale: float, cutoff: float = 0.0
) -> list[float]:
    """Return u + s (c - u) over log-probabilities; -inf where either is -inf or c is below the cutoff."""
    total, other_total = log_sum_exp(logits), log_sum_exp(companion)
    c, u = [x - total for x in logits], [x - other_total for x in companion]
    least = max(c) + math.log(cutoff) if cutoff else -math.inf
    return [
        -math.inf if -math.inf in (a, b) or a < least else b + scale * (a - b)
        for a, b in zip(c, u, strict=True)
    ]


def contrast_layers(
    logits: Sequence[float], early: Sequence[Sequence[float]], cutoff: float = 0.0
) -> list[float]:
    """Return c - u, u of the early layer that is farthest from c by Jensen-Shannon divergence."""
    c, *layers = ([x - log_sum_exp(row) for x in row] for row in (logits, *early))
    u = max(layers, key=lambda layer: _divergence(c, layer), default=[0.0] * len(c))
    least = max(c) + math.log(cutoff) if cutoff else -math.inf
    return [-math.inf if a == -math.inf or a < least else a - b for a, b in zip(c, u, strict=True)]


def _divergence(p_logs: Sequence[float], q_logs: Sequence[float]) -> float:
    pairs = [(math.exp(a), math.exp(b)) for a, b in zip(p_logs, q_logs, strict=True)]
    return math.fsum(
        p / 2 * math.log(2 * p / (p + q) if p else 1) + q / 2 * math.log(2 * q / (p + q) if q else 1)
        for p, q in pairs
    )


_State = Sequence[float]


def contrastive_scores(
    probabilities: Sequence[float], states: Sequence[_State], before: Sequence[_State], alpha: float
) -> list[float]:
    """Return (1 - alpha) p - alpha max_j cos(h, h_j) of each candidate with probability p and state h."""
    return [
        (1 - alpha) * p - alpha * max(_cosine(state, other) for other in before)
        for p, state in zip(probabilities, states, strict=True)
    ]


def _cosine(state: _State, other: _State) -> float:
    size = math.hypot(*state) * math.hypot(*other)
    return math.fsum(a * b for a, b in zip(state, other, strict=True)) / size if size else 0.0
