"""The folders of presets: ./configs, the user's folder, and the presets of gencli."""

from __future__ import annotations

import os
from pathlib import Path

from gencli.errors import ConfigError
from gencli.structured.schema_inputs import exists
from processors.names import close_names, did_you_mean

__all__ = [
    "Found",
    "defaults_file",
    "describe",
    "find_preset",
    "folders",
    "is_path",
    "list_presets",
    "profile_file",
    "shipped_presets",
]

Found = tuple[str, str, Path]  # name, label of the folder, file
_PACKAGE = Path(__file__).parents[2]


def defaults_file() -> Path:
    """Return the file of the user's defaults, the first preset of every run; it may not exist."""
    from platformdirs import user_config_path

    return user_config_path("gencli") / "defaults.yaml"


def folders() -> tuple[tuple[str, Path], ...]:
    """Return labels and folders in the order of the search."""
    from platformdirs import user_config_path

    return (
        ("./configs", Path.cwd() / "configs"),
        ("user", user_config_path("gencli") / "presets"),
        ("bundled", shipped_presets()),
    )


def profile_file(name: str) -> Path:
    """Return the file of a compat profile, which comes with gencli."""
    return shipped_presets() / "compat" / f"{name}.yaml"


def shipped_presets() -> Path:
    """Return the folder of the presets that come with gencli."""
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"  # the folder of a checkout


def list_presets() -> list[Found]:
    """Return the presets of all folders, sorted by name; the first folder wins for a duplicate name."""
    found: dict[str, Found] = {}
    for label, folder in folders()[::-1]:
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
            if path.stem not in found or not _are_same(path, found[path.stem][2]):
                found[path.stem] = (path.stem, label, path)
    return [found[name] for name in sorted(found)]


def _are_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file; a link that leads nowhere is no other path's file."""
    return exists(one) and exists(other) and one.samefile(other)


def is_path(name: str) -> bool:
    """Return whether the name is a path, not the name of a preset in the folders."""
    return name.endswith((".yaml", ".yml")) or "/" in name or "\\" in name


def describe(content: bytes) -> str:
    """Return the description of a preset: its first line if it is a comment, otherwise ""."""
    line = content.partition(b"\n")[0].decode(errors="replace").strip()
    return line.lstrip("# ") if line.startswith("#") else ""


def find_preset(name: str, *, folder: Path | None = None) -> Path:
    """Return the file of a preset by name, or by path relative to `folder`. Raises ConfigError.

    A folder, a pipe or a link that leads nowhere is returned too: whoever reads it is told what it is.
    """
    if is_path(name):
        path = Path(folder or ".") / Path(name).expanduser()
        if not os.path.lexists(path):
            raise ConfigError(f"There is no preset file {name}.")
        return path.resolve()
    for _, place in folders():
        path = place / f"{name}.yaml"
        if os.path.lexists(path):
            return path.resolve()
    close = close_names(name, [found for found, _, _ in list_presets()])
    beside = Path(folder or ".") / f"{name}.yaml"
    hint = did_you_mean([f"./{name}.yaml"] if exists(beside) else [repr(found) for found in close])
    hint = hint or "gencli config list shows those there are."
    raise ConfigError(f"There is no preset {name!r}.", hint=hint)
