"""Twins: plain-Python float64 references of the built-in stages, one row at a time, without torch.

If fast code and its twin disagree, the twin is right. `REFERENCE` maps the name of a stage to its twin,
`twin(logits, params, view) -> logits`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from processors.grammar.forced_tokens import ANCHOR, PROBES
from processors.stages.forcing import ForceParams, LengthBoostParams, LengthDecayParams, ReasoningBudgetParams
from processors.stages.grammar_stage import GrammarParams
from processors.stages.masks import (
    AllowedParams,
    BanParams,
    BeginSuppressParams,
    EosAboveParams,
    IgnoreEosParams,
    MinTokensParams,
    SuppressParams,
    TailParams,
)
from processors.stages.penalties import (
    BiasParams,
    FrequencyParams,
    PenaltyParams,
    PresenceParams,
    RepetitionParams,
    SequenceBiasParams,
)
from processors.stages.repeats import DryParams, LzParams, NoRepeatNgramParams
from processors.stages.scale import DynamicTemperatureParams, EdtParams, SmoothingParams, TemperatureParams
from processors.stages.thresholds import MinKParams, TfsParams, TopHParams, TypicalParams
from processors.stages.truncation import MinPParams, TopKParams, TopPParams
from tests.processors.reference.draw_twins import (
    DRAW_TWINS,
    HIGHEST,
    LOWEST,
    exempt,
    exp_all,
    finite,
    masked,
    ranking,
)

if TYPE_CHECKING:
    from processors.testing.checks import Twin, View

_TINY = 2.0**-126  # the smallest normal float32


def tail(logits: list[float], params: TailParams, view: View) -> list[float]:
    """Mask the ids from `size` on."""
    return masked(logits, range(params.size, len(logits)))


def allowed(logits: list[float], params: AllowedParams, view: View) -> list[float]:
    return masked(logits, set(range(len(logits))).difference(params.ids or ()))


def suppress(logits: list[float], params: SuppressParams, view: View) -> list[float]:
    return masked(logits, params.ids)


def ban(logits: list[float], params: BanParams, view: View) -> list[float]:
    """Mask each token after which a banned text ends within the bytes that the token added."""
    before = view.text((*view.prompt, *view.output))
    texts, gone = {text.encode() for text in params.texts}, []
    if params.ignore_case:
        before = before.lower()
        ways = (str, str.lower, str.upper, str.title, str.capitalize)
        texts = {way(text).encode().lower() for text in params.texts for way in ways}
    for token in range(len(logits)):
        added = view.text([token]).lower() if params.ignore_case else view.text([token])
        for text in texts:
            # At most len(text) - 1 bytes of the text come before the token.
            start = max(0, len(before) - len(text) + 1)
            if text in before[start:] + added:
                gone.append(token)
    return masked(logits, gone)


def min_tokens(logits: list[float], params: MinTokensParams, view: View) -> list[float]:
    """Mask end-of-text and stop ids while the output is shorter than `count`."""
    early = len(view.output) < params.count
    return masked(logits, (*view.eos_ids, *view.stop_ids) if early else ())


def ignore_eos(logits: list[float], params: IgnoreEosParams, view: View) -> list[float]:
    return masked(logits, view.eos_ids if params.enabled else ())


def grammar(logits: list[float], params: GrammarParams, view: View) -> list[float]:
    """Allow tokens that keep the output a prefix of a choice (kind `choice`, a JSON list of texts)."""
    assert params.kind == "choice"
    choices = [text.encode() for text in json.loads(params.text)]
    ends, output = {*view.eos_ids, *view.stop_ids}, list(view.output)
    if params.after:
        begun = [n for n in range(len(output) + 1) if params.after.encode() in view.text(output[:n])]
        if not begun:
            return masked(logits, ends)
        output = output[begun[0] :]
    spelled = [view.text([token]) for token in range(len(logits))]
    text = b""
    for token in output:
        text += spelled[token]
        if not spelled[token] or token in ends or not any(choice.startswith(text) for choice in choices):
            return logits  # the output is illegal already, so this token is never used
    allowed = {
        token
        for token, data in enumerate(spelled)
        if data and any(choice.startswith(text + data) for choice in choices)
    }
    allowed = allowed - ends | (ends if text in choices else set())
    if params.canonical and text not in choices:
        left = [choice.removeprefix(text) for choice in choices if choice.startswith(text)]
        allowed = canonical(text, _common(left), view) & allowed or allowed
    return masked(logits, set(range(len(logits))) - allowed)


def canonical(text: bytes, forced: bytes, view: View) -> set[int]:
    """Return the first token that the tokenizer produces for `forced`, if later text cannot change it."""
    assert view.vocabulary is not None
    for before in (text[-ANCHOR:].decode(errors="ignore"), ""):
        firsts = set()
        for probe in PROBES:
            whole = before + forced.decode(errors="ignore") + probe
            ids = view.vocabulary.encode(whole, special=False)
            borders = [n for n in range(len(ids)) if view.text(ids[:n]) == before.encode()]
            firsts.add(ids[borders[0]] if borders else None)
        (first, *more) = firsts
        if first is None or more:
            continue
        data = view.text([first])
        may_grow = data == forced and any(
            longer.startswith(data) and longer != data for longer in view.vocabulary.token_bytes
        )
        if forced.startswith(data) and not may_grow:
            return {first}
    return set()


def _common(texts: list[bytes]) -> bytes:
    same = (n for n in range(len(texts[0]), 0, -1) if all(text.startswith(texts[0][:n]) for text in texts))
    return texts[0][: next(same, 0)]


def bias(logits: list[float], params: BiasParams, view: View) -> list[float]:
    """x[i] = x[i] + bias[i]; -inf bans, and masked stays masked."""
    new = list(logits)
    for key, value in params.bias:
        token = view.token_id(key)
        new[token] = value if value == -math.inf else finite(logits[token], logits[token] + value)
    return new


def sequence_bias(logits: list[float], params: SequenceBiasParams, view: View) -> list[float]:
    """x[i] = x[i] + bias for each sequence that token i completes."""
    assert view.vocabulary is not None
    text, added = view.prompt + view.output, dict[int, float]()
    for key, value in params.biases:
        key = tuple(view.vocabulary.encode(key, special=False)) if isinstance(key, str) else key
        *before, last = (key,) if isinstance(key, int) else key
        if len(before) <= len(text) and text[len(text) - len(before) :] == tuple(before):
            added[last] = added.get(last, 0.0) + value
    new = list(logits)
    for token, value in added.items():
        new[token] = value if value == -math.inf else finite(logits[token], logits[token] + value)
    return new


def scoped(params: PenaltyParams, view: View) -> tuple[int, ...]:
    """Return the tokens in the window of the scope."""
    scope = {"prompt": view.prompt, "output": view.output, "both": view.prompt + view.output}[params.scope]
    return scope if params.window is None else scope[-params.window :]


def occurrences(params: PenaltyParams, view: View) -> Counter[int]:
    """Count the tokens in the window of the scope, without exempt ones."""
    spared = exempt(params.exempt, view)
    return Counter(token for token in scoped(params, view) if token not in spared)


def repetition(logits: list[float], params: RepetitionParams, view: View) -> list[float]:
    """x = x / penalty if x > 0 else x * penalty for each token seen (Keskar et al. 2019)."""
    recent = scoped(params, view)
    new = list(logits)
    for token in occurrences(params, view):
        latest = max(index for index, other in enumerate(recent) if other == token)
        is_older, behind = latest < len(recent) // 2, len(recent) - latest
        penalty = params.penalty
        if is_older and penalty > 1:
            penalty = 1 + (penalty - 1) * params.slope
        weight = 1.0
        if params.sustain is not None and behind > params.sustain:
            behind -= params.sustain
            weight = 1 - behind / params.decay if behind < params.decay else 0.0
        if params.decay_space == "penalty":
            penalty, weight = 1 + (penalty - 1) * weight, 1.0
        old = logits[token]
        changed = old / penalty if old > 0 else old * penalty
        new[token] = finite(old, old * (1 - weight) + changed * weight if weight else old)
    return new


def frequency(logits: list[float], params: FrequencyParams, view: View) -> list[float]:
    """x = x - penalty * count."""
    new = list(logits)
    for token, count in occurrences(params, view).items():
        new[token] = finite(logits[token], logits[token] - params.penalty * count)
    return new


def presence(logits: list[float], params: PresenceParams, view: View) -> list[float]:
    """x = x - penalty for each token seen."""
    new = list(logits)
    for token in occurrences(params, view):
        new[token] = finite(logits[token], logits[token] - params.penalty)
    return new


def temperature(logits: list[float], params: TemperatureParams, view: View) -> list[float]:
    """x = (x - max(x)) / T, with T clamped to normal float32; T = 0 keeps the first of the largest."""
    top = max(max(logits), LOWEST)
    if params.temperature == 0:
        first = logits.index(max(logits))
        return [finite(x, 0.0) if token == first else -math.inf for token, x in enumerate(logits)]
    scale = min(max(params.temperature, _TINY), HIGHEST)
    return [finite(logit, (logit - top) / scale) for logit in logits]


def top_k(logits: list[float], params: TopKParams, view: View) -> list[float]:
    order = ranking(logits)
    count = min(max(params.k, params.keep), len(order))
    if params.ties == "keep":
        last = logits[order[count - 1]]
        return [logit if logit >= last else -math.inf for logit in logits]
    return masked(logits, order[count:])


def top_p(logits: list[float], params: TopPParams, view: View) -> list[float]:
    """Keep the most likely tokens while the mass before each is below p; exclusive: the mass including it."""
    order, weights = ranking(logits), exp_all(logits)
    bound = params.p * math.fsum(weights)
    count, mass = 0, 0.0
    for token in order:
        if not (mass + weights[token] <= bound if params.boundary == "exclusive" else mass < bound):
            break
        count, mass = count + 1, mass + weights[token]
    return masked(logits, order[max(count, params.keep) :])


def min_p(logits: list[float], params: MinPParams, view: View) -> list[float]:
    """Keep tokens at least p times as likely as the most likely one, in the log domain."""
    threshold = max(logits) + math.log(params.p)
    order = ranking(logits)
    count = sum(logit >= threshold for logit in logits)
    return masked(logits, order[max(count, params.keep) :])


def dynamic_temperature(logits: list[float], params: DynamicTemperatureParams, view: View) -> list[float]:
    """Divide by a temperature between two bounds, which rises with the entropy."""
    params = params.around(1.0) if params.is_relative else params
    count = sum(logit > -math.inf for logit in logits)
    if count < 2 or params.min is None or params.max is None:
        return logits
    share = min(_entropy(logits) / math.log(count), 1.0) ** params.exponent
    return _divided(logits, params.min + (params.max - params.min) * share, view)


def edt(logits: list[float], params: EdtParams, view: View) -> list[float]:
    """Divide by t0 * 0.8^(theta / entropy)."""
    if sum(logit > -math.inf for logit in logits) < 2:
        return logits
    entropy, t0 = _entropy(logits), 1.0 if params.t0 is None else params.t0
    return _divided(logits, t0 * 0.8 ** (params.theta / entropy) if entropy else 0.0, view)


def smoothing(logits: list[float], params: SmoothingParams, view: View) -> list[float]:
    """Replace the distance to the largest logit by a polynomial of it."""
    top, square, cube = max(logits), (3 - params.curve) / 2, (params.curve - 1) / 2
    return [
        finite(x, top - params.factor * (x - top) ** 2 * (square - cube * (x - top))) if x > -math.inf else x
        for x in logits
    ]


def _entropy(logits: list[float]) -> float:
    weights = exp_all(logits)
    total = math.fsum(weights)
    return max(0.0, -math.fsum(w / total * math.log(w / total) for w in weights if w / total > 0))


def _divided(logits: list[float], heat: float, view: View) -> list[float]:
    """Return the logits at this temperature; at 0 only the first maximum has a positive probability."""
    if heat > 0:
        return temperature(logits, TemperatureParams(heat), view)
    first = logits.index(max(logits))
    return [0.0 if i == first else finite(logit, -math.inf) for i, logit in enumerate(logits)]


def top_h(logits: list[float], params: TopHParams, view: View) -> list[float]:
    """Keep the most likely tokens while their entropy terms sum up to at most h of all terms."""
    order, weights = ranking(logits), exp_all(logits)
    first = order[: params.candidates]
    total = math.fsum(weights[token] for token in (first if params.renormalise else order))
    shares = [weights[token] / total if total else 0.0 for token in first]
    sums = list(accumulate(-share * math.log(share) if share else 0.0 for share in shares))
    count = sum(
        bool(share) and entropy <= params.h * sums[-1] for share, entropy in zip(shares, sums, strict=True)
    )
    return masked(logits, order[max(count, params.keep) :])


def min_k(logits: list[float], params: MinKParams, view: View) -> list[float]:
    """Keep the tokens before the steepest fall of the sorted logits, and tau for each unit of their range."""
    order = ranking(logits)
    values = [logits[token] for token in order if logits[token] > -math.inf]
    if not values:
        return logits
    extent = values[0] - values[-1] + 1e-8
    falls = [(values[i] - values[i + 1]) / ((i + 1) * extent) for i in range(len(values) - 1)]
    cliff = falls.index(max(falls)) + 1 if falls else 1
    assert params.tau is not None
    count = int(min(max(cliff, params.tau / extent), len(values)))
    least = values[count - 1]
    return masked(logits, order[max(params.keep, sum(value >= least for value in values)) :])


def typical(logits: list[float], params: TypicalParams, view: View) -> list[float]:
    """Keep the tokens whose surprise is closest to the entropy until their probabilities sum up to p."""
    weights = exp_all(logits)
    total = math.fsum(weights)
    if not total:
        return logits
    top = max(logits)
    entropy = (
        math.log(total) - math.fsum(w * (x - top) for w, x in zip(weights, logits, strict=True) if w) / total
    )
    distances = [abs(math.log(total) - (logit - top) - entropy) for logit in logits]
    order = sorted(range(len(logits)), key=lambda token: (distances[token], -logits[token], token))
    bound, count, mass = params.p * total, 0, 0.0
    for token in order:
        after = mass + weights[token]
        stays = {"inclusive": mass < bound, "strict": mass <= bound, "exclusive": after < bound}
        if not stays[params.boundary]:
            break
        count, mass = count + 1, after
    if params.ties == "keep":
        limit = distances[order[max(count, 1) - 1]]
        count = sum(distance <= limit for distance in distances)
    return masked(logits, order[max(count, params.keep) :])


def tfs(logits: list[float], params: TfsParams, view: View) -> list[float]:
    """Keep the most likely tokens up to a share z of the curvature of the sorted probabilities."""
    order, weights = ranking(logits), exp_all(logits)
    q = [weights[token] for token in order if logits[token] > -math.inf]
    sums = list(accumulate(abs(q[i] - 2 * q[i + 1] + q[i + 2]) for i in range(len(q) - 2)))
    if not sums or not sums[-1]:
        return logits
    bends = sum(bend <= params.z * sums[-1] for bend in sums)
    return masked(logits, order[max(bends + (params.style == "centred"), params.keep) :])


def begin_suppress(logits: list[float], params: BeginSuppressParams, view: View) -> list[float]:
    """Mask the listed ids while the output is empty."""
    return masked(logits, () if view.output else params.ids)


def eos_above(logits: list[float], params: EosAboveParams, view: View) -> list[float]:
    """Mask all ids but the end-of-text ids if one of those is more probable than p."""
    weights = exp_all(logits)
    bound = params.p * math.fsum(weights)
    if not any(weights[token] > bound for token in view.eos_ids):
        return logits
    return masked(logits, set(range(len(logits))).difference(view.eos_ids))


def force(logits: list[float], params: ForceParams, view: View) -> list[float]:
    """Allow only the next id of the text; with `at: end`, where an end id has the largest logit.

    Assumes that no end id was the most likely token at an earlier position.
    """
    ids = params.ids or _ids(params.text, view)
    if params.at == "end":
        ends = {*view.eos_ids, *view.stop_ids}
        is_end = max(logits) > -math.inf and max(logits) in [logits[token] for token in ends]
        return _only(logits, ids[0]) if is_end else masked(logits, ends)
    begin = {
        "start": 0,
        "tokens": params.after_tokens,
        "id": _first(view.output, lambda n: view.output[n - 1 : n] == (params.after_id,)),
        "text": _first(view.output, lambda n: _has(view.output[:n], params.after, view)),
    }[params.at]
    offset = len(view.output) - begin
    return _only(logits, ids[offset]) if 0 <= offset < len(ids) else logits


def reasoning_budget(logits: list[float], params: ReasoningBudgetParams, view: View) -> list[float]:
    """Allow only the next id of message and end tag, once the budget has been used after a start tag."""
    assert params.tokens is not None
    closing = _ids(params.message + params.end, view)
    begins = max((n + 1 for n, token in enumerate(view.prompt) if not view.text([token])), default=0)
    before = view.text(view.prompt[begins:])
    is_open = any(text.endswith(params.start.encode()) for text in (before, before.rstrip()))
    output = view.output
    while True:
        if not is_open:
            begin = _first(output, lambda n: _has(output[:n], params.start, view))  # noqa: B023
            if begin > len(output):
                return logits
            output = output[begin:]
        end = _first(output, lambda n: _has(output[:n], params.end, view))  # noqa: B023
        whole = [n for n in range(params.tokens, len(output) + 1) if _is_whole(view.text(output[:n]))]
        stop = whole[0] if params.tokens and whole else 0 if not params.tokens else len(output) + 1
        if end <= min(stop, len(output)):
            is_open, output = False, output[end:]
        elif stop > len(output):
            is_cut = len(output) >= params.tokens
            return masked(logits, (*view.eos_ids, *view.stop_ids)) if is_cut else logits
        elif len(output) - stop < len(closing):
            return _only(logits, closing[len(output) - stop])
        else:
            is_open, output = False, output[stop + len(closing) :]


def _ids(text: str, view: View) -> tuple[int, ...]:
    assert view.vocabulary is not None
    return tuple(view.vocabulary.encode(text, special=False))


def _only(logits: list[float], token: int) -> list[float]:
    return masked(logits, set(range(len(logits))) - {token})


def _first(output: tuple[int, ...], is_here: Callable[[int], bool]) -> int:
    """Return the smallest number of tokens for which `is_here` is true; len(output) + 1 if there is none."""
    return next((n for n in range(1, len(output) + 1) if is_here(n)), len(output) + 1)


def _has(tokens: tuple[int, ...], text: str, view: View) -> bool:
    return text.encode() in view.text(tokens)


def _is_whole(text: bytes) -> bool:
    """Whether the text does not end inside a character."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return True


_MAX_FACTOR = 1e200


def length_decay(logits: list[float], params: LengthDecayParams, view: View) -> list[float]:
    """x = x + |x| * (factor^steps - 1) for end-of-text ids, steps counted from the start."""
    assert params.decay is not None
    start, factor = params.decay
    steps = len(view.output) - start
    if steps <= 0:
        return logits
    new = list(logits)
    for token in set(view.eos_ids):
        grown = logits[token] + abs(logits[token]) * (_power(factor, steps) - 1)
        new[token] = finite(logits[token], grown)
    return new


def length_boost(logits: list[float], params: LengthBoostParams, view: View) -> list[float]:
    """x = x + boost * (n / 10)^power for end-of-text ids after n output tokens."""
    text = view.text((*view.prompt, *view.output)) if params.after else b""
    if params.after and not text.endswith(tuple(map(str.encode, params.after))):
        return logits
    new = list(logits)
    for token in set(view.eos_ids):
        boost = params.boost * _power(len(view.output) / 10, params.power)
        new[token] = finite(logits[token], logits[token] + boost)
    return new


def _power(base: float, exponent: float) -> float:
    try:
        return min(math.pow(base, exponent), _MAX_FACTOR)
    except OverflowError:
        return _MAX_FACTOR


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
    for column in range(start, end):
        same = 0
        while same < min(limit, column - start) and text[column - 1 - same] == text[-1 - same]:
            same += 1
        yield text[column], same, column - start, len(text) - column


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
    most_exponent = math.floor(88.7228391 / math.log(params.base)) if params.base > 1 else math.inf
    new = list(logits)
    for token, counts in lengths.items():
        count = 1 if params.matches == "max" else Counter(counts)[longest]
        penalty = params.multiplier * params.base ** min(max(counts) - params.allowed, most_exponent)
        new[token] = finite(logits[token], logits[token] - penalty * count)
    return new


def lz(logits: list[float], params: LzParams, view: View) -> list[float]:
    """x = x - strength * (log2 V - bits of the cheapest code of the token)."""
    spared = exempt(params.exempt, view)
    limit = _since(view.prompt + view.output, (), spared, view)
    width_bits = math.log2(len(logits))
    bits: dict[int, float] = {}
    for token, same, _, distance in _copies(params, view, limit):
        size = min(same, params.length) + 1
        bits[token] = min(bits.get(token, width_bits), (math.log2(distance + 1) + math.log2(size)) / size)
    new = list(logits)
    for token, cost in bits.items():
        if token not in spared:
            new[token] = finite(logits[token], logits[token] - params.strength * (width_bits - cost))
    return new


_TWINS: tuple[Callable[..., list[float]], ...] = (
    *(tail, allowed, suppress, ban, min_tokens, ignore_eos, grammar, begin_suppress, eos_above),
    *(force, reasoning_budget, bias, sequence_bias, repetition, frequency, presence),
    *(length_decay, length_boost, no_repeat_ngram, dry, lz),
    *(temperature, dynamic_temperature, edt, smoothing),
    *(min_p, top_k, top_p, top_h, min_k, typical, tfs),
)
REFERENCE: dict[str, Twin] = {twin.__name__: twin for twin in (*_TWINS, *DRAW_TWINS)}
