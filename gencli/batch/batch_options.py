"""The options of `gencli batch` and `gencli score`: their own, and those shared with a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gencli.config.option import MAX_BATCH, MAX_ROWS, MAX_SECONDS, Option, read_batch, read_pairs
from gencli.config.run_options import OPTIONS
from gencli.errors import UsageError
from gencli.scoring.text_scores import CHAIN_KEYS, CONVENTIONS, MODES
from processors.params import MOST, Bounds

_MAX_WORKERS = 65_536
_KEY_NAME = re.compile(r"[\w.-]{1,64}")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def read_bytes(value: str) -> int:
    """Return the bytes of a size such as 4G, 512M or a plain number. Raises UsageError."""
    text = str(value).strip().upper().removesuffix("IB").removesuffix("B")
    unit = text[-1:] if text[-1:] in _UNITS else ""
    number = text.removesuffix(unit)
    try:
        size = int(float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise UsageError(f"{value!r} is not a size.", hint="Write it as in 512M or 4G.")
    return size


def _read_keys(values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return read_pairs(values, "NAME=FILE", _KEY_NAME.fullmatch)


OWN: tuple[Option, ...] = (
    Option(("--input-format",), Literal["jsonl", "json", "csv", "tsv", "parquet", "lines", "paragraphs",
           "document"], "Format of the input; by default the suffix of the file decides.", "Prompt"),
    Option(("--delimiter",), str, "The character between the cells of a table.", "Prompt", metavar="CHAR"),
    Option(("--prompt-column",), str, "The column of the prompt; the other columns are data.", "Prompt",
           metavar="NAME"),
    Option(("--id-column",), str, "The column of the ids of rows, from which their seeds are derived; by "
           "default the column id, if there is one. '' takes the index of the row.", "Prompt",
           metavar="NAME"),
    Option(("--keep-input",), bool, "Copy the columns of the input to the results.", "Prompt", False),
    Option(("--limit",), int, "Take at most this many rows, the first ones.", "Prompt",
           bounds=Bounds(ge=1, le=MAX_ROWS)),
    Option(("--sample",), int, "Take this many rows, chosen at random by the seed.", "Prompt",
           bounds=Bounds(ge=1, le=MAX_ROWS)),
    Option(("--shard",), str, "Take one of N equal shares of the rows, as in 0/4; I counts from 0.",
           "Prompt", metavar="I/N"),
    Option(("--dry-run",), bool, "Show the first prompts as the model would get them, count tokens, list all "
           "faults of the input; load no weights.", "Prompt", False),
    Option(("--named-key",), tuple[str, str], "A watermark key that rows choose by its name, in "
           "their field watermark_key.", "Chain", (), many=True, read=_read_keys, metavar="NAME=FILE"),
    Option(("--max-batch",), str, "Samples that run at once; auto plans the number from the free memory.",
           "Model", bounds=Bounds(ge=1, le=MAX_BATCH), read=read_batch, metavar="N|auto"),
    Option(("--kv-memory",), str, "Memory of the KV cache, as in 4G; it limits the samples that run at once.",
           "Model", bounds=Bounds(ge=1, le=2**60), read=read_bytes, metavar="SIZE"),
    Option(("--engine",), Literal["local", "ray"], "Run the rows in this process, or on workers of Ray, each "
           "with its own copy of the model.", "Model", "local"),
    Option(("--workers",), int, "With `engine` = ray: the number of workers; 2 by default.", "Model",
           bounds=Bounds(ge=1, le=_MAX_WORKERS)),
    Option(("--worker-cpus",), float, "CPUs of each worker, as in 0.5; by default an equal part of all, at "
           "most 1.", "Model", bounds=Bounds(ge=0, le=_MAX_WORKERS)),
    Option(("--worker-gpus",), float, "GPUs of each worker, as in 0.5; by default an equal part of all, at "
           "most 1.", "Model", bounds=Bounds(ge=0, le=_MAX_WORKERS)),
    Option(("--fail-fast",), bool, "Stop at the first row that fails.", "Limits and stops", False),
    Option(("--max-errors",), int, "Stop when more rows than this have failed.", "Limits and stops",
           bounds=Bounds(ge=0, le=MAX_ROWS)),
    Option(("--drain",), float, "Seconds for running rows to finish after Ctrl-C or SIGTERM.",
           "Limits and stops", 0.0, Bounds(ge=0, le=MAX_SECONDS)),
    Option(("--output", "-o"), str, "Write the results to this file or folder; stdout by default.",
           "Output", metavar="FILE"),
    Option(("--format",), Literal["jsonl", "openai", "csv", "tsv", "parquet", "texts"],
           "Format of the results; by default the suffix of the output decides.", "Output"),
    Option(("--columns",), bool, "In a table (csv, tsv, parquet): a typed column for each property of "
           "`json_schema` or `pydantic`.", "Output", False),
    Option(("--order",), Literal["input", "completion"], "Order of the results.", "Output", "input"),
    Option(("--no-timings",), bool, "Leave times out of the results, so equal runs give equal files.",
           "Output", False),
    Option(("--summary",), str, "Write a summary of the run to this file, as JSON.", "Output",
           metavar="FILE"),
    Option(("--resume",), bool, "Continue an interrupted run; start a new one if there is none.", "Output",
           False),
    Option(("--allow-other-batch",), bool, "With `resume`: allow another `max_batch` and other drafts, even "
           "in a number format in which they may change texts.", "Output", False),
    Option(("--retry-errors",), bool, "With `resume`: run the failed rows again.", "Output", False),
    Option(("--overwrite",), bool, "Replace an existing output and journal.", "Output", False),
    Option(("--keep-journal",), bool, "Keep OUTPUT.journal even if all rows have succeeded.", "Output",
           False),
)  # fmt: skip
_FOREIGN = {
    *("file", "stream", "stats", "show_chain", "show_prompt", "download", "log", "color"),
    *(entry.key for entry in OWN),
}
BATCH_OPTIONS: tuple[Option, ...] = (*OWN, *(entry for entry in OPTIONS if entry.key not in _FOREIGN))

# Options of gencli score: its own, and those that it shares with a batch and a run.
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
SCORE_OWN: tuple[Option, ...] = (*_NEW, *(entry for entry in OWN if entry.key != "format"))
_HIDDEN = frozenset((*_CHANGED, *_UNUSED))
_OF_MODEL = frozenset(
    "quiet debug model dtype backend quantize kernel invariant kv_dtype device cuda_graphs device_map "
    "threads wait max_batch async_steps memory_check trust_remote_code download offline preset template "
    "vars seed".split()
)
# Options that affect a row's result, besides those that control how rows are read.
DECIDING = ("convention", "window", "stride", "mode", "tokens", "group_by")
_TAKEN = tuple(entry for entry in BATCH_OPTIONS if entry in OWN and entry.key not in _HIDDEN)
SCORE_OPTIONS: tuple[Option, ...] = (
    *_TAKEN, *_NEW, *(entry for entry in OPTIONS if entry.key in _OF_MODEL | CHAIN_KEYS)
)  # fmt: skip
