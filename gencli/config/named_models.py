"""Names of the models in the options of a run: its model, a draft model, the amateur of a contrast."""

from __future__ import annotations

from gencli.config.options.drafts import BUILT_IN, EARLY_EXIT, NO_DRAFTER
from gencli.config.options.guidance import NO_AMATEUR
from gencli.config.settings import Settings
from gencli.plugins.plugin_registry import PluginRegistry
from processors.registry import Registry

__all__ = ["is_draft_model", "named_models"]


def named_models(settings: Settings, registry: Registry | None) -> dict[str, str]:
    """Return the names by option key: model, draft, contrast."""
    found = {"model": settings["model"]}
    if is_draft_model(settings["draft"], registry):
        found["draft"] = settings["draft"]
    if settings["contrast"] != NO_AMATEUR:
        found["contrast"] = settings["contrast"]
    return found


def is_draft_model(name: str, registry: Registry | None) -> bool:
    """Return whether the value of `draft` is a model, not a drafter of gencli or of a plug-in."""
    if name in (NO_DRAFTER, *BUILT_IN) or name.partition(":")[0] == EARLY_EXIT:
        return False
    return not (isinstance(registry, PluginRegistry) and registry.drafter(name) is not None)
