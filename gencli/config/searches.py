"""The searches of a run from settings."""

from __future__ import annotations

from gencli.config.settings import Settings
from gencli.core.request import Beams, Contrastive

__all__ = ["choosing", "wanted_beams", "wanted_contrastive"]


def wanted_beams(settings: Settings) -> Beams | None:
    """Return the beam search parameters of all prompts; None without a beam search."""
    width = settings["beams"]
    return Beams(width, settings["length_penalty"], settings["early_stopping"]) if width else None


def wanted_contrastive(settings: Settings) -> Contrastive | None:
    """Return the contrastive search parameters of all prompts; None without a contrastive search."""
    alpha = settings["contrastive_alpha"]
    return Contrastive(alpha, settings["contrastive_k"]) if alpha else None


def choosing(settings: Settings) -> str:
    """Return the key of the option that decides how tokens are chosen."""
    return next((key for key in ("beams", "contrastive_alpha") if settings[key]), "sampler")
