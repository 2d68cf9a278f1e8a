"""Conditions of stages that can never hold in a run are refused before its model loads."""

from __future__ import annotations

from gencli.config.chain import Assembly
from gencli.config.settings import Assigned, Settings
from gencli.errors import UsageError
from gencli.structured.output_spec import DOCUMENTS, OutputSpec

__all__ = ["refuse_idle_conditions"]


def refuse_idle_conditions(settings: Settings, assembly: Assembly, structure: OutputSpec | None) -> None:
    """Raise UsageError for a condition that can hold nowhere in an output of the run."""
    for entry in assembly.values:
        if entry.when is None:
            continue
        if entry.when.begin >= max(settings["max_tokens"], 1):
            raise UsageError(
                f"{entry.said}: the condition begins at {entry.when.begin} output tokens, but "
                f"{settings.name('max_tokens')} allows {settings['max_tokens']}."
            )
        if entry.when.path is not None:
            _refuse_path(entry, entry.when.path, settings, structure)


def _refuse_path(entry: Assigned, path: str, settings: Settings, structure: OutputSpec | None) -> None:
    """Raise UsageError for a path without a JSON document, or one that its schema cannot reach."""
    if structure is None or structure.kind not in DOCUMENTS:
        what = "the output has no structure" if structure is None else f"`{structure.kind}` makes no document"
        raise UsageError(
            f"{entry.said}: the condition has the path {path!r} of a JSON document, but {what}.",
            hint="Add `json_schema`, `pydantic` or `json`, or leave the stage out.",
        )
    from gencli.structured.schema_check import unreached

    is_open = settings["extra_properties"] or structure.kind == "json"
    if (found := unreached(structure.plan.schema, path, is_open=is_open)) is not None:
        at, names = found
        known = f"At {at} it has {', '.join(names)}." if names else f"At {at} nothing is below."
        raise UsageError(
            f"{entry.said}: the condition has the path {path!r}, which {settings.name(structure.kind)} can "
            f"never reach. {known}"
        )
