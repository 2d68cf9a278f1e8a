"""`gencli bench run`: whole runs in turns with transformers and llama.cpp; and the report of benchmarks."""

from __future__ import annotations

import importlib.util
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gencli.cli.render import Sink, say, table
from gencli.config.option import MAX_BATCH
from gencli.config.result_formats import FORMATS
from gencli.errors import ModelError, UsageError
from gencli.models.files.local_models import find_local

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
_MEASURES = (
    "Measure whole processes in turns: gencli run, a script with transformers and, with --gguf, a script "
    "with llama.cpp. Each runs twice a turn: with two tokens for each prompt, which shows the time to "
    "start, and with --max-tokens."
)
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


def command() -> typer.Typer:
    """Return the typer group of the benchmarks."""
    app = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    app.callback(help="Measure whole runs on this machine; scripts/bench measures parts.")(lambda: None)
    short = "Whole runs beside transformers and llama.cpp."
    app.command("run", short_help=short, help=help_of(_MEASURES, RunCost))(runs)
    return app


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
        raise UsageError("--gguf needs --rows 1: llama.cpp's Python API runs one text at a time.")
    run = Run(max_tokens, rows, threads)
    ways = _ways(str(folder), run, flags=flags, dtype=dtype, gguf=gguf, beside=beside or ())
    costs = list(measure_runs(ways, run, turns))
    conditions = {"model": model, "dtype": dtype, "threads": threads, "prompts": rows, "tokens": max_tokens}
    conditions |= {"turns": turns, **({"flags": flags} if flags else {})}
    write_report(costs, form, conditions=conditions)
    return 0


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
    threads, words = str(run.threads), _WORDS.split()
    # Prompts of different lengths.
    prompts = [" ".join(words[: len(words) - index % len(words)]) for index in range(run.rows)]
    ours = "-m gencli run --temperature 0.8 --top-p 0.9 --seed 0 --ignore-eos --quiet".split()
    ours += ["--model", model, "--dtype", dtype, "--threads", threads]
    ways = []
    for more, way_flags in (("", flags), *((more, more) for more in beside)):
        head = (sys.executable, *ours, *shlex.split(way_flags), "--max-tokens")
        ways.append(Way(f"gencli {more}".strip(), head, tuple(prompts)))
    if not beside:
        script = (sys.executable, "-c", _TRANSFORMERS, model)
        ways.append(Way("transformers", script, (threads, dtype, *prompts)))
    if gguf is not None:
        if importlib.util.find_spec("llama_cpp") is None:
            raise ModelError("llama.cpp is not installed here.", hint="pip install llama-cpp-python")
        head = (sys.executable, "-c", _LLAMA_CPP, str(gguf))
        ways.append(Way("llama.cpp", head, (threads, prompts[0])))
    return ways


_FEW = 2  # tokens of the short run, which measures the start-up time


@dataclass(frozen=True, slots=True)
class Run:
    """A run of `rows` prompts with `tokens` output tokens each, on `threads` threads."""

    tokens: int
    rows: int
    threads: int


@dataclass(frozen=True, slots=True)
class Way:
    """A program that generates: `command` makes its command line for a number of tokens."""

    name: str
    head: tuple[str, ...]
    tail: tuple[str, ...]

    def command(self, tokens: int) -> list[str]:
        """Return the command line of a run with this many output tokens."""
        return [*self.head, str(tokens), *self.tail]


def measure_runs(ways: Sequence[Way], run: Run, turns: int) -> Iterator[RunCost]:
    """Run all ways in turns; yield the costs of each. Raises ModelError if a run fails."""
    # By way, of each turn: seconds of the short and of the whole run, tokens per second, peak memory.
    seen: dict[str, list[tuple[float, float, float | None, int]]] = {way.name: [] for way in ways}
    for _ in range(turns):
        for way in ways:
            start, _ = _timed(way, _FEW)
            whole, peak = _timed(way, run.tokens)
            # On a busy machine the short run may take longer; then the speed is unknown.
            speed = run.rows * (run.tokens - _FEW) / (whole - start) if whole > start else None
            seen[way.name].append((start, whole, speed, peak))
    first = [*zip(*seen[ways[0].name], strict=True)]
    for name, way_turns in seen.items():
        columns = [*zip(*way_turns, strict=True)]
        start_s, whole_s, speed = map(_median, columns[:3])
        start_ratio, whole_ratio, speed_ratio = (
            _median(value / base if value and base else None for value, base in zip(*pair, strict=True))
            for pair in zip(columns[:3], first[:3], strict=True)
        )
        peak_mib = max(columns[3]) / 2**20
        yield RunCost(name, start_s, whole_s, speed, peak_mib, start_ratio, whole_ratio, speed_ratio)


def _median(values: Iterable[Any]) -> Any:
    # None if no value is known.
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _timed(way: Way, tokens: int) -> tuple[float, int]:
    # The seconds and the peak memory in bytes of one process.
    command = way.command(tokens)
    environ = {**os.environ, "HF_HUB_OFFLINE": "1"}
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environ) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise ModelError(f"The run of {way.name} ended with exit code {process.returncode}: {last[0]}")
    return seconds, usage.ru_maxrss * 1024


def figure(about: str, decimals: int | None = None, default: Any = MISSING) -> Any:
    """Return a dataclass field: what it means, and the decimals that a table shows (None: as it is)."""
    return field(default=default, metadata={"about": about, "decimals": decimals})


@dataclass(frozen=True, slots=True)
class RunCost:
    """Whole processes of one program, medians over the turns. Ratios are of times in the same turn."""

    way: str = figure("gencli and its other flags, transformers or llama.cpp")
    start_s: float = figure("seconds of a process with two tokens a prompt", 2)
    whole_s: float = figure("seconds of a process with all tokens", 2)
    tokens_per_second: float | None = figure("further tokens of all prompts / (whole_s - start_s)", 1)
    peak_mib: float = figure("peak memory of a process, MiB", 0)
    start_ratio: float = figure("start_s / gencli's start_s", 3)
    whole_ratio: float = figure("whole_s / gencli's whole_s", 3)
    speed_ratio: float | None = figure("tokens_per_second / gencli's tokens_per_second", 3)


# Options that the benchmarks share.
Threads = Annotated[int, typer.Option("--threads", min=1, max=1024, metavar="N", help="CPU threads.")]
Form = Annotated[Literal["text", "json", "yaml"], typer.Option("--format", help="Form of the result.")]


def help_of(measures: str, kind: type[Any]) -> str:
    """Return the help of a benchmark: what it measures, and the columns of its records, a dataclass.

    The character \\b before the columns keeps click from wrapping their lines.
    """
    names = [column.name for column in fields(kind)]
    width = max(map(len, names)) + 2
    columns = "\n".join(f"    {column.name:<{width}}{column.metadata['about']}" for column in fields(kind))
    return f"{measures}\n\n\b\nColumns (with --format json or yaml: keys of each record):\n{columns}"


def write_report(
    records: Sequence[Any],
    form: str,
    *,
    conditions: Mapping[str, Any],
    summary: Mapping[str, Any] | None = None,
    lines: Sequence[str] = (),
) -> None:
    """Write records of one dataclass to stdout: as a table with `lines` below it, or as a report.

    A report is {"conditions": ..., "records": [...], "summary": ...}. `summary`: results computed from
    several records; `lines`: the same in words. With a table the conditions go to stderr.
    """
    if not FORMATS[form].is_text:
        rows = [asdict(record) for record in records]
        report = {"conditions": dict(conditions), "records": rows, "summary": dict(summary or {})}
        Sink().write(FORMATS[form].encode(report))
        return
    Sink().write(table(cells(records)))
    Sink().write("".join(f"{line}\n" for line in lines))
    say("Conditions: " + ", ".join(f"{name} {value}" for name, value in conditions.items()) + ".")


def cells(records: Sequence[Any]) -> Iterator[list[str]]:
    """Yield the lines of the table of these records, column names first."""
    digits = {column.name: column.metadata["decimals"] for column in fields(records[0])}
    forms = {name: "" if count is None else f".{count}f" for name, count in digits.items()}
    yield [*forms]
    for record in records:
        values = ((getattr(record, name), form) for name, form in forms.items())
        yield ["-" if value is None else format(value, form) for value, form in values]
