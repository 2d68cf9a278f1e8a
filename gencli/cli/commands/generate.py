"""The part of `gencli run`, `gencli log` and `gencli fork` that needs torch: loads the model, runs the
engine, writes events and summary, the run's log entry and its trace, and grows children of a tree.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

import torch

from gencli import __version__
from gencli.cli.commands.setting_views import asking, chain_rows, wanted_scale
from gencli.cli.render import Sink, say, say_error, say_notice
from gencli.cli.result_writers import ColoredPen, Writer, label, open_writers
from gencli.cli.stderr import Interrupts, Stderr
from gencli.cli.token_colors import Brush, show_scores
from gencli.config.job import Job, chat_notices, encode_prompt, make_requests
from gencli.config.job_parts import named_models
from gencli.config.layers import Recipe, files_of
from gencli.config.option_names import with_flags
from gencli.config.result_formats import format_of
from gencli.config.settings import Settings
from gencli.core.events import Error, Event, Finish, Token
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import GencliError, GenerationError, UsageError
from gencli.explain.forks import Cut, Forks, text_head
from gencli.explain.text_sets import Node, Tree
from gencli.explain.trace_file import Head, TraceWriter
from gencli.models.files.checkpoint import identify_model
from gencli.results.run_record import RunInfo, errors, record, stats, summary
from gencli.results.run_results import PromptRow, Results
from gencli.run_log import Entry, PromptEntry, add_run
from gencli.runtime.compiled_grammars import Compiling, RetryingEngine
from gencli.runtime.model_loading import Loaded
from gencli.runtime.wiring import load_model, make_engine, model_identity
from gencli.structured.output_spec import Compiled, OutputSpec
from processors.errors import ProcessorsError
from processors.registry import Registry

WriterFactory = Callable[[Results, RunInfo], Writer]  # makes a further writer of a run


@dataclass(frozen=True, slots=True)
class LoadedRun:
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
    stderr: Stderr,
    handler: Interrupts,
    beside: Sequence[WriterFactory] = (),
) -> int:
    """Run the job and return the exit code.

    `beside` makes further writers, which receive each event after the writer of the result. Raises the error
    of the last prompt if the engine accepts none.
    """
    with ExitStack() as stack:
        ready = prepare(job, len(prompts), settings, stderr, stack)
        engine, job = ready.engine, ready.job
        attempts = RetryingEngine(engine)
        scale = wanted_scale(settings, sink, stderr.notice)
        asked = asking(job, scale) if scale else job
        requests = list(make_requests(asked, prompts, ready.loaded.tokenizer))
        refused = _submit(attempts, requests, job.structure)
        stderr.notice(*engine.notices)
        num_notices = len(engine.notices)
        is_partial = job.structure is None or job.structure.is_partial
        results = Results(prompts, job.n, is_partial=is_partial)
        for row, request in zip(results.rows, requests, strict=True):
            row.prompt_ids = request.prompt_ids
        identity = None if format_of(settings).is_text else model_identity(settings, stderr)
        chain_run = engine.effective(requests[0]).chain
        shared = settings["model"], chain_run, job, ready.compiled, identity
        info = RunInfo(*shared, ready.loaded.tokenizer, engine.eos_ids)
        handler.on_first = engine.interrupt
        markers, stream = {request.id: request.marker for request in requests}, ready.loaded.tokenizer.stream
        decoders = {request.id: partial(stream, request.prompt_ids) for request in requests}
        pen = ColoredPen(Brush(sink), scale, decoders, markers) if scale else None
        writers: list[Writer] = [pen] if pen else []
        write = pen.write if pen else None
        writers += open_writers(settings, sink, results, info, stderr, stack, [*markers.values()], write)
        writers += [make(results, info) for make in beside]
        for event in chain(refused, attempts.run(is_merged=True)):
            results.add(event)
            for writer in writers:
                writer.add(event)
        for writer in writers:
            writer.close()
    stderr.notice(*engine.notices[num_notices:])
    if format_of(settings).is_text:
        is_scored = job.logprobs is not None  # colours may need log-probabilities as well
        for row in results.rows:
            for sample in range(job.n):
                title = label(row, sample) if len(results.rows) > 1 or job.n > 1 else ""
                show_scores(row.scores, sample, ready.loaded.tokenizer, title, has_output=is_scored)
    if pen:
        stderr.say(pen.legend)
    _print_summary(results, info, ready, settings, stderr)
    return results.exit_code


def prepare(job: Job, num_prompts: int, settings: Settings, stderr: Stderr, stack: ExitStack) -> LoadedRun:
    """Load the model while the grammar compiles. `stack` closes the compiler.

    Raises ModelError or ConfigError for an unusable model or grammar.
    """
    compiling = Compiling(job.structure, settings["grammar_timeout"])
    stack.callback(compiling.close)
    loaded, seconds = load_model(
        settings,
        stderr,
        companions=job.guidance.is_on,
        rows=min(settings["max_batch"], num_prompts * job.num_drawn) * job.rows_each,
        is_chat=job.is_chat,
        on_tokenizer=compiling.begin,
    )
    stderr.notice(*chat_notices(job, loaded.tokenizer))
    compiler, compiled = compiling.finish(loaded)
    if compiled is not None:
        job = job.on(compiled.variant.constraint)
        stderr.notice(*compiled.notices)
    engine = make_engine(loaded, settings, compiler, registry=job.registry)
    return LoadedRun(job, loaded, seconds, engine, compiled)


def _print_summary(
    results: Results, info: RunInfo, ready: LoadedRun, settings: Settings, stderr: Stderr
) -> None:
    for error in errors(results):
        say_error(error)
    if settings["debug"]:
        for outcome in (outcome for row in results.rows for outcome in row.ended):
            if isinstance(outcome, Error) and outcome.cause:
                say("".join(traceback.format_exception(outcome.cause)).rstrip())
    stderr.say(*summary(results, info))
    if settings["stats"]:
        spec, threads = ready.loaded.runner.spec, torch.get_num_threads()
        stderr.say(*stats(results, info, spec, load_seconds=ready.load_seconds, threads=threads))
        if ahead := ready.engine.ahead:
            stderr.say(f"steps ahead: {ahead.num_launched}, of which {ahead.num_used} were used in full")


def _submit(
    attempts: RetryingEngine, requests: Sequence[Request], structure: OutputSpec | None
) -> list[Error]:
    """Submit the requests; return the events of rejected ones. Raises the last error if all are rejected."""
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


@dataclass(frozen=True, slots=True)
class Grower(Forks):
    """A loaded model that grows children of a tree's texts."""

    engine: Engine
    handler: Interrupts
    stderr: Stderr

    def grow(
        self,
        tree: Tree,
        cut: Cut,
        count: int,
        *,
        seed: int | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> tuple[list[Node], Results]:
        """Return `count` children at a cut, and their results.

        An interrupt ends them with their texts so far. Raises UsageError or ProcessorsError for a cut at
        which no output is possible.
        """
        requests = self.requests(tree, cut, count, seed)
        results = Results([""] * count, 1)
        for event in self._events(requests):
            results.add(event)
            if on_event is not None:
                on_event(event)
        nodes = []
        for request, row in zip(requests, results.rows, strict=True):
            end = row.outcomes[0]
            if (node := self.node(tree, cut, request, row)) is not None:
                nodes.append(node)
            elif isinstance(end, Finish) and end.reason != "interrupted":
                why = f"The text ended before its first new token: `{end.matched or end.reason}`."
                row.outcomes[0] = Error(request.id, 0, "GenerationError", why, end.text)
        return nodes, results

    def ranked(self, tree: Tree, cut: Cut, rank: int) -> int:
        """Return the id with rank `rank` at a cut, under the model without stages."""
        size = self.tokenizer.vocab_size
        if rank > size:
            raise UsageError(f"No token has rank {rank}: the model has {size} tokens.")
        token: int | None = None
        for event in self._events([self.ranking(tree, cut, rank)]):
            if isinstance(event, Token) and event.logprobs:
                token = event.logprobs[-1].top[-1].id
            elif isinstance(event, Error):
                raise GenerationError(event.message)
        if token is None:  # interrupted
            raise KeyboardInterrupt
        return token

    def _events(self, requests: Sequence[Request]) -> Iterator[Event]:
        engine = self.engine
        for request in requests:
            engine.submit(request)
        self.stderr.notice(*engine.notices)
        engine.notices.clear()
        self.handler.on_first = engine.interrupt
        try:
            yield from engine.run()
        finally:
            self.handler.on_first = None


_TEXTS = ("prompt", "text", "texts")  # keys of a record that the log stores in separate fields


def model_records(settings: Settings, registry: Registry, stderr: Stderr) -> dict[str, Any]:
    """Return name, revision and SHA-256 of each model of a run by option key; both null for `fake`."""
    records: dict[str, Any] = {}
    for key, name in named_models(settings, registry).items():
        with stderr.loading(name, "Hashing") as on_bytes:
            identity = identify_model(name, on_bytes)
        revision, digest = (identity.revision, identity.sha256) if identity else (None, None)
        records[key] = {"name": name, "revision": revision, "sha256": digest}
    return records


class LogWriter(Writer):
    """Stores the run in the log at its end. If that fails, a notice gives the reason."""

    def __init__(self, settings: Settings, stderr: Stderr, results: Results, info: RunInfo) -> None:
        self._results, self._info, self._settings = results, info, settings
        self._time = datetime.now(UTC).isoformat(timespec="seconds")
        # Read now, because files may change during the run.
        self._files = files_of(settings)
        self._models = model_records(settings, info.job.registry, stderr)

    def close(self) -> None:
        """Store the run."""
        try:
            add_run(self._entry())
        except GencliError as error:
            say_notice(f"The run is not stored in the log. {error.message}")

    def _entry(self) -> Entry:
        settings, job = self._settings, self._info.job
        recipe = Recipe.of(settings, job, self._files)
        given_keys = (key for key in settings if settings.is_given(key))
        prompts = []
        for row in self._results.rows:
            fields = {key: value for key, value in record(row, self._info).items() if key not in _TEXTS}
            prompts.append(PromptEntry(row.prompt, _texts(row), fields))
        return Entry(
            time=self._time,
            version=__version__,
            model=self._info.model,
            seed=job.seed,
            exit_code=self._results.exit_code,
            folder=os.getcwd(),
            preset=recipe.preset,
            settings={
                key: {"value": settings[key], "origin": with_flags(settings.where(key))} for key in given_keys
            },
            chain=chain_rows(job),
            code=recipe.code,
            models=self._models,
            files=recipe.files,
            prompts=tuple(prompts),
        )


class TextComparison(Writer):
    """Prints a notice at the end of a run if its texts differ from those of the logged run."""

    def __init__(self, entry: Entry, results: Results, _: RunInfo) -> None:
        self._entry, self._results = entry, results

    def close(self) -> None:
        """Compare the texts."""
        pairs = zip(self._results.rows, self._entry.prompts, strict=True)
        changed = [row.id for row, before in pairs if _texts(row) != before.texts]
        if changed:
            which = f" of prompt {', '.join(changed)}" if len(self._results.rows) > 1 else ""
            say_notice(f"The text{which} differs from the logged one.")


def differences(entry: Entry, models: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each difference from the logged run: gencli's version, weights of models."""
    sentences = []
    if entry.version != __version__:
        sentences.append(f"The run was made by gencli {entry.version}, this is {__version__}.")
    for key, before in entry.models.items():
        now = models.get(key)
        if now is None or now["sha256"] != before["sha256"]:
            sentences.append(f"The weights of {before['name']} ({key}) differ from those of the logged run.")
    return sentences


def _texts(row: PromptRow) -> tuple[str | None, ...]:
    # As they were written; None for a sample without an outcome.
    outcomes = enumerate(row.outcomes)
    return tuple(row.shown(sample) if outcome is not None else None for sample, outcome in outcomes)


def trace_writer(
    write: Callable[[str], None], settings: Settings, results: Results, info: RunInfo
) -> TraceWriter:
    """Return the writer of a trace: `write` receives the lines, `settings` are the run's."""
    assert info.tokenizer is not None
    structure, head = info.job.structure, head_of(results, info, asdict(Recipe.of(settings, info.job)))
    waits = structure is not None and structure.retries > 0
    return TraceWriter(write, head, info.tokenizer, waits=waits)


def head_of(results: Results, info: RunInfo, recipe: Mapping[str, Any]) -> Head:
    """Return a function from request and sample to the head of a traced text; `recipe` is in it."""
    tokenizer = info.tokenizer
    assert tokenizer is not None

    def head(request: str, sample: int) -> Mapping[str, Any]:
        prompt = results.row(request).prompt
        ids = encode_prompt(info.job, prompt, tokenizer)
        return {**text_head(info, prompt, ids), "texts": len(results.rows) * info.job.n, **recipe}

    return head
