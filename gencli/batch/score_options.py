"""The options of `gencli score`: its own, and those shared with a batch and a run."""

from __future__ import annotations

from typing import Literal

from gencli.batch.batch_options import BATCH_OPTIONS
from gencli.batch.batch_options import OWN as OF_BATCH
from gencli.config.option import Option
from gencli.config.run_options import OPTIONS
from gencli.scoring.text_scores import CHAIN_KEYS, CONVENTIONS, MODES
from processors.params import MOST, Bounds

_CHANGED = ("format", "no_timings", "dry_run", "max_batch", "kv_memory")
_UNUSED = ("engine", "workers", "worker_cpus", "worker_gpus", "named_key", "columns")
_NEW: tuple[Option, ...] = (
    Option(("--convention",), CONVENTIONS, "How a text is cut into windows: lm-eval as "
           "lm-evaluation-harness, strided as the documentation of transformers, llama as llama-perplexity.",
           "Draw", "lm-eval"),
    Option(("--window",), int, "Tokens that are read together; by default the model's context, with "
           "`convention` = llama 512.", "Draw", bounds=Bounds(ge=2, le=MOST)),
    Option(("--stride",), int, "With `convention` = strided: tokens between the beginnings of two windows; "
           "by default half of the window.", "Draw", bounds=Bounds(ge=1, le=MOST)),
    Option(("--mode",), MODES, "raw: log-probabilities of the model alone; processed: those under the chain, "
           "as if the tokens had been chosen.", "Draw", "raw"),
    Option(("--tokens",), int, "Add a record for each scored token, with this many alternatives; not with "
           "`format` = text.", "Output", bounds=Bounds(ge=0, le=MOST)),
    Option(("--group-by",), str, "Add up the texts for each value of this column.", "Output",
           metavar="NAME"),
    Option(("--bootstrap",), int, "Random samples of the rows for the 95 % interval of a total; 0 is none.",
           "Output", 1000, Bounds(ge=0, le=MOST)),
    Option(("--format",), Literal["text", "jsonl", "csv", "tsv", "parquet"], "Form of the results; by "
           "default the suffix of the output decides, text on stdout.", "Output"),
)  # fmt: skip
# Options of a batch without effect on scores have their defaults.
SCORE_OWN: tuple[Option, ...] = (*_NEW, *(entry for entry in OF_BATCH if entry.key != "format"))
_HIDDEN = frozenset((*_CHANGED, *_UNUSED))
_OF_MODEL = frozenset(
    "quiet debug model dtype backend quantize kernel invariant kv_dtype device cuda_graphs device_map "
    "threads wait max_batch async_steps memory_check trust_remote_code download offline preset template "
    "vars seed".split()
)
# Options that affect a row's result, besides those that control how rows are read.
DECIDING = ("convention", "window", "stride", "mode", "tokens", "group_by")
_TAKEN = tuple(entry for entry in BATCH_OPTIONS if entry in OF_BATCH and entry.key not in _HIDDEN)
SCORE_OPTIONS: tuple[Option, ...] = (
    *_TAKEN, *_NEW, *(entry for entry in OPTIONS if entry.key in _OF_MODEL | CHAIN_KEYS)
)  # fmt: skip
