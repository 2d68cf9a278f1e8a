"""The options of `gencli score`; those of the model are the run's."""

from __future__ import annotations

from typing import Literal

from gencli.batch.options import BATCH_OPTIONS
from gencli.config.options.option import Option
from gencli.config.options.run import OPTIONS
from gencli.scoring.windows import CONVENTIONS
from processors.params import MOST, Bounds

__all__ = ["SCORE_OPTIONS", "SHARED"]

_OWN: tuple[Option, ...] = (
    Option(("--convention",), CONVENTIONS, "How a text is cut into windows: lm-eval as "
           "lm-evaluation-harness, strided as the documentation of transformers, llama as llama-perplexity.",
           "Draw", "lm-eval"),
    Option(("--window",), int, "Tokens that are read together; by default the model's context, with "
           "`convention` = llama 512.", "Draw", bounds=Bounds(ge=2, le=MOST)),
    Option(("--stride",), int, "With `convention` = strided: tokens between the beginnings of two windows; "
           "by default half of the window.", "Draw", bounds=Bounds(ge=1, le=MOST)),
    Option(("--tokens",), int, "Add a record for each scored token, with this many alternatives; not with "
           "`format` = text.", "Output", bounds=Bounds(ge=0, le=MOST)),
    Option(("--format",), Literal["text", "jsonl"], "Form of the result.", "Output", "text"),
    Option(("--output", "-o"), str, "Write the result to this file.", "Output", metavar="FILE"),
)  # fmt: skip
_TAKEN = ("input_format", "delimiter")
_OF_RUN = frozenset(
    "quiet debug model dtype backend quantize kernel invariant kv_dtype device device_map threads wait "
    "max_batch memory_check trust_remote_code download offline".split()
)
SHARED: tuple[Option, ...] = tuple(entry for entry in OPTIONS if entry.key in _OF_RUN)
SCORE_OPTIONS: tuple[Option, ...] = (
    *(entry for entry in BATCH_OPTIONS if entry.key in _TAKEN), *_OWN, *SHARED
)  # fmt: skip
