"""The version of transformers that is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["transformers_version"]


def transformers_version() -> tuple[int, int] | None:
    """Return major and minor version, without importing transformers; None if it has none."""
    try:
        major, minor, *_ = version("transformers").split(".")
        return int(major), int(minor)
    except (PackageNotFoundError, ValueError):
        return None
