"""Outcome, seconds and peak memory of hostile grammars for each back end, as a table.

The seconds are those of a worker that runs already, and of ten tokens.

    python scripts/hostile_grammars.py [--tokenizer FOLDER] [--timeout SECONDS] [--only TEXT]

Linux only: it reads the memory of this process and its workers from /proc.
"""

import argparse
import json
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import torch

from gencli.text.tokenizer import HFTokenizer
from processors.base import Env
from processors.errors import GrammarError
from processors.grammar.grammar_backend import Ask
from processors.grammar.grammar_compiler import GrammarCompiler
from processors.request_values import Constraint
from processors.testing import ToyVocabulary
from processors.testing.examples import HOSTILE


def main():
    options = _options()
    env = _env(options.tokenizer)
    print(f"Vocabulary: {env.vocab_size:,} ids. Time limit: {options.timeout:g} s.\n")
    print(
        "| kind | grammar | back end | outcome | s | process MB | worker MB |\n|---|---|---|---|---|---|---|"
    )
    compiler = GrammarCompiler(env, timeout=options.timeout)
    for backend in ("xgrammar", "llguidance"):
        for (kind, name), make in HOSTILE.items():
            if kind in compiler.backend(backend).kinds and options.only in name:
                cells = _row(compiler, Constraint(kind, make(), backend))
                print("|", " | ".join((kind, name, backend, *cells)), "|", flush=True)


def _row(compiler, constraint):
    # Harmless, but not known to be: afterwards a worker runs.
    harmless = json.dumps({"const": "a" * (4000 + len(compiler.timings))})
    compiler.compile(Constraint("json_schema", harmless, constraint.backend))
    for process in ("self", *_workers()):
        Path(f"/proc/{process}/clear_refs").write_text("5")  # peaks count from here
    with _Watch() as watch:
        begin = time.perf_counter()
        try:
            outcome = "compiles; " + _first_steps(compiler, constraint)
        except GrammarError as error:
            outcome = f"{type(error).__name__}: {_short(str(error))}"
        seconds = time.perf_counter() - begin
    return outcome, f"{seconds:.1f}", f"{_peak('self'):.0f}", f"{watch.peak:.0f}"


def _first_steps(compiler, constraint):
    """Feed ten tokens, each the highest allowed id."""
    matcher = compiler.compile(constraint).matcher()
    mask = torch.zeros(1, -(-compiler.env.vocab_size // 32), dtype=torch.int32)
    for step in range(10):
        compiler.backend(constraint.backend).fill([Ask(matcher, (), 0)], mask)
        ids = ((mask[0][:, None] >> torch.arange(32)) & 1).view(-1).nonzero().view(-1).tolist()
        if not any(matcher.accept(token) for token in reversed(ids)):
            return f"ends after {step} tokens"
    return "10 tokens"


class _Watch:
    """Records the peak memory of the workers in a thread."""

    def __enter__(self):
        self.peak, self._stop = 0.0, Event()
        self._thread = Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._see()
        self._stop.set()
        self._thread.join()

    def _look(self):
        while not self._stop.wait(0.02):
            self._see()

    def _see(self):
        with suppress(OSError):  # a worker that is gone meanwhile
            self.peak = max([self.peak, *map(_peak, _workers())])


def _workers():
    return " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()


def _peak(process):
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _short(text, most=160):
    line = " ".join(text.replace("|", "\\|").split())
    return line if len(line) <= most else line[:most] + " ..."


def _env(folder):
    if folder is None:
        toy = ToyVocabulary()
        return Env(toy.vocab_size, toy, toy.eos_ids)
    tokenizer = HFTokenizer.load(folder)
    return Env(tokenizer.vocab_size, tokenizer, tokenizer.eos_ids)


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", help="a folder with a tokenizer; the toy vocabulary without it")
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--only", default="", help="part of a grammar's name")
    return parser.parse_args()


if __name__ == "__main__":
    main()
