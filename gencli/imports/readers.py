"""Readers of single fields: convert a value of another system, with its units and "off" values.

A reader returns values by key: an option (`max_tokens`), `stage.field`, or a hint that begins with `?`, which
only has a meaning together with other fields. Source of the units: each system's own code.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from gencli.errors import UsageError
from gencli.text.escapes import unescape

__all__ = ["COMMON", "WINDOWS", "Found", "NotTaken", "Reader", "breakers", "greedy_below", "number", "scaled",
           "switch", "texts", "to", "window"]  # fmt: skip

Found = dict[str, Any]
Reader = Callable[[Any], Found | None]  # None: the value has the common form
WINDOWS = ("repetition.window", "frequency.window", "presence.window")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_MOST_DIGITS = 400


class NotTaken(Exception):
    """A field is not taken over; the message is the reason, as the end of a sentence."""


def number(value: Any) -> int | float:
    """Return a number; a command line gives it as text. Raises NotTaken."""
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and _NUMBER.fullmatch(value.strip()):
        value = float(value) if set(value) & set(".eE") else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_float(value)):
        raise NotTaken("it is no number")
    return value


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def switch(value: Any) -> bool:
    """Return a boolean, also from a number or a text. Raises NotTaken."""
    words = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
    text = str(value).casefold()
    if text not in words:
        raise NotTaken("it is neither true nor false")
    return words[text]


def to(*keys: str, off: float | None = None, below: bool = False) -> Reader:
    """Return a reader of a number for these keys; numbers <= 0 mean `off`, if `off` is given.

    With `below` only numbers < 0 mean `off`.
    """

    def read(value: Any) -> Found:
        found = number(value)
        is_off = off is not None and (found < 0 if below else found <= 0)
        return dict.fromkeys(keys, off if is_off else found)

    return read


def scaled(key: str, unit: float) -> Reader:
    """Return a reader of a number in multiples of `unit`."""
    return lambda value: {key: float(f"{number(value) * unit:.12g}")}


def greedy_below(limit: float, raised: float = 0.0) -> Reader:
    """Return a reader of a temperature: greedy below `limit`, otherwise at least `raised`."""

    def read(value: Any) -> Found:
        found = number(value)
        return {"temperature": 0.0 if found < limit or found <= 0 else max(float(found), raised)}

    return read


def window(*keys: str, zero_is_all: bool = True) -> Reader:
    """Return a reader of a number of tokens; -1, and mostly 0, means all tokens."""

    def read(value: Any) -> Found:
        found = number(value)
        if found < 0 or (found == 0 and zero_is_all):
            return dict.fromkeys(keys)
        if found == 0:
            return {f"?off.{key.partition('.')[0]}": True for key in keys}
        return dict.fromkeys(keys, found)

    return read


def texts(value: Any) -> list[str]:
    """Return a list of texts, also from a JSON list in a text. Raises NotTaken."""
    if isinstance(value, str):
        stripped = value.strip()
        try:
            value = json.loads(stripped if stripped.startswith("[") else f"[{stripped}]")
        except (ValueError, RecursionError):
            value = [value]
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise NotTaken("it is no list of texts")
    return value


def breakers(value: Any) -> Found:
    """Read the breakers of DRY; on a command line they have escapes, and `none` removes them."""
    if isinstance(value, tuple):  # from a command line
        try:
            return {"dry.breakers": [unescape(item) for item in value if item != "none"]}
        except UsageError as error:
            raise NotTaken(error.message) from None
    return {"dry.breakers": texts(value)}


def _encoder(value: Any) -> Found:
    found = number(value)
    return {"?encoder": found} if found != 1 else {}


def _seed(value: Any) -> Found:
    return {"seed": number(value)} if number(value) >= 0 else {}


def _ban_eos(value: Any) -> Found:
    return {"ignore_eos": True} if switch(value) else {}


def _neutral(plain: Any, why: str) -> Reader:
    """Return a reader of a feature that gencli lacks; the value `plain` means that it is off."""

    def read(value: Any) -> Found:
        if value in (plain, None, "", []):
            return {}
        raise NotTaken(why)

    return read


_FORCED = "the stage force does it, at a place that you name"
_LACKING = "gencli has nothing of the kind"
COMMON: Mapping[str, Reader] = {
    "temperature": to("temperature", off=0.0),
    "top_k": to("top_k", off=0),
    "top_n_sigma": to("top_n_sigma.n", off=0.0),
    "adaptive_target": to("adaptive_p.target", off=0.0),
    "dynatemp_range": lambda value: {"?range": number(value)},
    **dict.fromkeys("dynatemp_exponent dynatemp_exp temp_exponent".split(), to("?exponent")),
    **dict.fromkeys("dynatemp_min dynatemp_low min_temp".split(), to("?low")),
    **dict.fromkeys("dynatemp_max dynatemp_high max_temp".split(), to("?high")),
    **dict.fromkeys("dynamic_temperature dynatemp".split(), lambda value: {"?dynamic": switch(value)}),
    **dict.fromkeys("mirostat mirostat_mode".split(), to("mirostat.version")),
    **dict.fromkeys("dry_window dry_penalty_last_n dry_range".split(), window("dry.window")),
    **dict.fromkeys("dry_breaker dry_sequence_breaker dry_sequence_breakers".split(), breakers),
    "penalty_window": window(*WINDOWS),
    **dict.fromkeys("encoder_repetition_penalty encoder_rep_pen".split(), _encoder),
    "rep_pen_slope": to("repetition.slope"),
    "rep_pen_decay": to("repetition.decay"),
    "do_sample": lambda value: {"?greedy": not switch(value)},
    "seed": _seed,
    "ignore_eos": _ban_eos,
    "temperature_last": lambda value: {"temperature_last": True} if switch(value) else {},
    "max_tokens": lambda value: {"max_tokens": number(value)} if number(value) >= 0 else {},
    "penalty_alpha": lambda value: {"?contrastive": number(value)} if value else {},
    "num_beams": _neutral(1, "a search is no setting of the chain; `beams` is its option"),
    "length_penalty": _neutral(1, "it belongs to a search"),
    "early_stopping": _neutral(False, "it belongs to a search"),
    "diversity_penalty": _neutral(0, _LACKING),
    "min_length": _neutral(0, "it counts the prompt too; set `min_tokens`"),
    "encoder_no_repeat_ngram_size": _neutral(0, "no_repeat_ngram with the scope prompt does it"),
    "forced_bos_token_id": _neutral(None, _FORCED),
    "forced_eos_token_id": _neutral(None, _FORCED),
    "rep_pen_size": _neutral(0, _LACKING),
    "speculative_ngram": _neutral(False, "drafts change no text; `draft` is their option"),
}
