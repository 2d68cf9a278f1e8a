"""The parts of `gencli compare`, `gencli sweep` and `gencli batch --dry-run` that need torch: both sides
of a comparison with its assertions and page, the cells of a sweep, and the preview of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gencli.batch.batch_setup import Batch, BatchEstimate, Preview, look, need_of
from gencli.cli.experiment_tables import comparison_text, head_text, summary_text
from gencli.cli.render import Sink, say_error, table
from gencli.cli.stderr import Interrupts, Stderr
from gencli.cli.trace_views import open_trace
from gencli.config.job import Job, Jobs, chat_notices, encode_prompt, make_request
from gencli.config.layers import ComparedSide
from gencli.config.option_names import with_flags
from gencli.config.result_formats import format_of
from gencli.config.settings import Settings
from gencli.core.events import Error, Finish, Token
from gencli.errors import GencliError, GenerationError, ModelError, UsageError
from gencli.explain import chain_comparison as comparing
from gencli.explain import page as pages
from gencli.explain.chain_comparison import (
    Comparison,
    DivergenceSums,
    Other,
    TextOf,
    compare_trace,
    known_texts,
    summarize,
)
from gencli.explain.replay import Replay
from gencli.explain.text_sets import MeasuredText, TextMeter
from gencli.explain.token_record import token_text
from gencli.helpers import clock, counted, size
from gencli.results.run_results import LATE
from gencli.runtime.comparing import SideRun, compare, compare_models
from gencli.runtime.compiled_grammars import Grammars, RetryingEngine, grammar_env, make_compiler
from gencli.runtime.model_loading import Loaded, load_tokenizer
from gencli.runtime.wiring import load_model, make_engine
from gencli.text.tokenizer import Tokenizer, first_difference
from processors.base import Admission, Env
from processors.errors import ProcessorsError
from processors.params import MOST
from processors.rng import derive

_NamedComparison = tuple[Comparison, TextOf]


def compare_live(
    a: ComparedSide,
    b: ComparedSide,
    prompts: tuple[str, ...],
    values: Mapping[str, Any],
    *,
    sink: Sink,
    stderr: Stderr,
    handler: Interrupts,
) -> int:
    """Load the model of each side, compare, write the result, and return the exit code."""
    settings, has_two = a.settings, values["model_b"] is not None
    with ExitStack() as stack:
        rows = min(settings["max_batch"], (1 if has_two else 2) * len(prompts))
        first = _loaded(a, rows, stderr, stack)
        if has_two:
            second, name, other = _loaded(b, rows, stderr, stack), settings["model"], values["model_b"]
            refuse_vocabularies(first.loaded.tokenizer, second.loaded.tokenizer, name, other)
        else:
            second = replace(first, job=Grammars(first.grammars).ready(b.job))
        engines = (first.engine, second.engine)

        def interrupt() -> None:
            for engine in engines:
                engine.interrupt()

        handler.on_first = interrupt
        text_of = partial(token_text, tokenizer=first.loaded.tokenizer)
        run = compare_models if has_two else compare
        comparisons = ((comparison, text_of) for comparison in run(first, second, prompts))
        head = {
            "model": settings["model"],
            **({"model_b": values["model_b"]} if has_two else {}),
            "a": _side(a, str(first.job.chain), first.job.method),
            "b": _side(b, str(second.job.chain), second.job.method),
            "seed": a.job.seed,
        }
        code = _write(comparisons, head, values, sink, stderr)
        stderr.notice(*dict.fromkeys(text for engine in engines for text in engine.notices))
    return code


def _loaded(side: ComparedSide, rows: int, stderr: Stderr, stack: ExitStack) -> SideRun:
    settings, job = side.settings, side.job
    loaded, _ = load_model(settings, stderr, companions=job.guidance.is_on, rows=rows, is_chat=job.is_chat)
    stderr.notice(*chat_notices(job, loaded.tokenizer))
    compiler = make_compiler(grammar_env(loaded), settings["grammar_timeout"])
    stack.callback(compiler.close)
    engine = make_engine(loaded, settings, compiler, registry=job.registry)
    return SideRun(engine, loaded, compiler, Grammars(compiler).ready(job))


def refuse_vocabularies(a: Tokenizer, b: Tokenizer, name: str, other: str) -> None:
    """Raise ModelError for models with different vocabularies."""
    difference = first_difference(a, b)
    if difference is not None or a.vocab_size != b.vocab_size:
        why = f"they have {a.vocab_size} and {b.vocab_size} tokens"
        if difference is not None:
            why = f"token {difference[0]} is {difference[1]!r} and {difference[2]!r}"
        raise ModelError(
            f"{name} and {other} have different vocabularies: {why}.", hint="Take models of one family."
        )


def compare_on_trace(
    path: str, b: ComparedSide, values: Mapping[str, Any], *, sink: Sink, stderr: Stderr, has_model: bool
) -> int:
    """Compare on the kept logits of a trace, write the result, and return the exit code."""
    settings, job = b.settings, b.job
    trusted = settings["trust_remote_code"]
    tokenizer = load_tokenizer(settings["model"], trust_remote_code=trusted) if has_model else None
    other = Other(
        job.assembly.chain,
        draw=job.draw if settings.is_given("sampler") else None,
        stop_ids=job.stops.ids if settings.is_given("stop_id") else None,
        max_tokens=job.limits.max_tokens if settings.is_given("max_tokens") else None,
        registry=job.registry,
    )

    def comparisons() -> Iterator[_NamedComparison]:
        for text in open_trace(path):
            name_of: TextOf = partial(token_text, tokenizer=tokenizer) if tokenizer else known_texts(text).get
            try:
                comparison = compare_trace(text, other, tokenizer)
            except ProcessorsError as error:
                hint = "" if tokenizer else "If it works on texts, `model` names a tokenizer."
                raise UsageError(f"B: {error}", hint=with_flags(hint)) from None
            yield comparison, name_of
            chosen = {position.b for position in comparison.places if position.b is not None}
            unnamed.update(token for token in chosen if not name_of(token))

    unnamed = set[int]()
    draw = other.draw or "as the trace"
    head = {"trace": path, "a": None, "b": _side(b, str(job.chain), job.method if job.is_greedy else draw)}
    code = _write(comparisons(), head, values, sink, stderr)
    if unnamed and tokenizer is None:
        stderr.notice("The trace lacks the text of some tokens; `model` names a tokenizer that has it.")
    return code


def _side(side: ComparedSide, chain: str, draw: str) -> dict[str, str]:
    return {"given": side.text, "chain": chain, "draw": draw}


def _write(
    comparisons: Iterable[_NamedComparison],
    head: Mapping[str, Any],
    values: Mapping[str, Any],
    sink: Sink,
    stderr: Stderr,
) -> int:
    """Write each comparison when it is complete, and the totals; return the exit code."""
    page = None if values["html"] is None else Sink(values["html"])  # opened before any computation
    form, records = format_of(values), list[dict[str, Any]]()
    verdict = Verdict(values["max_tv"], is_equal=values["assert_equal"])
    for comparison, text_of in comparisons:
        record = comparing.comparison_record(comparison, text_of)
        if form.is_text:
            sink.write(("" if verdict.texts else head_text(head)) + "\n" + comparison_text(record))
        elif form.is_lines:
            sink.write(form.encode({"kind": "text", **record}))
        else:
            records.append(record)
        verdict.add(comparison)
        if page is not None:
            if verdict.texts > 1:
                raise UsageError("--html shows one text, and the trace has several.")
            with page:
                page.write(compared_page(comparison, head, text_of))
    if not verdict.texts:
        raise UsageError("The trace has no text.")
    counts = {"texts": verdict.texts, "equal": verdict.equal}
    sums = {**head, **counts, **comparing.summary_record(verdict.summary)}
    if not form.is_text:
        whole = {"summary": sums, "texts": records}
        sink.write(form.encode({"kind": "summary", **sums} if form.is_lines else whole))
    elif verdict.texts > 1:
        sink.write(f"\n== {verdict.texts} texts, {verdict.equal} equal\n{summary_text(sums)}")
    for text in verdict.faults():
        say_error(text)
    return verdict.code


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell of the grid with its values, and its texts by prompt and sample."""

    values: Mapping[str, str]
    samples: tuple[MeasuredText, ...]


def run_cells(
    cells: Sequence[Mapping[str, str]],
    cell_jobs: Sequence[Job],
    prompts: Sequence[str],
    jobs: Jobs,
    settings: Settings,
    stderr: Stderr,
    handler: Interrupts,
    *,
    first: bool,
) -> Iterator[CellResult]:
    """Yield the cells in order; `cell_jobs`: the job of each. A prompt has the same seed in all cells.

    With `first` the model reads each prompt once, and every cell's chain draws the first token from the same
    logits.
    """
    loaded, _ = load_model(
        settings, stderr, companions=jobs.are_guided, rows=settings["max_batch"], is_chat=jobs.base.is_chat
    )
    stderr.notice(*dict.fromkeys(text for job in cell_jobs for text in chat_notices(job, loaded.tokenizer)))
    compiler = make_compiler(grammar_env(loaded), settings["grammar_timeout"])
    try:
        engine = make_engine(loaded, settings, compiler, registry=jobs.base.registry)
        handler.on_first = engine.interrupt
        attempts, grammars = RetryingEngine(engine), Grammars(compiler)
        cell_jobs = [grammars.ready(job) for job in cell_jobs]
        if first:
            base = replace(grammars.ready(jobs.base), n=1)
            yield from _first_tokens(cells, cell_jobs, base, prompts, attempts, loaded, engine.eos_ids)
        else:
            yield from _texts(cells, cell_jobs, prompts, attempts, loaded)
        stderr.notice(*engine.notices)
    finally:
        compiler.close()


def _texts(
    cells: Sequence[Mapping[str, str]],
    jobs: Sequence[Job],
    prompts: Sequence[str],
    attempts: RetryingEngine,
    loaded: Loaded,
) -> Iterator[CellResult]:
    of_cells = [dict[tuple[int, int], MeasuredText]() for _ in cells]  # by prompt and sample
    for number, job in enumerate(jobs):
        for prompt_index, prompt in enumerate(prompts):
            ids, seed = encode_prompt(job, prompt, loaded.tokenizer), derive(job.seed, prompt_index)
            request = make_request(job, f"{number}.{prompt_index}", ids, seed, loaded.tokenizer)
            try:
                attempts.submit(replace(request, trace=1), job.structure)
            except (GencliError, ProcessorsError) as error:
                for sample in range(job.n):
                    failed = Error(request.id, sample, type(error).__name__, str(error), "")
                    of_cells[number][prompt_index, sample] = TextMeter(prompt_index, sample).end(failed)
    meters = dict[tuple[str, int], TextMeter]()
    for event in attempts.run():
        if isinstance(event, Token | Finish | Error):
            number, prompt_index = (int(part) for part in event.request.split("."))
            key = event.request, event.sample
            meter = meters.setdefault(key, TextMeter(prompt_index, event.sample))
            if isinstance(event, Token):
                meter.add(event)
            else:
                of_cells[number][prompt_index, event.sample] = meters.pop(key).end(event)
    for values, samples in zip(cells, of_cells, strict=True):
        yield CellResult(values, tuple(samples[key] for key in sorted(samples)))


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
    for prompt_index, ids in enumerate(all_ids):
        request = make_request(base, str(prompt_index), ids, derive(base.seed, prompt_index), tokenizer)
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
        for prompt_index in sorted(views):
            kept = views[prompt_index].kept
            assert kept is not None
            kept = replace(kept, seed=derive(derive(job.seed, prompt_index), 0))
            admission = Admission(all_ids[prompt_index], job.stops.ids, job.limits.max_tokens)
            chain, registry = job.assembly.chain, job.registry
            replay = Replay(chain, env, kept, draw=job.draw, request=admission, registry=registry)
            token = replay.look(kept).token
            meter = TextMeter(prompt_index, 0, [token])
            meter.see(replay.explain(kept, token))
            text = tokenizer.decode([token], skip_special=False)
            samples.append(MeasuredText(prompt_index, 0, text, "first", meter.measures()))
        yield CellResult(values, tuple(samples))


def preview(batch: Batch, sink: Sink) -> int:
    """Write the preview to stdout; return the exit code, 7 if some rows cannot run."""
    batch.survey()  # raises for duplicate ids
    totals = Preview()
    for row, fault in look(batch, totals):
        sink.write(f"fault: {row.record.place} (row {row.record.index}): {with_flags(fault)}\n")
    for shown in totals.shown:
        head = f"{shown.row.id} ({shown.row.record.place}, {counted(shown.tokens, 'token')})"
        sink.write(f"==> {head} <==\n{shown.text}\n\n")
    sink.write(table(_lines(totals, need_of(batch, totals), batch)))
    return 7 if totals.faults else 0


def _lines(totals: Preview, need: BatchEstimate | None, batch: Batch) -> Iterator[tuple[str, str]]:
    yield "rows", f"{totals.num_rows:,}, {totals.faults:,} of them faulty"
    good = totals.num_rows - totals.faults
    mean = totals.prompt_tokens / good if good else 0.0
    yield "prompts", f"{totals.prompt_tokens:,} tokens, {mean:.1f} on average, {totals.shortest} at least"
    yield "outputs", f"{totals.samples:,} texts of {totals.output_tokens:,} tokens at most"
    yield "longest", f"{totals.longest:,} tokens, prompt and output"
    yield "output", f"{batch.output.path or 'stdout'}, {batch.output.format.name}"
    if need is None:
        return
    kv = need.capacity.kv_bytes
    parts = [f"{size(need.capacity.weights)} weights"]
    parts += [f"{size(weights)} weights of {name}" for name, weights in need.capacity.beside]
    parts += [f"{size(kv * need.batch)} keys and values"] if kv is not None else []
    parts += [f"{size(need.process)} Python and PyTorch"] if need.process is not None else []
    free = f"; {size(need.capacity.free)} are free" if need.capacity.free is not None else ""
    yield "memory", f"{' + '.join(parts)} ({counted(need.batch, 'sample')} side by side){free}"
    yield "time", f"roughly {clock(need.seconds)}, if every text is as long as it may be"


class Verdict:
    """Counts comparisons. `limit`: largest total variation allowed at a position; None for any.

    A position at which B has no token exceeds every limit. A position without sufficient kept logits is
    undecided. `is_equal`: the texts have to be equal.
    """

    def __init__(self, limit: float | None, *, is_equal: bool) -> None:
        self._limit, self._is_equal = limit, is_equal
        self.texts = self.equal = self._different = self._unknown = 0
        self._failed = self._interrupted = self._over = 0
        self.summary = DivergenceSums()

    def add(self, comparison: Comparison) -> None:
        """Count a comparison."""
        self.texts += 1
        self.equal += comparison.is_equal is True
        self._unknown += comparison.is_equal is None
        self._different += comparison.is_equal is False
        outputs = [comparison.a, *([comparison.b] if comparison.b else [])]
        self._failed += any(output.error for output in outputs)
        self._interrupted += any(output.reason == "interrupted" for output in outputs)
        self.summary += summarize(comparison.places)
        if self._limit is not None:
            decided = (position for position in comparison.places if position.unmeasured != "kept")
            measured = [position.divergence for position in decided]
            self._over += sum(distance is None or distance.tv > self._limit for distance in measured)

    @property
    def _is_open(self) -> bool:
        is_short = self._limit is not None and self.summary.unmeasured["kept"] > 0
        return is_short or (self._is_equal and self._unknown > 0)

    def faults(self) -> Iterator[str]:
        """Yield failed assertions."""
        if self._failed:
            yield f"{self._failed} of {counted(self.texts, 'text')} failed."
        if self._is_equal and self._different:
            yield f"{self._different} of {counted(self.texts, 'text is', 'texts are')} not equal."
        if self._over:
            places = f"{self._over} of {counted(self.summary.places, 'place')}"
            yield f"The total variation is above {self._limit:g} at {places}."
        if self._is_open:
            yield "Too few logits are kept to decide: keep more of them."

    @property
    def code(self) -> int:
        """130 if interrupted; 6 if an assertion fails or no text is complete; 7 if some are not, or open."""
        if self._interrupted:
            return 130
        if self._over or (self._is_equal and self._different) or self._failed == self.texts:
            return 6
        return 7 if self._failed or self._is_open else 0


def compared_page(comparison: Comparison, head: Mapping[str, Any], text_of: TextOf) -> str:
    """Return the page of a comparison; `head` has the chains of both sides.

    Only measured positions are included. `kl` is KL(A || B). Without B's own text, the second text consists
    of B's choice at each position of A's text.
    """
    along = [position.a if position.b is None else position.b for position in comparison.places]
    a, b = comparison.a.tokens, comparison.b.tokens if comparison.b else along
    chains = [head[key]["chain"] if head[key] else "that of the trace" for key in "ab"]
    sides = pages.Side("A", chains[0], a), pages.Side("B" if comparison.b else "B along A", chains[1], b)
    rows = list[pages.CompareRow]()
    for place in comparison.places:
        if (distance := place.divergence) is not None:
            decided = [*dict.fromkeys((*place.decided_a, *place.decided_b))] if place.is_parted else []
            rows.append(pages.CompareRow(place.pos, distance.tv, distance.kl_ab, place.a, place.b, decided))
    names = {token: text_of(token) or f"#{token}" for token in {*a, *b, *along}}
    return pages.compare_page(comparison.prompt, sides, rows, names)
