"""References of the built-in stages, on one row. They define the correct result."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable

from processors.catalog import (
    AllowedParams,
    BanParams,
    BiasParams,
    FrequencyParams,
    GrammarParams,
    IgnoreEosParams,
    MinPParams,
    MinTokensParams,
    PenaltyParams,
    PresenceParams,
    RepetitionParams,
    SuppressParams,
    TailParams,
    TemperatureParams,
    TopKParams,
    TopPParams,
)
from processors.catalog.adjust import SequenceBiasParams
from processors.grammar.forced_tokens import ANCHOR, PROBES
from processors.reference.view import HIGHEST, LOWEST, View, exempt, exp_all, finite, masked, ranking

__all__ = [
    "TWINS",
    "allowed",
    "ban",
    "bias",
    "canonical",
    "frequency",
    "grammar",
    "ignore_eos",
    "min_p",
    "min_tokens",
    "occurrences",
    "presence",
    "repetition",
    "scoped",
    "sequence_bias",
    "suppress",
    "tail",
    "temperature",
    "top_k",
    "top_p",
]

_TINY = 2.0**-126  # the smallest normal float32


def tail(logits: list[float], params: TailParams, view: View) -> list[float]:
    """Mask the ids from `size` on."""
    return masked(logits, range(params.size, len(logits)))


def allowed(logits: list[float], params: AllowedParams, view: View) -> list[float]:
    """Mask all ids but the listed ones."""
    return masked(logits, set(range(len(logits))).difference(params.ids or ()))


def suppress(logits: list[float], params: SuppressParams, view: View) -> list[float]:
    """Mask the listed ids."""
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
            start = max(
                0, len(before) - len(text) + 1
            )  # at most len(text) - 1 bytes of the text come before the token
            if text in before[start:] + added:
                gone.append(token)
    return masked(logits, gone)


def min_tokens(logits: list[float], params: MinTokensParams, view: View) -> list[float]:
    """Mask end-of-text and stop ids while the output is shorter than `count`."""
    early = len(view.output) < params.count
    return masked(logits, (*view.eos_ids, *view.stop_ids) if early else ())


def ignore_eos(logits: list[float], params: IgnoreEosParams, view: View) -> list[float]:
    """Mask the end-of-text ids."""
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
        place = max(index for index, other in enumerate(recent) if other == token)
        is_older, behind = place < len(recent) // 2, len(recent) - place
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
    """Keep the k most likely tokens."""
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


TWINS: dict[str, Callable[..., list[float]]] = {
    "tail": tail,
    "allowed": allowed,
    "suppress": suppress,
    "ban": ban,
    "min_tokens": min_tokens,
    "ignore_eos": ignore_eos,
    "grammar": grammar,
    "bias": bias,
    "sequence_bias": sequence_bias,
    "repetition": repetition,
    "frequency": frequency,
    "presence": presence,
    "temperature": temperature,
    "min_p": min_p,
    "top_k": top_k,
    "top_p": top_p,
}
