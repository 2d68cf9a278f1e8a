"""Lists of samplers of other systems, as orders of stages.

Sources: llama.cpp src/llama-sampler.cpp and common/sampling.cpp (names, letters, aliases),
text-generation-webui modules/sampler_hijack.py, koboldcpp gpttype_adapter.cpp (numbers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gencli.imports.readers import NotTaken

__all__ = ["Order", "kobold_order", "llama_letters", "llama_order", "webui_order"]

_PENALTIES = ("repetition", "frequency", "presence")
_STAGES: dict[str, tuple[str, ...]] = {
    "penalties": _PENALTIES,
    "repetition_penalty": ("repetition",),
    "frequency_penalty": ("frequency",),
    "presence_penalty": ("presence",),
    "temperature": ("temperature",),
    "temp": ("temperature",),
    "typ_p": ("typical",),
    "typical_p": ("typical",),
    "typical": ("typical",),
    "typ": ("typical",),
    "nucleus": ("top_p",),
    "epsilon_cutoff": ("epsilon",),
    "eta_cutoff": ("eta",),
    "quadratic_sampling": ("smoothing",),
    "top_nsigma": ("top_n_sigma",),
    "tfs_z": ("tfs",),
    **{
        name: (name,)
        for name in "dry top_n_sigma top_k top_p min_p top_a tfs xtc adaptive_p mirostat "
        "dynamic_temperature".split()
    },
}
_PLAIN = {name.replace("_", ""): stages for name, stages in _STAGES.items()}
_LETTERS = {"e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typ_p", "p": "top_p",
            "m": "min_p", "x": "xtc", "t": "temperature", "a": "adaptive_p", "i": "infill"}  # fmt: skip
_NUMBERS = {
    0: ("top_k",),
    1: ("top_a",),
    2: ("top_p", "min_p"),
    3: ("tfs",),
    4: ("typical",),
    5: ("temperature", "dynamic_temperature", "smoothing", "top_n_sigma"),
    6: ("repetition", "presence"),
}
# Stages that always mask first in gencli, wherever a list has them.
_FIRST = ("no_repeat_ngram", "encoder_repetition_penalty")
_MOST = 100  # limit of names in a list


@dataclass(frozen=True, slots=True)
class Order:
    """Stages in order, and names that no stage has. `is_open`: unnamed stages run first."""

    stages: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    is_open: bool = False


def llama_order(value: Any) -> Order:
    """Read llama.cpp's samplers: a list, or names separated by semicolons. Unnamed samplers do not run."""
    order = _named(_words(value, ";"))
    stages = _with_dynamic(order.stages)
    return Order(("bias", *stages), order.unknown)


def llama_letters(value: Any) -> Order:
    """Read llama.cpp's samplers as letters."""
    if not isinstance(value, str):
        raise NotTaken("it is no text of letters")
    return llama_order([_LETTERS.get(letter, letter) for letter in value[:_MOST]])


def webui_order(value: Any) -> Order:
    """Read text-generation-webui's priorities: a list, or lines. Unnamed samplers run first."""
    separator = "\n" if isinstance(value, str) and "\n" in value else ","
    order = _named(word for word in _words(value, separator) if word not in _FIRST)
    last = [stage for stage in ("adaptive_p", "mirostat") if stage in order.stages]  # they choose the token
    stages = (*(stage for stage in order.stages if stage not in last), *last)
    return Order(stages, order.unknown, is_open=True)


def kobold_order(value: Any) -> Order:
    """Read koboldcpp's numbers; DRY runs first, XTC and adaptive_p last. Without a 6, 6 comes first."""
    if not isinstance(value, list) or not all(type(item) is int and item in _NUMBERS for item in value):
        raise NotTaken("it is no list of numbers from 0 to 6")
    numbers = value if 6 in value else [6, *value]
    stages = [stage for item in dict.fromkeys(numbers) for stage in _NUMBERS[item]]
    return Order(("bias", "dry", *stages, "xtc", "adaptive_p"))


def _words(value: Any, separator: str) -> list[str]:
    parts = value.split(separator) if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise NotTaken("it is no list of samplers")
    if len(parts) > _MOST:
        raise NotTaken(f"it has more than {_MOST} samplers")
    return [part.strip() for part in parts if part.strip()]


def _named(words: Iterable[str]) -> Order:
    stages: dict[str, None] = {}
    unknown = []
    for word in words:
        found = _PLAIN.get(word.casefold().replace("-", "").replace("_", ""))
        if found is None:
            unknown.append(word)
        stages.update(dict.fromkeys(found or ()))
    return Order(tuple(stages), tuple(unknown))


def _with_dynamic(stages: Sequence[str]) -> tuple[str, ...]:
    """Put the dynamic temperature at the position of the temperature, as both are one sampler there."""
    both = {"temperature": ("temperature", "dynamic_temperature")}
    return tuple(name for stage in stages for name in both.get(stage, (stage,)))
