"""The options of watermarks, for the table in gencli.config.options.run."""

from __future__ import annotations

from typing import Literal

from gencli.config.options.option import Option

__all__ = ["WATERMARK"]

WATERMARK: tuple[Option, ...] = (
    Option(("--watermark",), Literal["none", "kgw", "synthid", "gumbel"], "Mark the text, so that whoever "
           "has the key can tell that it was generated (gencli detect).", "Chain", "none"),
    Option(("--watermark-key",), str, "The key of the watermark: a file with a whole number, or with a "
           "mapping of the watermark's values.", "Chain", metavar="FILE"),
)  # fmt: skip
