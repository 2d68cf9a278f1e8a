"""Measure decode steps and prompts of gencli's decoder beside llama.cpp's, on the same weights, in turns.

    PYTHONPATH=. python scripts/bench/llama_cpp_step.py MODEL [--gguf FOLDER] [--rows 1 4 8] [--prompts 512]

MODEL is a folder with a Llama. Its GGUF files (NAME-f32.gguf, NAME-q8_0.gguf, NAME-q4_0.gguf) are looked
for in FOLDER and written there where they are absent. llama-cpp-python, built for this machine, and gguf
are needed.

Every side runs in a process of its own, which calls the model without sampling: gencli
`ModelRunner.forward`, llama.cpp `llama_decode` with one sequence a row, transformers `forward` with a
DynamicCache. The sides take turns of a few steps; the first step of a turn is not counted. A ratio is that
of the medians of one turn: how many times faster a side is than the last one. The medians over all turns
are printed. "idle" is the largest share of a core that a waiting side used: threads that spin while another
side runs would show there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

PAIRS = {"float32": ("none", "f32"), "int8": ("int8", "q8_0"), "int4": ("int4", "q4_0")}
HELD = 64  # tokens in each sequence before the first step
CHUNK = 512  # tokens of a prompt in one pass
PAUSE = 0.05  # seconds after which the threads of a side sleep


class Gencli:
    """gencli's decoder with kernels for this many rows."""

    def __init__(self, model: str, quantize: Any, rows: int) -> None:
        from gencli.runtime.model_loading import ModelChoice, load

        choice = ModelChoice(model, max_batch=rows, rows=rows, quantize=quantize, device="cpu")
        self._runner = load(choice).runner
        self._rows = rows
        self.about = ", ".join(self._runner.spec.kernels)

    def feed(self, tokens: Sequence[int], start: int) -> None:
        """Feed the same tokens to each sequence, whose next position is `start`."""
        from gencli.core.request import Feed, StepPlan

        self._runner.forward(StepPlan(tuple(Feed(row, start, tuple(tokens)) for row in range(self._rows))))

    def clear(self) -> None:
        """Forget all sequences."""
        for row in range(self._rows):
            self._runner.release(row)


class LlamaCpp:
    """llama.cpp through its low-level API, with a context of its own sequence for each row."""

    def __init__(self, path: str, threads: int, rows: int, context: int) -> None:
        import llama_cpp

        self._lib, self._rows = llama_cpp, rows
        llama_cpp.llama_backend_init()
        self._log = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._log, None)
        self._model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params()
        )
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_seq_max, options.n_batch = context * rows, rows, CHUNK
        options.n_threads = options.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        self.about = f"llama-cpp-python {llama_cpp.__version__}"

    def feed(self, tokens: Sequence[int], start: int) -> None:
        """Feed the same tokens to each sequence, whose next position is `start`."""
        if len(tokens) * self._rows > CHUNK:
            raise ValueError("too many tokens for a pass")
        batch = self._lib.llama_batch_init(len(tokens) * self._rows, 0, 1)
        batch.n_tokens = len(tokens) * self._rows
        for row in range(self._rows):
            for number, token in enumerate(tokens):
                place = row * len(tokens) + number
                batch.token[place], batch.pos[place] = token, start + number
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
                batch.logits[place] = number == len(tokens) - 1
        code = self._lib.llama_decode(self._context, batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        for row in range(self._rows):
            self._lib.llama_get_logits_ith(self._context, row * len(tokens) + len(tokens) - 1)[0]
        self._lib.llama_batch_free(batch)

    def clear(self) -> None:
        """Forget all sequences."""
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)


class Transformers:
    """transformers' model in float32, one sequence."""

    def __init__(self, model: str) -> None:
        import torch
        import transformers

        self._torch, self._library = torch, transformers
        self._model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.about = f"transformers {transformers.__version__}"
        self.clear()

    def feed(self, tokens: Sequence[int], start: int) -> None:
        """Feed tokens to the sequence."""
        with self._torch.inference_mode():
            ids = self._torch.tensor([tokens])
            self._model(input_ids=ids, past_key_values=self._cache, logits_to_keep=1)

    def clear(self) -> None:
        """Forget the sequence."""
        self._cache = self._library.DynamicCache(config=self._model.config)


def serve(side: Any) -> None:
    """Answer each line of stdin, [what, count], with [seconds, CPU seconds so far], until stdin ends."""
    print(json.dumps([side.about, time.process_time()]), flush=True)
    held = 0
    for line in sys.stdin:
        what, count = json.loads(line)
        time.sleep(PAUSE)
        begun = time.process_time()
        times = []
        if what == "prompt":
            start = time.perf_counter()
            for first in range(0, count, CHUNK):
                side.feed(range(100 + first, 100 + min(first + CHUNK, count)), first)
            times.append(time.perf_counter() - start)
            side.clear()
        else:
            if not held:
                side.feed(range(100, 100 + HELD), 0)
                held = HELD
            for _ in range(count + 1):
                start = time.perf_counter()
                side.feed([5 + held], held)
                times.append(time.perf_counter() - start)
                held += 1
            del times[0]
        time.sleep(PAUSE)
        print(json.dumps([times, begun, time.process_time()]), flush=True)


class Worker:
    """A process with one side. `idle` is the largest share of a core that it used while it waited."""

    def __init__(self, name: str, arguments: Sequence[str], threads: int) -> None:
        self.name, self.idle, self._last = name, 0.0, (time.perf_counter(), 0.0)
        environ = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, __file__, "--side", *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )
        self.about, used = self._read()
        self._last = (time.perf_counter(), used)

    def ask(self, what: str, count: int) -> float:
        """Return the median of the seconds of some steps, or those of a prompt."""
        assert self._process.stdin is not None
        waited = time.perf_counter() - self._last[0]
        self._process.stdin.write(json.dumps([what, count]) + "\n")
        self._process.stdin.flush()
        times, begun, ended = self._read()
        if waited > 0.1:
            self.idle = max(self.idle, (begun - self._last[1]) / waited)
        self._last = (time.perf_counter(), ended)
        return statistics.median(times)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def compare(workers: Sequence[Worker], what: str, count: int, turns: int) -> list[dict[str, Any]]:
    """Return the medians of all workers, and how many times faster they are than the last one."""
    for worker in workers:
        worker.ask(what, min(count, 64))  # warms up
    seen = [[worker.ask(what, count) for worker in workers] for _ in range(turns)]
    return [
        {
            "side": worker.name,
            "about": worker.about,
            "ms": round(statistics.median(turn[number] for turn in seen) * 1e3, 1),
            "faster": round(statistics.median(turn[-1] / turn[number] for turn in seen), 3),
            "quartiles": _quartiles([turn[-1] / turn[number] for turn in seen]),
            "idle": round(worker.idle, 3),
        }
        for number, worker in enumerate(workers)
    ]


def _quartiles(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in statistics.quantiles(values, n=4)[::2]] if len(values) > 1 else []


def gguf_files(model: str, folder: Path, kinds: Sequence[str]) -> dict[str, Path]:
    """Return the GGUF files of the model by kind; those that are absent are written."""
    files = {kind: folder / f"{Path(model).name}-{kind}.gguf" for kind in kinds}
    absent = [kind for kind in kinds if not files[kind].exists()]
    if absent:
        from transformers import AutoModelForCausalLM

        from tests.helpers.gguf_files import write_model

        loaded = AutoModelForCausalLM.from_pretrained(model)
        for kind in absent:
            write_model(files[kind], loaded, kind.upper())
    return files


def steps(asked: argparse.Namespace, files: dict[str, Path]) -> list[dict[str, Any]]:
    """Return the rows of the table of decode steps."""
    made = []
    for pair in asked.pairs:
        quantize, kind = PAIRS[pair]
        for rows in asked.rows:
            made += _in_turns(
                asked,
                {
                    pair: ["gencli", asked.model, quantize, str(rows)],
                    kind.upper(): ["llama.cpp", str(files[kind]), str(asked.threads), str(rows), "512"],
                },
                "steps",
                asked.steps,
                {"rows": rows},
            )
    return made


def prompts(asked: argparse.Namespace, files: dict[str, Path]) -> list[dict[str, Any]]:
    """Return the rows of the table of prompts; ratios are over transformers."""
    sides = {pair: ["gencli", asked.model, PAIRS[pair][0], "1"] for pair in asked.pairs}
    for kind in ("f32", "q8_0"):
        context = str(max(asked.prompts) + 64)
        sides[kind.upper()] = ["llama.cpp", str(files[kind]), str(asked.threads), "1", context]
    sides["transformers"] = ["transformers", asked.model]
    made = []
    for count in asked.prompts:
        found = _in_turns(asked, sides, "prompt", count, {"tokens": count})
        made += [{**row, "tokens/s": round(count / row["ms"] * 1e3)} for row in found]
    return made


def _in_turns(
    asked: argparse.Namespace, sides: dict[str, list[str]], what: str, count: int, about: dict[str, Any]
) -> list[dict[str, Any]]:
    workers = [Worker(name, [*side], asked.threads) for name, side in sides.items()]
    try:
        return [{**about, **row} for row in compare(workers, what, count, asked.turns)]
    finally:
        for worker in workers:
            worker.close()


def run_side(kind: str, *values: str) -> None:
    """Be the process of one side."""
    makers: dict[str, Callable[..., Any]] = {
        "gencli": lambda model, quantize, rows: Gencli(model, quantize, int(rows)),
        "llama.cpp": lambda path, *numbers: LlamaCpp(path, *map(int, numbers)),
        "transformers": Transformers,
    }
    serve(makers[kind](*values))


def main() -> None:
    """Print the table, and with --json also its rows."""
    parser = argparse.ArgumentParser(description="Decode steps and prompts beside llama.cpp, in turns.")
    parser.add_argument("model")
    parser.add_argument("--gguf", type=Path, default=Path())
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 8])
    parser.add_argument("--prompts", nargs="+", type=int, default=[], help="lengths, in place of steps")
    parser.add_argument("--steps", type=int, default=5, help="steps of a turn")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    kinds = {PAIRS[pair][1] for pair in asked.pairs} | ({"f32", "q8_0"} if asked.prompts else set())
    files = gguf_files(asked.model, asked.gguf, sorted(kinds))
    found = (prompts if asked.prompts else steps)(asked, files)
    if asked.json:
        print(json.dumps(found, indent=1))
        return
    names = list(dict.fromkeys(chain.from_iterable(found)))
    print(" | ".join(names))
    for row in found:
        print(" | ".join(str(row.get(name, "")) for name in names))


if __name__ == "__main__":
    run_side(*sys.argv[2:]) if sys.argv[1:2] == ["--side"] else main()
