"""processors: logits processing as data. Slots stay, rows pass, apply is read-only.

Names are imported on first use: declaring, parsing and checking a chain needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from processors.base import Admission, Env, Processor, Vocabulary
    from processors.catalog import BUILTIN, Phase, StageSpec
    from processors.chain import Chain
    from processors.errors import ProcessorsError
    from processors.history import History
    from processors.params import Params, param
    from processors.pipeline import Pipeline
    from processors.registry import Registry, builtin_registry
    from processors.rng import derive
    from processors.rows import Rows
    from processors.sampler import Sampler
    from processors.standalone import LogitsProcessor, sample

__all__ = [
    "BUILTIN",
    "Admission",
    "Chain",
    "Env",
    "History",
    "LogitsProcessor",
    "Params",
    "Phase",
    "Pipeline",
    "Processor",
    "ProcessorsError",
    "Registry",
    "Rows",
    "Sampler",
    "StageSpec",
    "Vocabulary",
    "builtin_registry",
    "derive",
    "param",
    "sample",
]

_HOME = {
    "base": ("Admission", "Env", "Processor", "Vocabulary"),
    "catalog": ("BUILTIN", "Phase", "StageSpec"),
    "chain": ("Chain",),
    "errors": ("ProcessorsError",),
    "history": ("History",),
    "params": ("Params", "param"),
    "pipeline": ("Pipeline",),
    "registry": ("Registry", "builtin_registry"),
    "rng": ("derive",),
    "rows": ("Rows",),
    "sampler": ("Sampler",),
    "standalone": ("LogitsProcessor", "sample"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'processors' has no attribute {name!r}")
    return getattr(import_module(f"processors.{_MODULE[name]}"), name)
