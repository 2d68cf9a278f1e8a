"""Natural logarithms of tail probabilities, exact far below the smallest float."""

from __future__ import annotations

import math

_FAR = 30.0  # standard deviations from which the normal tail is computed by a series
_TINY = 1e-300
_MOST_TERMS = 10_000


def ln_normal_tail(z: float) -> float:
    """Return ln P(Z > z) of a standard normal variable."""
    if z < _FAR:
        return math.log(0.5 * math.erfc(z / math.sqrt(2)))
    inverse = 1 / (z * z)
    series = 1 - inverse * (1 - 3 * inverse * (1 - 5 * inverse))
    return -z * z / 2 - math.log(z * math.sqrt(2 * math.pi)) + math.log(series)


def ln_binomial_tail(hits: int, trials: int, chance: float) -> float:
    """Return ln P(X >= hits) of the number of hits in independent trials."""
    if hits <= 0:
        return 0.0
    if hits > trials:
        return -math.inf
    odds = chance / (1 - chance)
    if hits > trials * chance:
        return _ln_mass(hits, trials, chance) + math.log(_sum(hits, trials, odds))
    # The complement has fewer terms: fewer hits are more misses.
    misses = trials - hits + 1
    below = _ln_mass(misses, trials, 1 - chance) + math.log(_sum(misses, trials, 1 / odds))
    return math.log1p(-min(math.exp(below), 1 - 1e-16))


def _ln_mass(hits: int, trials: int, chance: float) -> float:
    ways = math.lgamma(trials + 1) - math.lgamma(hits + 1) - math.lgamma(trials - hits + 1)
    return ways + hits * math.log(chance) + (trials - hits) * math.log1p(-chance)


def _sum(hits: int, trials: int, odds: float) -> float:
    """Return P(at least `hits`) / P(exactly `hits`)."""
    total = term = 1.0
    for count in range(hits, trials):
        term *= (trials - count) / (count + 1) * odds
        total += term
        if term < total * 1e-17:
            break
    return total


def ln_gamma_tail(score: float, shape: float) -> float:
    """Return ln P(X > score) of a Gamma(shape, 1) variable.

    Computed by the series of the lower tail, or the continued fraction of the upper tail (Lentz), in
    logarithms.
    """
    if score <= 0:
        return 0.0
    ln_front = shape * math.log(score) - score - math.lgamma(shape)
    if score < shape + 1:
        term = total = 1 / shape
        for count in range(1, _MOST_TERMS + int(10 * math.sqrt(shape))):
            term *= score / (shape + count)
            total += term
            if term < total * 1e-17:
                break
        return math.log1p(-min(math.exp(ln_front + math.log(total)), 1 - 1e-16))
    return ln_front + math.log(_fraction(score, shape))


def _fraction(score: float, shape: float) -> float:
    """Return 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...)))."""
    under = score + 1 - shape
    ratio, over = 1 / _TINY, 1 / under
    fraction = over
    for count in range(1, _MOST_TERMS + int(10 * math.sqrt(shape))):
        factor = count * (shape - count)
        under += 2
        over = 1 / ((factor * over + under) or _TINY)
        ratio = (under + factor / ratio) or _TINY
        fraction *= (change := over * ratio)
        if abs(change - 1) < 1e-15:
            break
    return fraction
