"""Ask for the same seeded texts in every way there is, and compare: `python scripts/same_text.py`.

The ways: LLM.generate, `gencli batch`, `gencli run`, and `gencli serve`, first one request after the other,
then each among 31 others, which come at random and of which half go away at a random moment. In float32 all
have to give the same texts; with --trace K the same explanations of all tokens too.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gencli import LLM
from gencli.explain.trace_file import read_trace

__all__ = [
    "Ask",
    "Neighbours",
    "among",
    "make_asks",
    "through_batch",
    "through_http",
    "through_python",
    "through_run",
]

_BEGINNINGS = "Once upon a time|One winter, a fox|The baker of the village|Hello|One spring, he|Biscuit was"
_WORDS = "the a fox and is in of to was on it he she they one day went home little red old big house".split()
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "temperature": (0, 0.7, 1.0, 1.5),
    "top_p": (0.5, 0.9),
    "top_k": (5, 40),
    "min_p": (0.05, 0.2),
    "repetition_penalty": (1.1, 1.5),
    "frequency_penalty": (0.5,),
    "stop": (".", " the"),
}
_MODEL = ("--model", "tiny", "--dtype", "float32")


@dataclass(frozen=True)
class Ask:
    """A prompt and the options of its text."""

    prompt: str
    options: dict[str, Any] = field(default_factory=dict)
    trace: int | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The row of a batch."""
        return {"prompt": self.prompt, **self.options}

    @property
    def body(self) -> dict[str, Any]:
        """The body of a completion."""
        return {**self.row, "trace": self.trace}

    @property
    def flags(self) -> list[str]:
        """The flags of a run."""
        return [f"--{key.replace('_', '-')}={value}" for key, value in self.options.items()]


def make_asks(count: int, seed: int = 0, trace: int | None = None) -> list[Ask]:
    """Return `count` requests with seeds of their own, random prompts, lengths and chains."""
    draw = random.Random(seed)
    return [replace(_ask(draw, seed * 100_000 + number), trace=trace) for number in range(count)]


def _said(text: str, records: Iterable[Mapping[str, Any]] = ()) -> str:
    """Return a text, and behind it what is said of its tokens: ids, ranks, counts, stages.

    The last digits of probabilities depend on what else a forward pass computes.
    """
    names = ("v", "kind", "run", "sample")
    told = [{key: value for key, value in one.items() if key not in names} for one in records]
    bare = json.loads(json.dumps(told), parse_float=lambda number: None)
    return text + (json.dumps(bare, sort_keys=True) if told else "")


def _traced(file: Path) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the records of a trace by request."""
    return {text.key[0]: text.records for text in read_trace(file.read_text().splitlines())}


def _ask(draw: random.Random, seed: int) -> Ask:
    words = [draw.choice(_BEGINNINGS.split("|")), *draw.choices(_WORDS, k=draw.randint(0, 60))]
    chosen = {key: draw.choice(values) for key, values in _OPTIONS.items() if draw.random() < 0.4}
    if chosen.get("temperature") == 0:  # then the other stages of the draw would do nothing
        chosen = {key: value for key, value in chosen.items() if key not in ("top_p", "top_k", "min_p")}
    return Ask(" ".join(words), {"seed": seed, "max_tokens": draw.randint(8, 60), **chosen})


def through_run(asks: Sequence[Ask], program: Sequence[str]) -> list[str]:
    """Return the texts of `gencli run`, a process for each."""

    def run(ask: Ask) -> str:
        with TemporaryDirectory() as folder:
            file, own = Path(folder, "trace"), ()
            if ask.trace:
                own = ("--trace", str(file), "--trace-top", str(ask.trace))
            command = [*program, "run", "-q", *_MODEL, *ask.flags, *own, "--format=json", ask.prompt]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
            )
            return _said(json.loads(done.stdout)["text"], _traced(file)["1"] if own else ())

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, asks))


def through_python(asks: Sequence[Ask]) -> list[str]:
    """Return the texts of LLM.generate, one after the other."""
    with LLM("tiny", dtype="float32") as llm:
        found = (llm.generate(ask.prompt, trace=ask.trace, **ask.options) for ask in asks)
        return [_said(one.text, one.trace) for one in found]


def through_batch(asks: Sequence[Ask], program: Sequence[str]) -> list[str]:
    """Return the texts of `gencli batch`, all in one."""
    rows, trace = "".join(json.dumps(ask.row) + "\n" for ask in asks), asks[0].trace
    with TemporaryDirectory() as folder:
        file, own = Path(folder, "trace"), ()
        if trace:
            own = ("--trace", str(file), "--trace-top", str(trace))
        command = [*program, "batch", "-q", *_MODEL, *own]
        done = subprocess.run(command, input=rows, capture_output=True, text=True, check=True)
        traced = _traced(file) if trace else {}
    found = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda row: row["index"])
    return [_said(row["text"], traced.get(row["id"], ())) for row in found]


def through_http(asks: Sequence[Ask], address: str) -> list[str]:
    """Return the texts of the server at HOST:PORT, one after the other; every other one is streamed."""
    return [_posted(ask, address, is_stream=number % 2 == 1) for number, ask in enumerate(asks)]


def _posted(ask: Ask, address: str, *, is_stream: bool, seconds: float | None = None) -> str:
    """Return the text of a request; with `seconds` the connection is cut after so long."""
    connection = HTTPConnection(address, timeout=300)
    cut = (
        threading.Timer(seconds, lambda: connection.sock and connection.sock.shutdown(2)) if seconds else None
    )
    try:
        body = json.dumps({**ask.body, "stream": is_stream})
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        if cut:
            cut.start()
        reply = connection.getresponse()
        data = reply.read().decode()
        if reply.status != 200:
            raise HTTPException(f"{reply.status}: {data[:300]}")
    finally:
        if cut:
            cut.cancel()
        connection.close()
    events = [json.loads(line[6:]) for line in data.split("\n\n") if line.startswith("data: {")]
    choices = [each["choices"][0] for each in (events if is_stream else [json.loads(data)])]
    records = (record for choice in choices for record in choice.get("trace", ()))
    return _said("".join(choice["text"] for choice in choices), records)


class Neighbours:
    """Threads that ask a server for random texts until they are stopped; half of the requests are cut off."""

    def __init__(self, count: int, address: str) -> None:
        self.num_whole = self.num_cut = 0
        self._address, self._lock, self._is_over = address, threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._go_on, args=(number,)) for number in range(count)]

    def __enter__(self) -> Neighbours:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, number: int) -> None:
        draw = random.Random(number)
        while not self._is_over.is_set():
            seconds = draw.uniform(0.001, 0.5) if draw.random() < 0.5 else None
            try:
                _posted(_ask(draw, draw.randrange(2**31)), self._address, is_stream=draw.random() < 0.5,
                        seconds=seconds)  # fmt: skip
            except (OSError, HTTPException, ValueError):
                if seconds is None and not self._is_over.is_set():
                    raise
                with self._lock:
                    self.num_cut += 1
            else:
                with self._lock:
                    self.num_whole += 1


def among(asks: Sequence[Ask], address: str, neighbours: int) -> tuple[list[str], Neighbours]:
    """Return the texts of the server, each asked for beside others, and who the others were."""
    with Neighbours(neighbours, address) as others:
        return through_http(asks, address), others


@contextmanager
def _server(program: Sequence[str], size: int) -> Iterator[str]:
    """Yield the address of a server with room for so many texts."""
    command = [*program, "serve", *_MODEL, "--port=0", f"--max-batch={size}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"answers at http://(\S+)/v1", line):
                break
        else:
            raise SystemExit(said)
        try:
            yield found[1]
        finally:
            process.terminate()


def _compare(name: str, make: Callable[[], list[str]], expected: Sequence[str] | None) -> list[str]:
    """Print how many texts are those expected, and the seconds; return the texts."""
    begun = time.perf_counter()
    texts = make()
    same = sum(a == b for a, b in zip(texts, expected or texts, strict=True))
    print(f"{name:32} {same:4} of {len(texts)} equal  {time.perf_counter() - begun:7.1f} s", flush=True)
    return texts


def main() -> int:
    """Compare all ways; the exit code is 1 if any text differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--neighbours", type=int, default=31)
    parser.add_argument("--trace", type=int, help="compare explanations too, with this many ids in lists")
    parser.add_argument("--program", help="by default this Python with -m gencli")
    given = parser.parse_args()
    asks = make_asks(given.requests, trace=given.trace)
    program = [given.program] if given.program else [sys.executable, "-m", "gencli"]
    expected = _compare("LLM.generate", lambda: through_python(asks), None)
    found = [
        _compare("gencli batch", lambda: through_batch(asks, program), expected),
        _compare("gencli run", lambda: through_run(asks, program), expected),
    ]
    with _server(program, given.neighbours + 1) as address:
        found.append(_compare("HTTP, alone", lambda: through_http(asks, address), expected))
        others: list[Neighbours] = []

        def together() -> list[str]:
            texts, those = among(asks, address, given.neighbours)
            others.append(those)
            return texts

        name = f"HTTP, among {given.neighbours} others"
        found.append(_compare(name, together, expected))
    print(f"others: {others[0].num_whole} answered, {others[0].num_cut} cut off at a random moment")
    print(f"{len(set(expected))} different texts, {sum(map(len, expected))} characters")
    return int(any(texts != expected for texts in found))


if __name__ == "__main__":
    sys.exit(main())
