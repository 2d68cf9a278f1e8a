"""The old place of gencli.speculative.base, kept for one release for the imports of plug-ins."""

from gencli.speculative.base import DraftAsk, Drafter, Drawn, Measured, Text

__all__ = ["DraftAsk", "Drafter", "Drawn", "Measured", "Text"]
