"""Where presets are looked for: ./configs, the user's folder, the ones that come with gencli."""

from __future__ import annotations

from pathlib import Path

from gencli.errors import ConfigError
from processors.names import close_names, did_you_mean

__all__ = ["Found", "defaults_file", "describe", "find_preset", "folders", "is_path", "list_presets"]

Found = tuple[str, str, Path]  # name, label of the folder, file
_PACKAGE = Path(__file__).parents[2]


def defaults_file() -> Path:
    """The user's own defaults, a preset that every run begins with; it need not be there."""
    from platformdirs import user_config_path

    return user_config_path("gencli") / "defaults.yaml"


def folders() -> tuple[tuple[str, Path], ...]:
    """Label and folder, in the order in which they are searched."""
    from platformdirs import user_config_path

    bundled = _PACKAGE / "configs"  # in an installed copy; a checkout has them at its root
    source = _PACKAGE.parent / "configs"
    return (
        ("./configs", Path.cwd() / "configs"),
        ("user", user_config_path("gencli") / "presets"),
        ("bundled", bundled if bundled.is_dir() else source),
    )


def list_presets() -> list[Found]:
    """Every preset that can be named, once, by name; where two folders have a name, the first one's."""
    found: dict[str, Found] = {}
    for label, folder in folders()[::-1]:
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
            is_same = path.stem in found and found[path.stem][2].samefile(path)
            if not is_same:
                found[path.stem] = (path.stem, label, path)
    return [found[name] for name in sorted(found)]


def is_path(name: str) -> bool:
    """Whether this names a preset's file, and not a preset in the folders."""
    return name.endswith((".yaml", ".yml")) or "/" in name or "\\" in name


def describe(content: bytes) -> str:
    """What a preset is for: its first line, if that is a comment."""
    line = content.partition(b"\n")[0].decode(errors="replace").strip()
    return line.lstrip("# ") if line.startswith("#") else ""


def find_preset(name: str, *, folder: Path | None = None) -> Path:
    """The file of a preset: by name in the folders, or the path itself (relative to `folder`)."""
    if is_path(name):
        path = Path(folder or ".") / Path(name).expanduser()
        if not path.is_file():
            raise ConfigError(f"There is no preset file {name}.")
        return path.resolve()
    for _, place in folders():
        path = place / f"{name}.yaml"
        if path.is_file():
            return path.resolve()
    close = close_names(name, [found for found, _, _ in list_presets()])
    hint = did_you_mean([repr(found) for found in close]) or "gencli config list shows those there are."
    raise ConfigError(f"There is no preset {name!r}.", hint=hint)
