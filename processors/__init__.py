"""processors: composable logits processors for batched generation.

A request holds a slot for its whole life; a step has one row of logits per position to choose. A stage keeps
state by slot, and its `apply` edits rows of logits without changing that state.

Names are imported on first use: a chain can be declared, parsed and checked without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processors.errors import exports

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

__getattr__ = exports(
    __name__,
    {
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
    },
)
