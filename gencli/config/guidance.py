"""The guidance of requests from settings, and its conflicts."""

from __future__ import annotations

from collections.abc import Iterable

from gencli.config.options.guidance import CONTRASTS, GUIDES, NO_AMATEUR
from gencli.config.settings import DEFAULT, Settings
from gencli.core.request import Guidance, LayerContrast
from gencli.errors import UsageError

__all__ = ["refuse_guidance", "wanted_dola", "wanted_guidance"]


def wanted_guidance(settings: Settings) -> Guidance:
    """Return the guidance shared by all prompts, without the tokens of the negative prompt."""
    if settings["contrast"] == NO_AMATEUR:
        return Guidance(settings["guidance"])
    scale, cutoff = 1 + settings["contrast_beta"], settings["contrast_alpha"]
    return Guidance(scale, cutoff=cutoff, amateur=settings["contrast"])


def wanted_dola(settings: Settings) -> LayerContrast | None:
    """Return the DoLa parameters shared by all prompts; None without DoLa."""
    layers = settings["dola"]
    return None if layers is None else LayerContrast(layers, settings["contrast_alpha"])


def refuse_guidance(settings: Settings) -> None:
    """Raise UsageError for conflicting options: a text has at most one companion or DoLa."""
    is_contrast = settings["contrast"] != NO_AMATEUR
    if not settings["contrast"]:
        raise UsageError(
            f"{settings.name('contrast')} is empty.", hint="Leave it out, or give the name of a model."
        )
    if is_contrast and (settings["guidance"] != 1 or settings["negative"] is not None):
        raise UsageError(
            f"{_given(settings, GUIDES)} and {_given(settings, CONTRASTS)} cannot be used together.",
            hint="Leave one of them out.",
        )
    beside = [key for key in (*GUIDES, CONTRASTS[0], CONTRASTS[2]) if settings.is_given(key)]
    if settings["dola"] is not None and beside:
        raise UsageError(
            f"{settings.name('dola')} and {settings.name(beside[0])} cannot be used together.",
            hint="Leave one of them out.",
        )
    if settings["negative"] is not None and settings.origin("guidance") == DEFAULT:
        raise UsageError(
            f"{settings.name('negative')} is given, but there is no guidance.", hint="Add `guidance` = 1.5."
        )
    strengths = [key for key in CONTRASTS[1:] if settings.is_given(key)]
    if strengths and settings["dola"] is None and settings.origin("contrast") == DEFAULT:
        raise UsageError(
            f"{settings.name(strengths[0])} is given, but there is no contrast.",
            hint="Add `contrast` = NAME.",
        )


def _given(settings: Settings, keys: Iterable[str]) -> str:
    """Return the names of the options that are given, separated by commas."""
    return ", ".join(settings.name(key) for key in keys if settings.is_given(key))
