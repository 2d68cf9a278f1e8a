"""The part of `gencli run` that needs torch: load, submit, follow the events, sum up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain

import torch

from gencli.cli.interrupts import Interrupts
from gencli.cli.render import Sink, Voice, say
from gencli.cli.report import RunInfo, errors, stats, summary
from gencli.cli.results import Results
from gencli.cli.writers import BlockWriter, JsonLinesWriter, JsonWriter, TextWriter, Writer
from gencli.engine import Engine
from gencli.errors import GencliError
from gencli.events import Error
from gencli.job import Job, make_requests
from gencli.models.resolve import Loaded, ModelChoice, load
from gencli.request import Request
from gencli.settings import Settings
from processors.errors import ProcessorsError

__all__ = ["generate", "load_model"]


def generate(
    job: Job, prompts: Sequence[str], settings: Settings, *, sink: Sink, voice: Voice, handler: Interrupts
) -> int:
    """Run the job; the exit code."""
    loaded, load_seconds = load_model(settings, voice)
    engine = Engine(loaded.runner, loaded.tokenizer, max_batch=settings["max_batch"], registry=job.registry)
    requests = list(make_requests(job, prompts, loaded.tokenizer))
    refused = _submit(engine, requests)
    for text in engine.notices:
        voice.say(f"Notice: {text}")
    spec, results = loaded.runner.spec, Results(prompts, job.n)
    info = RunInfo(settings["model"], engine.effective(requests[0]).chain, job)
    handler.on_first = engine.interrupt
    with ExitStack() as stack:
        writer = _writer(settings, sink, results, info, stack)
        for event in chain(refused, engine.run()):
            results.add(event)
            writer.add(event)
            voice.status(_progress(results, settings))
        writer.close()
    voice.status("")
    for error in errors(results):
        say(error)
    for line in summary(results, info):
        voice.say(line)
    if settings["stats"]:
        for line in stats(results, spec, load_seconds=load_seconds, threads=torch.get_num_threads()):
            voice.say(line)
    return results.exit_code


def load_model(settings: Settings, voice: Voice) -> tuple[Loaded, float]:
    """The model, and how long it took."""
    if settings["threads"] is not None:
        torch.set_num_threads(settings["threads"])
    choice = ModelChoice(
        name=settings["model"],
        dtype=settings["dtype"],
        device=settings["device"],
        max_batch=settings["max_batch"],
        trust_remote_code=settings["trust_remote_code"],
    )
    start = time.monotonic()
    voice.status(f"Loading {choice.name} ...")
    loaded = load(choice)
    voice.status("")
    for notice in loaded.runner.spec.notices:
        voice.say(f"Notice: {notice}")
    return loaded, time.monotonic() - start


def _submit(engine: Engine, requests: Sequence[Request]) -> list[Error]:
    """Hand over the requests. One that does not fit fails alone; if none fits, its error is the run's."""
    refused: list[list[Error]] = []
    for request in requests:
        try:
            engine.submit(request)
        except (GencliError, ProcessorsError) as error:
            if len(refused) == len(requests) - 1:
                raise
            samples = range(request.n)
            refused.append([Error(request.id, j, type(error).__name__, str(error), "") for j in samples])
    return [event for events in refused for event in events]


def _writer(settings: Settings, sink: Sink, results: Results, info: RunInfo, stack: ExitStack) -> Writer:
    if settings["format"] == "jsonl":
        return JsonLinesWriter(sink, results, info)
    if settings["format"] == "json":
        return JsonWriter(sink, results, info)
    is_streaming = settings["stream"] is not False
    if len(results.rows) == info.job.n == 1:
        return TextWriter(sink, results, is_streaming=is_streaming)
    if is_streaming and sink.has_control:
        from gencli.cli.live import LiveWriter

        return LiveWriter(results, stack)
    return BlockWriter(sink, results, is_streaming=is_streaming)


def _progress(results: Results, settings: Settings) -> str:
    """For the status line, where nothing else moves."""
    done = sum(row.is_done for row in results.rows)
    is_silent = settings["format"] != "text" or settings["output"] is not None
    return f"{done} of {len(results.rows)} prompts done" if is_silent else ""
