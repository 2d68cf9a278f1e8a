"""Runs the cells of a sweep on a loaded model: whole texts, or first tokens from one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gencli.config.job import Job
from gencli.config.jobs import Jobs
from gencli.config.requests import chat_notices, encode_prompt, make_request
from gencli.config.settings import Settings
from gencli.core.events import Error, Event, Finish, Token
from gencli.engine.engine import Engine
from gencli.errors import GencliError, GenerationError
from gencli.explain.replay import Replay
from gencli.explain.text_measures import Sample, TextMeter
from gencli.results.run_results import LATE
from gencli.runtime.compiled_grammars import Grammars, RetryingEngine, grammar_env, make_compiler
from gencli.runtime.model_loading import Loaded, Reporter
from gencli.runtime.wiring import load_model, make_engine
from processors.base import Admission, Env
from processors.errors import ProcessorsError
from processors.params import MOST
from processors.rng import derive

__all__ = ["CellResult", "run_cells"]


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell of the grid with its values, and its texts by prompt and sample."""

    values: Mapping[str, str]
    samples: tuple[Sample, ...]


def run_cells(
    cells: Sequence[Mapping[str, str]],
    made: Sequence[Job],
    prompts: Sequence[str],
    jobs: Jobs,
    settings: Settings,
    voice: Reporter,
    *,
    first: bool,
    on_engine: Callable[[Engine], None],
) -> Iterator[CellResult]:
    """Yield the cells in order; `made`: the job of each. A prompt has the same seed in all cells.

    With `first` the model reads each prompt once, and every cell's chain draws the first token from the same
    logits. `on_engine` is called with the engine.
    """
    loaded, _ = load_model(
        settings, voice, companions=jobs.are_guided, rows=settings["max_batch"], is_chat=jobs.base.is_chat
    )
    for text in dict.fromkeys(text for job in made for text in chat_notices(job, loaded.tokenizer)):
        voice.notice(text)
    compiler = make_compiler(grammar_env(loaded), settings["grammar_timeout"])
    try:
        engine = make_engine(loaded, settings, compiler, registry=jobs.base.registry)
        on_engine(engine)
        attempts, grammars = RetryingEngine(engine), Grammars(compiler)
        made = [grammars.ready(job) for job in made]
        if first:
            base = replace(grammars.ready(jobs.base), n=1)
            yield from _first_tokens(cells, made, base, prompts, attempts, loaded, engine.eos_ids)
        else:
            yield from _texts(cells, made, prompts, attempts, loaded)
        for text in engine.notices:
            voice.notice(text)
    finally:
        compiler.close()


def _texts(
    cells: Sequence[Mapping[str, str]],
    jobs: Sequence[Job],
    prompts: Sequence[str],
    attempts: RetryingEngine,
    loaded: Loaded,
) -> Iterator[CellResult]:
    waiting = [dict[tuple[int, int], Sample]() for _ in cells]
    for number, job in enumerate(jobs):
        for place, prompt in enumerate(prompts):
            ids, seed = encode_prompt(job, prompt, loaded.tokenizer), derive(job.seed, place)
            request = make_request(job, f"{number}.{place}", ids, seed, loaded.tokenizer)
            try:
                attempts.submit(replace(request, trace=1), job.structure)
            except (GencliError, ProcessorsError) as error:
                for sample in range(job.n):
                    failed = Error(request.id, sample, type(error).__name__, str(error), "")
                    waiting[number][place, sample] = TextMeter(place, sample).end(failed)
    due, meters = 0, dict[tuple[str, int], TextMeter]()
    for event in attempts.run():
        _note(event, meters, waiting)
        while due < len(cells) and len(waiting[due]) == len(prompts) * jobs[due].n:
            yield _result(cells[due], waiting[due])
            due += 1
    for number in range(due, len(cells)):  # all requests of the cell were rejected
        yield _result(cells[number], waiting[number])


def _note(
    event: Event, meters: dict[tuple[str, int], TextMeter], waiting: Sequence[dict[tuple[int, int], Sample]]
) -> None:
    if not isinstance(event, Token | Finish | Error):
        return
    number, place = (int(part) for part in event.request.split("."))
    key = event.request, event.sample
    if isinstance(event, Token):
        meters.setdefault(key, TextMeter(place, event.sample)).add(event)
    else:
        waiting[number][place, event.sample] = meters.pop(key, TextMeter(place, event.sample)).end(event)


def _result(values: Mapping[str, str], samples: Mapping[tuple[int, int], Sample]) -> CellResult:
    return CellResult(values, tuple(samples[key] for key in sorted(samples)))


def _first_tokens(
    cells: Sequence[Mapping[str, str]],
    jobs: Sequence[Job],
    base: Job,
    prompts: Sequence[str],
    attempts: RetryingEngine,
    loaded: Loaded,
    eos_ids: tuple[int, ...],
) -> Iterator[CellResult]:
    limits, tokenizer = replace(base.limits, max_tokens=1), loaded.tokenizer
    all_ids = [encode_prompt(base, prompt, tokenizer) for prompt in prompts]
    for place, ids in enumerate(all_ids):
        request = make_request(base, str(place), ids, derive(base.seed, place), tokenizer)
        attempts.submit(replace(request, trace=1, keep_logits=MOST, limits=limits), None)
    views = {}
    for event in attempts.run():
        if isinstance(event, Error):
            raise GenerationError(event.message)
        if isinstance(event, Finish) and event.is_late:
            raise GenerationError(LATE)
        if isinstance(event, Token) and event.views:
            views[int(event.request)] = event.views[0]
    env = Env(loaded.runner.spec.vocab_size, tokenizer, eos_ids)
    for values, job in zip(cells, jobs, strict=True):
        samples = []
        for place in sorted(views):
            kept = views[place].kept
            assert kept is not None
            kept = replace(kept, seed=derive(derive(job.seed, place), 0))
            told = Admission(all_ids[place], job.stops.ids, job.limits.max_tokens)
            chain, registry = job.assembly.chain, job.registry
            replay = Replay(chain, env, kept, draw=job.draw, request=told, registry=registry)
            token = replay.look(kept).token
            meter = TextMeter(place, 0, [token])
            meter.see(replay.explain(kept, token))
            text = tokenizer.decode([token], skip_special=False)
            samples.append(Sample(place, 0, text, "first", meter.measures()))
        yield CellResult(values, tuple(samples))
