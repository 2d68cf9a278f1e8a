"""The part of `gencli run` that needs torch: load, submit, follow the events, sum up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain

import torch

from gencli.cli.display import load_progress, open_writers
from gencli.cli.interrupts import Interrupts
from gencli.cli.render import Sink, Voice, say
from gencli.cli.report import RunInfo, errors, stats, summary
from gencli.cli.results import Results
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
    num_said = _say_notices(engine, voice)
    spec, results = loaded.runner.spec, Results(prompts, job.n)
    info = RunInfo(settings["model"], engine.effective(requests[0]).chain, job)
    handler.on_first = engine.interrupt
    with ExitStack() as stack:
        writers = open_writers(settings, sink, results, info, voice, stack)
        for event in chain(refused, engine.run()):
            results.add(event)
            for writer in writers:
                writer.add(event)
        for writer in writers:
            writer.close()
    _say_notices(engine, voice, num_said)
    for error in errors(results):
        say(error)
    for line in summary(results, info):
        voice.say(line)
    if settings["stats"]:
        for line in stats(results, spec, load_seconds=load_seconds, threads=torch.get_num_threads()):
            voice.say(line)
    return results.exit_code


def _say_notices(engine: Engine, voice: Voice, num_said: int = 0) -> int:
    """Say what the engine has to say beyond what was said; how much that is by now."""
    for text in engine.notices[num_said:]:
        voice.say(f"Notice: {text}")
    return len(engine.notices)


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
    with load_progress(choice.name, voice) as on_bytes:
        loaded = load(choice, on_bytes=on_bytes)
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
