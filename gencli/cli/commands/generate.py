"""The part of `gencli run` that needs torch: loads the model, runs the engine, writes events and summary."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch

from gencli.cli.explain.brush import Brush
from gencli.cli.explain.colored import ColoredPen, asking, wanted_scale
from gencli.cli.terminal.display import open_writers
from gencli.cli.terminal.interrupts import Interrupts
from gencli.cli.terminal.render import Sink, say, say_error
from gencli.cli.terminal.scores import show_scores
from gencli.cli.terminal.stderr import Stderr
from gencli.cli.terminal.writers import Writer, label
from gencli.config.job import Job
from gencli.config.requests import chat_notices, make_requests
from gencli.config.settings import Settings
from gencli.core.events import Error
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import GencliError
from gencli.explain.levels import Scale
from gencli.results.run_record import RunInfo, errors, stats, summary
from gencli.results.run_results import Results
from gencli.runtime.compiled_grammars import Compiled, Compiling, RetryingEngine
from gencli.runtime.model_loading import Loaded
from gencli.runtime.wiring import load_model, make_engine, model_identity
from gencli.structured.output_spec import OutputSpec
from gencli.text.tokenizer import Tokenizer
from processors.errors import ProcessorsError

__all__ = ["Beside", "Ready", "generate", "prepare"]

Beside = Callable[[Results, RunInfo], Writer]  # makes a further writer of a run


@dataclass(frozen=True, slots=True)
class Ready:
    """The model, its engine, and the job with its compiled grammar. `load_seconds`: time of loading."""

    job: Job
    loaded: Loaded
    load_seconds: float
    engine: Engine
    compiled: Compiled | None


def generate(
    job: Job,
    prompts: Sequence[str],
    settings: Settings,
    *,
    sink: Sink,
    voice: Stderr,
    handler: Interrupts,
    beside: Sequence[Beside] = (),
) -> int:
    """Run the job and return the exit code.

    `beside` makes further writers, which receive each event after the writer of the result. Raises the error
    of the last prompt if the engine accepts none.
    """
    with ExitStack() as stack:
        ready = prepare(job, len(prompts), settings, voice, stack)
        engine, job = ready.engine, ready.job
        attempts = RetryingEngine(engine)
        scale = wanted_scale(settings, sink, voice.notice)
        asked = asking(job, scale) if scale else job
        requests = list(make_requests(asked, prompts, ready.loaded.tokenizer))
        refused = _submit(attempts, requests, job.structure)
        num_notices = _say_notices(engine, voice)
        is_partial = job.structure is None or job.structure.is_partial
        results = Results(prompts, job.n, is_partial=is_partial)
        for row, request in zip(results.rows, requests, strict=True):
            row.prompt_ids = request.prompt_ids
        identity = None if settings["format"] == "text" else model_identity(settings, voice)
        chain_run = engine.effective(requests[0]).chain
        shared = settings["model"], chain_run, job, ready.compiled, identity
        info = RunInfo(*shared, ready.loaded.tokenizer, engine.eos_ids)
        handler.on_first = engine.interrupt
        pen = _colored(scale, sink, requests, info) if scale else None
        writers: list[Writer] = [pen] if pen else []
        writers += open_writers(
            settings, sink, results, info, voice, stack, [request.marker for request in requests], pen
        )
        writers += [make(results, info) for make in beside]
        for event in chain(refused, attempts.run(is_merged=True)):
            results.add(event)
            for writer in writers:
                writer.add(event)
        for writer in writers:
            writer.close()
    _say_notices(engine, voice, num_notices)
    is_scored = not (job.logprobs is None and job.prompt_logprobs is None)  # colours may need them as well
    if settings["format"] == "text" and is_scored:
        _show_scores(results, job.n, ready.loaded.tokenizer)
    if pen:
        voice.say(pen.legend)
    _print_summary(results, info, ready, settings, voice)
    return results.exit_code


def _show_scores(results: Results, num_samples: int, tokenizer: Tokenizer) -> None:
    """Print the log-probabilities of all samples after their texts."""
    for row in results.rows:
        for sample in range(num_samples):
            title = label(row, sample) if len(results.rows) > 1 or num_samples > 1 else ""
            show_scores(row.scores, sample, tokenizer, title)


def _colored(scale: Scale, sink: Sink, requests: Sequence[Request], info: RunInfo) -> ColoredPen:
    assert info.tokenizer is not None
    decoders = {request.id: partial(info.tokenizer.stream, request.prompt_ids) for request in requests}
    markers = {request.id: request.marker for request in requests}
    return ColoredPen(Brush(sink), scale, decoders, markers)


def prepare(job: Job, num_prompts: int, settings: Settings, voice: Stderr, stack: ExitStack) -> Ready:
    """Load the model while the grammar compiles. `stack` closes the compiler.

    Raises ModelError or ConfigError for an unusable model or grammar.
    """
    compiling = Compiling(job.structure, settings["grammar_timeout"])
    stack.callback(compiling.close)
    loaded, seconds = load_model(
        settings,
        voice,
        companions=job.guidance.is_on,
        rows=min(settings["max_batch"], num_prompts * job.num_drawn) * job.rows_each,
        is_chat=job.is_chat,
        on_tokenizer=compiling.begin,
    )
    for text in chat_notices(job, loaded.tokenizer):
        voice.notice(text)
    compiler, compiled = compiling.finish(loaded)
    if compiled is not None:
        job = job.on(compiled.variant.constraint)
        for text in compiled.notices:
            voice.notice(text)
    engine = make_engine(loaded, settings, compiler, registry=job.registry)
    return Ready(job, loaded, seconds, engine, compiled)


def _print_summary(results: Results, info: RunInfo, ready: Ready, settings: Settings, voice: Stderr) -> None:
    for error in errors(results):
        say_error(error)
    if settings["debug"]:
        for outcome in (outcome for row in results.rows for outcome in row.ended):
            if isinstance(outcome, Error) and outcome.cause:
                say("".join(traceback.format_exception(outcome.cause)).rstrip())
    for line in summary(results, info):
        voice.say(line)
    if settings["stats"]:
        spec, threads = ready.loaded.runner.spec, torch.get_num_threads()
        for line in stats(results, info, spec, load_seconds=ready.load_seconds, threads=threads):
            voice.say(line)
        if ahead := ready.engine.ahead:
            voice.say(f"steps ahead: {ahead.num_launched}, of which {ahead.num_used} were used in full")


def _say_notices(engine: Engine, voice: Stderr, start: int = 0) -> int:
    """Print the engine's notices from index `start` on. Return the number of all notices."""
    for text in engine.notices[start:]:
        voice.notice(text)
    return len(engine.notices)


def _submit(
    attempts: RetryingEngine, requests: Sequence[Request], structure: OutputSpec | None
) -> list[Error]:
    """Submit the requests and return the events of rejected ones.

    Raises the error of the last request if all are rejected.
    """
    refused: list[list[Error]] = []
    for request in requests:
        try:
            attempts.submit(request, structure)
        except (GencliError, ProcessorsError) as error:
            if len(refused) == len(requests) - 1:
                raise
            samples = range(request.n)
            refused.append([Error(request.id, j, type(error).__name__, str(error), "") for j in samples])
    return [event for events in refused for event in events]
