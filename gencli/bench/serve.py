"""Measure `gencli serve` under load: tokens per second beside a batch, times to and between tokens.

Both are separate processes, restarted in each turn. Requests are random words with fixed seeds and output
lengths, the same for both. Time runs from the loaded model, without a warm-up, to the last answer; the batch
measures it itself, for the server the clients do, which run on the same cores. Closed loop: each of a number
of clients sends its next request when the previous one has ended. Open loop: requests arrive at random times
with a given rate, independent of the server.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from gencli.bench.records import ServeCost
from gencli.errors import GenerationError

__all__ = [
    "Answered",
    "Task",
    "Turn",
    "cost_of",
    "in_turns",
    "make_tasks",
    "measure_batch",
    "measure_serve",
    "put_load",
    "share_of",
]

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
