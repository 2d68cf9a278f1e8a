"""Measure `gencli serve` under load: tokens per second beside the engine alone, times to and between tokens.

The server is a process of its own; requests are streams of a random load with fixed seeds and lengths. Closed
loop: each of a number of clients sends its next request when its last one has ended. Open loop: requests come
at random times of a given rate, whatever the server does.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles

from gencli.bench.load import Ask, make_load
from gencli.bench.records import ServeCost
from gencli.errors import GenerationError

__all__ = ["Answered", "cost_of", "measure_engine", "measure_serve"]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: its number of tokens, and the times of its request and of each event with text."""

    tokens: int
    begun: float
    times: tuple[float, ...]


def cost_of(way: str, answers: Sequence[Answered], seconds: float) -> ServeCost:
    """Return the cost of answers that took `seconds` together."""
    first = [each.times[0] - each.begun for each in answers if each.times]
    gaps = [b - a for each in answers for a, b in zip(each.times, each.times[1:], strict=False)]
    tokens = sum(each.tokens for each in answers)
    return ServeCost(way, seconds, tokens, tokens / seconds, *_percentiles(first), *_percentiles(gaps))


def _percentiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median and the 99th percentile of seconds, in milliseconds."""
    if len(values) < 2:
        return None, None
    cuts = quantiles(values, n=100, method="inclusive")
    return 1000 * cuts[49], 1000 * cuts[98]


def measure_serve(
    command: Sequence[str], *, requests: int, clients: int, rate: float | None = None
) -> ServeCost:
    """Start a server and put a load on it: a closed loop of `clients`, or `rate` requests per second.

    `command` starts the server on a free port. Raises GenerationError if it does not start.
    """
    with _server(command) as (host, port):
        load = make_load(requests, vocab_size=_words(host, port))
        asyncio.run(_closed(host, port, load[:2], 2))  # what is built at the first request
        begin = time.monotonic()
        loop = _closed(host, port, load, clients) if rate is None else _open(host, port, load, rate)
        answers = asyncio.run(loop)
        return cost_of("serve", answers, time.monotonic() - begin)


def measure_engine(model: str, *, requests: int, slots: int, threads: int, dtype: str = "auto") -> ServeCost:
    """Run the same load on the engine in this process, without HTTP."""
    from gencli.core.events import Finish
    from gencli.core.request import Limits, Request
    from gencli.runtime.llm import LLM
    from processors.chain import Chain

    with LLM(model, max_batch=slots, threads=threads, dtype=dtype) as llm:
        chain = Chain().with_stage("ignore_eos", enabled=True)
        load = make_load(requests, vocab_size=llm.tokenizer.vocab_size)

        def run(asks: Sequence[Ask]) -> int:
            for number, ask in enumerate(asks):
                limits = Limits(ask.max_tokens)
                llm.engine.submit(Request(str(number), ask.prompt, chain, seed=number, limits=limits))
            ends = [event for event in llm.engine.run() if isinstance(event, Finish)]
            return sum(end.completion_tokens for end in ends)

        run(load[:2])
        begin = time.monotonic()
        tokens = run(load)
        seconds = time.monotonic() - begin
        return ServeCost("engine", seconds, tokens, tokens / seconds, None, None, None, None)


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


def _words(host: str, port: int) -> int:
    """Return the size of the model's vocabulary, as far as the server says it."""
    answer = asyncio.run(_post(host, port, "/detokenize", {"tokens": [-1]}))
    found = re.search(rb"0 to (\d+)", answer)
    if found is None:
        raise GenerationError("The server does not say how many ids its model has.")
    return int(found[1]) + 1


async def _post(host: str, port: int, path: str, body: object) -> bytes:
    reader, writer = await _asked(host, port, path, body)
    answer = await reader.read()
    writer.close()
    return answer


async def _asked(
    host: str, port: int, path: str, body: object
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    await writer.drain()
    return reader, writer


async def _stream(host: str, port: int, number: int, ask: Ask) -> Answered:
    begun, times = time.monotonic(), list[float]()
    body = {
        "prompt": ask.prompt,
        "max_tokens": ask.max_tokens,
        "seed": number,
        "ignore_eos": True,
        "stream": True,
    }
    reader, writer = await _asked(host, port, "/v1/completions", body)
    has_ended = False
    async for line in reader:
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
            has_ended |= b'"finish_reason":"length"' in line
    writer.close()
    if not has_ended:
        raise GenerationError(f"Request {number} of the load has no whole answer.")
    return Answered(ask.max_tokens, begun, tuple(times))


async def _closed(host: str, port: int, load: Sequence[Ask], clients: int) -> list[Answered]:
    waiting = list(enumerate(load))[::-1]
    answers: list[Answered] = []

    async def client() -> None:
        while waiting:
            answers.append(await _stream(host, port, *waiting.pop()))

    await asyncio.gather(*(client() for _ in range(clients)))
    return answers


async def _open(host: str, port: int, load: Sequence[Ask], rate: float) -> list[Answered]:
    draw, tasks = random.Random(0), list[asyncio.Task[Answered]]()
    for number, ask in enumerate(load):
        tasks.append(asyncio.create_task(_stream(host, port, number, ask)))
        await asyncio.sleep(draw.expovariate(rate))
    return list(await asyncio.gather(*tasks))
