"""The part of `gencli compare` that needs torch: runs both sides, writes comparisons, checks assertions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from gencli.cli.explain.compare_verdict import Verdict
from gencli.cli.explain.compared import comparison_text, head_text, summary_text
from gencli.cli.explain.compared_page import compared_page
from gencli.cli.explain.trace_source import open_trace
from gencli.cli.terminal.interrupts import Interrupts
from gencli.cli.terminal.records import record_text
from gencli.cli.terminal.render import Sink, say_error
from gencli.cli.terminal.stderr import Stderr
from gencli.config.options.flags import with_flags
from gencli.config.requests import chat_notices
from gencli.config.sides import Side
from gencli.engine.engine import Engine
from gencli.errors import ModelError, UsageError
from gencli.explain.compare import Comparison
from gencli.explain.compare_record import TextOf, comparison_record, summary_record
from gencli.explain.compare_trace import Other, compare_trace, known_texts
from gencli.explain.record import token_text
from gencli.models.files.model_card import first_difference
from gencli.runtime.comparing import SideRun, compare, compare_models
from gencli.runtime.compiled_grammars import Grammars, grammar_env, make_compiler
from gencli.runtime.model_loading import load_tokenizer
from gencli.runtime.wiring import load_model, make_engine
from processors.errors import ProcessorsError

__all__ = ["compare_live", "compare_on_trace"]

_Found = tuple[Comparison, TextOf]


def compare_live(
    a: Side,
    b: Side,
    prompts: tuple[str, ...],
    own: Mapping[str, Any],
    *,
    sink: Sink,
    voice: Stderr,
    handler: Interrupts,
) -> int:
    """Load the model of each side, compare, write the result, and return the exit code."""
    settings, has_two = a.settings, own["model_b"] is not None
    with ExitStack() as stack:
        rows = min(settings["max_batch"], (1 if has_two else 2) * len(prompts))
        first = _loaded(a, rows, voice, stack)
        second = _loaded(b, rows, voice, stack) if has_two else _beside(first, b)
        if has_two:
            _refuse_vocabularies(first, second, settings["model"], own["model_b"])
        engines = (first.engine, second.engine)
        handler.on_first = partial(_interrupt, engines)
        text_of = partial(token_text, tokenizer=first.loaded.tokenizer)
        run = compare_models if has_two else compare
        found = ((one, text_of) for one in run(first, second, prompts))
        head = {
            "model": settings["model"],
            **({"model_b": own["model_b"]} if has_two else {}),
            "a": _side(a, str(first.job.chain), first.job.method),
            "b": _side(b, str(second.job.chain), second.job.method),
            "seed": a.job.seed,
        }
        code = _write(found, head, own, sink, voice)
        for text in dict.fromkeys(text for engine in engines for text in engine.notices):
            voice.notice(text)
    return code


def _interrupt(engines: Iterable[Engine]) -> None:
    for engine in engines:
        engine.interrupt()


def _loaded(side: Side, rows: int, voice: Stderr, stack: ExitStack) -> SideRun:
    """Load the model of a side, compile its grammar, and make its engine."""
    settings, job = side.settings, side.job
    loaded, _ = load_model(settings, voice, companions=job.guidance.is_on, rows=rows, is_chat=job.is_chat)
    for text in chat_notices(job, loaded.tokenizer):
        voice.notice(text)
    compiler = make_compiler(grammar_env(loaded), settings["grammar_timeout"])
    stack.callback(compiler.close)
    engine = make_engine(loaded, settings, compiler, registry=job.registry)
    return SideRun(engine, loaded, compiler, Grammars(compiler).ready(job))


def _beside(first: SideRun, side: Side) -> SideRun:
    """Return a side that shares the model of the first one."""
    return replace(first, job=Grammars(first.grammars).ready(side.job))


def _refuse_vocabularies(first: SideRun, second: SideRun, name: str, other: str) -> None:
    """Raise ModelError for models with different vocabularies."""
    one, two = first.loaded.tokenizer, second.loaded.tokenizer
    found = first_difference(one, two)
    if found is not None or one.vocab_size != two.vocab_size:
        why = f"they have {one.vocab_size} and {two.vocab_size} tokens"
        if found is not None:
            why = f"token {found[0]} is {found[1]!r} and {found[2]!r}"
        raise ModelError(
            f"{name} and {other} have other vocabularies: {why}.", hint="Take models of one family."
        )


def compare_on_trace(
    path: str, b: Side, own: Mapping[str, Any], *, sink: Sink, voice: Stderr, has_model: bool
) -> int:
    """Compare on the kept logits of a trace, write the result, and return the exit code."""
    settings, job = b.settings, b.job
    tokenizer = None
    if has_model:
        trusted = settings["trust_remote_code"]
        tokenizer = load_tokenizer(settings["model"], trust_remote_code=trusted)
    other = Other(
        job.assembly.chain,
        draw=job.draw if settings.is_given("sampler") else None,
        stop_ids=job.stops.ids if settings.is_given("stop_id") else None,
        max_tokens=job.limits.max_tokens if settings.is_given("max_tokens") else None,
        registry=job.registry,
    )

    def found() -> Iterator[_Found]:
        for text in open_trace(path):
            known: TextOf = partial(token_text, tokenizer=tokenizer) if tokenizer else known_texts(text).get
            try:
                one = compare_trace(text, other, tokenizer)
            except ProcessorsError as error:
                hint = "" if tokenizer else "If it works on texts, `model` names a tokenizer."
                raise UsageError(f"B: {error}", hint=with_flags(hint)) from None
            yield one, known
            unnamed.update(place.b for place in one.places if place.b is not None and not known(place.b))

    unnamed = set[int]()
    draw = other.draw or "as the trace"
    head = {"trace": path, "a": None, "b": _side(b, str(job.chain), job.method if job.is_greedy else draw)}
    code = _write(found(), head, own, sink, voice)
    if unnamed and tokenizer is None:
        voice.notice("The trace has no text of some tokens; with `model` its tokenizer has.")
    return code


def _side(side: Side, chain: str, draw: str) -> dict[str, str]:
    return {"given": side.text, "chain": chain, "draw": draw}


def _write(
    found: Iterable[_Found], head: Mapping[str, Any], own: Mapping[str, Any], sink: Sink, voice: Stderr
) -> int:
    """Write each comparison when it is complete, and the totals; return the exit code."""
    page = None if own["html"] is None else Sink(own["html"])  # opened before any computation
    form, records, verdict = own["format"], list[dict[str, Any]](), Verdict(own["max_tv"])
    for one, text_of in found:
        record = comparison_record(one, text_of)
        if form == "text":
            sink.write(("" if verdict.texts else head_text(head)) + "\n" + comparison_text(record))
        elif form == "jsonl":
            sink.write(record_text({"kind": "text", **record}, form))
        else:
            records.append(record)
        verdict.add(one)
        if page is not None and verdict.texts > 1:
            raise UsageError("--html shows one text, and the trace has several.")
        if page is not None:
            with page:
                page.write(compared_page(one, head, text_of))
    if not verdict.texts:
        raise UsageError("The trace has no text.")
    sums = {**head, "texts": verdict.texts, "equal": verdict.equal, **summary_record(verdict.summary)}
    if form == "jsonl":
        sink.write(record_text({"kind": "summary", **sums}, form))
    elif form != "text":
        sink.write(record_text({"summary": sums, "texts": records}, form))
    elif verdict.texts > 1:
        sink.write(f"\n== {verdict.texts} texts, {verdict.equal} equal\n{summary_text(sums)}")
    for text in verdict.faults(is_equal=own["assert_equal"]):
        say_error(text)
    return verdict.code(is_equal=own["assert_equal"])
