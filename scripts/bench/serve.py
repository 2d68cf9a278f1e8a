"""Measure the server under load beside a batch.

python scripts/bench/serve.py --help
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from report import run_benchmark

from gencli.cli.commands.bench import Form, Threads, figure, write_report
from gencli.errors import GenerationError


@dataclass(frozen=True, slots=True)
class ServeCost:
    """A load of requests on a server, or in a batch, which has no times of clients: medians of turns."""

    way: str = figure("serve or batch")
    seconds: float = figure("seconds of the whole load", 2)
    tokens: int = figure("output tokens")
    tokens_per_second: float = figure("tokens / seconds", 0)
    first_p50_ms: float | None = figure("milliseconds to the first token, the median", 1)
    first_p99_ms: float | None = figure("milliseconds to the first token, 99th percentile", 1)
    between_p50_ms: float | None = figure("milliseconds between tokens, the median", 2)
    between_p99_ms: float | None = figure("milliseconds between tokens, 99th percentile", 2)


_MOST = 100_000
_Model = Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="Model to serve.")]
_Requests = Annotated[int, typer.Option("--requests", min=1, max=_MOST, metavar="N", help="Requests.")]
_Clients = Annotated[
    int, typer.Option("--clients", min=1, max=_MOST, metavar="N", help="Clients of the closed loop.")
]
_Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.001, metavar="NUMBER", help="Open loop: this many requests per second."),
]
_Slots = Annotated[int, typer.Option("--max-batch", min=1, max=_MOST, metavar="N", help="Texts at once.")]
_Turns = Annotated[int, typer.Option("--turns", min=1, max=100, metavar="N", help="Turns of both ways.")]


def serve_command(model: str, *, max_batch: int, threads: int) -> list[str]:
    """Return the command that starts the server on a free port, with a queue that never fills."""
    queue = ["--max-queue", "100000", "--queue-timeout", "100000"]
    return [*_gencli("serve", model, max_batch, threads), "--port", "0", *queue]


def batch_command(folder: Path, model: str, *, max_batch: int, threads: int) -> list[str]:
    """Return the command of a batch of the rows in a folder."""
    files = [str(folder / "rows.jsonl"), "--output", str(folder / "out.jsonl")]
    files += ["--summary", str(folder / "summary.json")]
    return [*_gencli("batch", model, max_batch, threads), "--quiet", *files]


def _gencli(name: str, model: str, max_batch: int, threads: int) -> list[str]:
    flags = ["--model", model, "--max-batch", str(max_batch), "--threads", str(threads)]
    return [sys.executable, "-m", "gencli", name, *flags]


def serve(
    model: _Model = "tiny",
    requests: _Requests = 64,
    clients: _Clients = 16,
    rate: _Rate = None,
    max_batch: _Slots = 8,
    threads: Threads = 2,
    turns: _Turns = 3,
    form: Form = "text",
) -> int:
    """Measure the server and the batch alternately, and print both. Return the exit code."""

    load = make_tasks(requests)
    server = serve_command(model, max_batch=max_batch, threads=threads)
    found = in_turns(
        {
            "serve": lambda: measure_serve(server, load, clients=clients, rate=rate),
            "batch": lambda: measure_batch(
                lambda folder: batch_command(folder, model, max_batch=max_batch, threads=threads), load
            ),
        },
        turns,
    )
    share = share_of(found, "serve", "batch")
    loop = {"clients": clients} if rate is None else {"rate": rate}
    conditions = {"model": model, "threads": threads, "requests": requests, "max_batch": max_batch, **loop}
    lines = [f"The server has {share:.2f} of the batch's tokens per second."]
    costs = [cost_of(way, each) for way, each in found.items()]
    write_report(
        costs, form, conditions={**conditions, "turns": turns}, summary={"share": share}, lines=lines
    )
    return 0


_WORDS = "the a fox and is in of to was on it he she they one time day went home little red old big".split()


@dataclass(frozen=True, slots=True)
class Task:
    """A request of the load: a prompt of common words, and the exact number of output tokens."""

    prompt: str
    max_tokens: int
    seed: int

    @property
    def options(self) -> dict[str, Any]:
        """The request as a row of a batch, or the body of a completion."""
        return {**asdict(self), "ignore_eos": True}


_Asked = tuple[Task, object]  # a task with the body of its request


def make_tasks(count: int, seed: int = 0) -> tuple[Task, ...]:
    """Return `count` requests with prompts of 10 to 300 words and outputs of 10 to 200 tokens."""
    draw = random.Random(seed)
    return tuple(
        Task(" ".join(draw.choices(_WORDS, k=draw.randint(10, 300))), draw.randint(10, 200), number)
        for number in range(count)
    )


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: its number of tokens, and the times of its request and of each event with text."""

    tokens: int
    begun: float
    times: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One load: its seconds and output tokens; the answers, if clients have measured them."""

    seconds: float
    tokens: int
    answers: tuple[Answered, ...] = ()

    @property
    def rate(self) -> float:
        """Output tokens of all answers of the load per second."""
        return self.tokens / self.seconds


def cost_of(way: str, turns: Sequence[Turn]) -> ServeCost:
    """Return the cost of turns with the same load: medians, and percentiles of the times of all answers."""
    answers = [each for turn in turns for each in turn.answers]
    first = [each.times[0] - each.begun for each in answers if each.times]
    gaps = [b - a for each in answers for a, b in zip(each.times, each.times[1:], strict=False)]
    seconds, rate = median(turn.seconds for turn in turns), median(turn.rate for turn in turns)
    return ServeCost(way, seconds, turns[0].tokens, rate, *_percentiles(first), *_percentiles(gaps))


def in_turns(ways: Mapping[str, Callable[[], Turn]], turns: int) -> dict[str, list[Turn]]:
    """Measure all ways `turns` times, starting with another way each time; return the turns by way."""
    found: dict[str, list[Turn]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(turns):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            found[name].append(ways[name]())
    return found


def share_of(turns: Mapping[str, Sequence[Turn]], way: str, other: str) -> float:
    """Return the median over the turns of the tokens per second of a way / those of another one."""
    return median(a.rate / b.rate for a, b in zip(turns[way], turns[other], strict=True))


def _percentiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median and the 99th percentile of seconds, in milliseconds."""
    if len(values) < 2:
        return None, None
    cuts = quantiles(values, n=100, method="inclusive")
    return 1000 * cuts[49], 1000 * cuts[98]


def measure_serve(
    command: Sequence[str], load: Sequence[Task], *, clients: int, rate: float | None = None
) -> Turn:
    """Start a server and put a load on it: a closed loop of `clients`, or `rate` requests per second.

    `command` starts the server on a free port. Raises GenerationError if it does not start.
    """
    with _server(command) as (host, port):
        return put_load(host, port, load, clients=clients, rate=rate)


def put_load(
    host: str,
    port: int,
    load: Sequence[Task],
    *,
    clients: int,
    rate: float | None = None,
    body: Callable[[Task], object] = lambda task: {**task.options, "stream": True},
) -> Turn:
    """Put a load on any server that streams completions; `body` makes the bodies of its requests."""
    tasks = [(task, body(task)) for task in load]
    begin = time.monotonic()
    loop = _closed(host, port, tasks, clients) if rate is None else _open(host, port, tasks, rate)
    answers = asyncio.run(loop)
    return Turn(time.monotonic() - begin, sum(each.tokens for each in answers), tuple(answers))


def measure_batch(command: Callable[[Path], Sequence[str]], load: Sequence[Task]) -> Turn:
    """Run the same load as a batch.

    `command(folder)`: the command of a batch that reads rows.jsonl and writes summary.json in the folder.
    Raises GenerationError if it fails.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = "".join(f"{json.dumps(each.options)}\n" for each in load)
        (folder / "rows.jsonl").write_text(rows, encoding="utf-8")
        done = subprocess.run(command(folder), capture_output=True, text=True, check=False)
        if done.returncode:
            raise GenerationError(f"The batch has failed: {done.stderr.strip()}")
        found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return Turn(found["seconds"], found["completion_tokens"])


@contextmanager
def _server(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"answers at http://([\d.]+):(\d+)", line):
                    yield found[1], int(found[2])
                    return
            raise GenerationError(f"The server has not started: {''.join(lines).strip()}")
        finally:
            process.terminate()


async def _asked(
    host: str, port: int, path: str, body: object
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    await writer.drain()
    return reader, writer


async def _stream(host: str, port: int, task: Task, body: object) -> Answered:
    begun, times = time.monotonic(), list[float]()
    reader, writer = await _asked(host, port, "/v1/completions", body)
    has_ended = False
    async for line in reader:
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
            has_ended |= b'"finish_reason":"length"' in line
    writer.close()
    if not has_ended:
        raise GenerationError("A request of the load has no whole answer.")
    return Answered(task.max_tokens, begun, tuple(times))


async def _closed(host: str, port: int, load: Sequence[_Asked], clients: int) -> list[Answered]:
    waiting = list(load)[::-1]
    answers: list[Answered] = []

    async def client() -> None:
        while waiting:
            answers.append(await _stream(host, port, *waiting.pop()))

    await asyncio.gather(*(client() for _ in range(clients)))
    return answers


async def _open(host: str, port: int, load: Sequence[_Asked], rate: float) -> list[Answered]:
    draw, tasks = random.Random(0), list[asyncio.Task[Answered]]()
    for task, body in load:
        tasks.append(asyncio.create_task(_stream(host, port, task, body)))
        await asyncio.sleep(draw.expovariate(rate))
    return list(await asyncio.gather(*tasks))


MEASURES = (
    "Measure gencli serve, a process of its own, under a load of streams: a closed loop of clients, or "
    "with --rate an open loop of requests at random times; and the same load as a batch."
)

if __name__ == "__main__":
    sys.exit(run_benchmark(serve, MEASURES, ServeCost))
