"""The engine: scheduler, sequences, prefix cache and the loop that generates.

`Engine` is exported lazily, so that parts of this package can be imported without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processors.errors import exports

if TYPE_CHECKING:
    from gencli.engine.engine import Engine

__all__ = ["Engine"]


__getattr__ = exports(__name__, {"engine": ("Engine",)})
