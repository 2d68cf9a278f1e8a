"""References of the stages that decide how a text begins and ends. They define the correct result."""

from __future__ import annotations

import math
from collections.abc import Callable

from processors.catalog.constrain import BeginSuppressParams, EosAboveParams
from processors.catalog.forcing import ForceParams, ReasoningBudgetParams
from processors.reference.view import View, exp_all, masked

__all__ = ["TWINS", "begin_suppress", "eos_above", "force", "reasoning_budget"]


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
    place = len(view.output) - begin
    return _only(logits, ids[place]) if 0 <= place < len(ids) else logits


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


TWINS: dict[str, Callable[..., list[float]]] = {
    "begin_suppress": begin_suppress,
    "eos_above": eos_above,
    "force": force,
    "reasoning_budget": reasoning_budget,
}
