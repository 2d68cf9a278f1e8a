"""`gencli bench run`: whole runs, alternating with transformers and llama.cpp."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gencli.bench.runs import Run, Way, measure_runs
from gencli.cli.commands.bench_report import Form, Threads, write_report
from gencli.config.options.option import MAX_BATCH
from gencli.errors import ModelError, UsageError
from gencli.models.files.locate import find_local

__all__ = ["runs"]

_Model = Annotated[str, typer.Option("--model", metavar="MODEL", help="A bundled model or a model folder.")]
_Tokens = Annotated[
    int, typer.Option("--max-tokens", min=3, max=100_000, metavar="N", help="Output tokens of a text.")
]
_Rows = Annotated[int, typer.Option("--rows", min=1, max=MAX_BATCH, metavar="N", help="Prompts of a run.")]
_Turns = Annotated[int, typer.Option("--turns", min=1, max=1000, metavar="N", help="Turns.")]
_Dtype = Annotated[str, typer.Option("--dtype", metavar="NAME", help="Number format, as in gencli run.")]
_Flags = Annotated[str, typer.Option("--flags", metavar="TEXT", help="More flags of gencli run.")]
_Beside = Annotated[
    list[str] | None,
    typer.Option(
        "--beside",
        metavar="TEXT",
        help="Measure gencli with these flags in place of --flags, and not transformers. (repeatable)",
    ),
]
_Gguf = Annotated[
    Path | None,
    typer.Option("--gguf", metavar="FILE", help="The model for llama.cpp, which has to be installed."),
]
_WORDS = "Once upon a time there was a small town by the sea where nobody had ever seen snow"

# A script with transformers' own calls, as in its documentation.
_TRANSFORMERS = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, tokens, threads, dtype, *prompts = sys.argv[1:]
torch.set_num_threads(int(threads))
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.decode([0])
model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
given = tokenizer(prompts, return_tensors="pt", padding=True)
made = model.generate(input_ids=given.input_ids, attention_mask=given.attention_mask, do_sample=True,
    temperature=0.8, top_p=0.9, max_new_tokens=int(tokens), min_new_tokens=int(tokens))
print(tokenizer.batch_decode(made[:, given.input_ids.shape[1]:]))
"""
_LLAMA_CPP = """
import sys
from llama_cpp import Llama
file, tokens, threads, prompt = sys.argv[1:]
model = Llama(file, n_ctx=2048, n_threads=int(threads), n_threads_batch=int(threads), seed=0, verbose=False)
made = []
for token in model.generate(model.tokenize(prompt.encode()), temp=0.8, top_p=0.9):  # goes on after EOS
    made.append(token)
    if len(made) == int(tokens):
        break
print(model.detokenize(made))
"""


def runs(
    model: _Model = "tiny",
    max_tokens: _Tokens = 64,
    rows: _Rows = 1,
    turns: _Turns = 3,
    threads: Threads = 2,
    dtype: _Dtype = "float32",
    flags: _Flags = "",
    beside: _Beside = None,
    gguf: _Gguf = None,
    form: Form = "text",
) -> int:
    """Measure whole runs and print their table."""
    folder = find_local(model)
    if folder is None:
        raise UsageError(f"--model is {model}, which is not on this machine.")
    if gguf is not None and rows > 1:
        raise UsageError("--gguf goes with --rows 1: llama.cpp's Python API runs one text at a time.")
    run = Run(max_tokens, rows, threads)
    ways = _ways(str(folder), run, flags=flags, dtype=dtype, gguf=gguf, beside=beside or ())
    costs = list(measure_runs(ways, run, turns))
    conditions = {
        "model": model,
        "dtype": dtype,
        "threads": threads,
        "prompts": rows,
        "tokens": max_tokens,
        "turns": turns,
    }
    write_report(costs, form, conditions=conditions | ({"flags": flags} if flags else {}))
    return 0


def _prompts(count: int) -> list[str]:
    """Return prompts of different lengths."""
    words = _WORDS.split()
    return [" ".join(words[: len(words) - index % len(words)]) for index in range(count)]


def _ways(
    model: str,
    run: Run,
    *,
    flags: str = "",
    dtype: str = "float32",
    gguf: Path | None = None,
    beside: Sequence[str] = (),
) -> list[Way]:
    """Return gencli, transformers, and llama.cpp if `gguf` names its file. `flags`: further flags of gencli.

    `beside`: flags of further ways of gencli, which take the place of transformers. Raises ModelError if
    llama.cpp is requested but not installed.
    """
    threads, prompts = str(run.threads), _prompts(run.rows)
    ours = "-m gencli run --temperature 0.8 --top-p 0.9 --seed 0 --ignore-eos --quiet".split()
    ours += ["--model", model, "--dtype", dtype, "--threads", threads]
    ways = [
        Way(
            f"gencli {more}".strip(),
            (sys.executable, *ours, *shlex.split(said), "--max-tokens"),
            tuple(prompts),
        )
        for more, said in (("", flags), *((more, more) for more in beside))
    ]
    if not beside:
        script = (sys.executable, "-c", _TRANSFORMERS, model)
        ways.append(Way("transformers", script, (threads, dtype, *prompts)))
    if gguf is not None:
        if importlib.util.find_spec("llama_cpp") is None:
            raise ModelError("llama.cpp is not installed here.", hint="pip install llama-cpp-python")
        head = (sys.executable, "-c", _LLAMA_CPP, str(gguf))
        ways.append(Way("llama.cpp", head, (threads, prompts[0])))
    return ways
