"""The public names of served models, without folders of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gencli.errors import UsageError

__all__ = ["public_name", "served_names"]


def public_name(model: str) -> str:
    """Return a model's name without the folders above it."""
    is_path = Path(model).exists() or model.startswith((".", "/", "~"))
    return Path(model).name if is_path else model


def served_names(models: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the name of each model: the one in `given` at its index, else its public name.

    Raises UsageError for more names than models, and for two models with one name.
    """
    if len(given) > len(models):
        raise UsageError(
            f"`served_name` is given {len(given)} times, but `model` only {len(models)} times.",
            hint="The first name is that of the first model, and so on.",
        )
    names = [*given, *map(public_name, models[len(given) :])]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"Two models have the name {twice}, so a request cannot choose between them.",
            hint="Give each a `served_name`, in the order of the models.",
        )
    return names
