"""The part of `gencli compare` that needs torch: run both sides, write what is found, judge it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from gencli.cli.explain.compare_verdict import Verdict
from gencli.cli.explain.compared import comparison_text, head_text, summary_text
from gencli.cli.explain.trace_source import open_trace
from gencli.cli.terminal.interrupts import Interrupts
from gencli.cli.terminal.records import record_text
from gencli.cli.terminal.render import Sink, say_error
from gencli.cli.terminal.stderr import Stderr
from gencli.config.sides import Side
from gencli.errors import UsageError
from gencli.explain.compare import Comparison
from gencli.explain.compare_record import TextOf, comparison_record, summary_record
from gencli.explain.compare_trace import Other, compare_trace, known_texts
from gencli.explain.record import TokenNames
from gencli.runtime.comparing import Comparing
from gencli.runtime.grammars import Grammars, grammar_env, make_compiler
from gencli.runtime.models import load_tokenizer
from gencli.runtime.wiring import load_model, make_engine

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
    """Load the model, compare, write the result, and return the exit code."""
    settings, is_chat = a.settings, a.job.is_chat
    rows = min(settings["max_batch"], 2 * len(prompts))
    with ExitStack() as stack:
        companions = a.job.guidance.is_on
        loaded, _ = load_model(settings, voice, companions=companions, rows=rows, is_chat=is_chat)
        compiler = make_compiler(grammar_env(loaded), settings["grammar_timeout"])
        stack.callback(compiler.close)
        grammars = Grammars(compiler)
        jobs = [grammars.ready(side.job) for side in (a, b)]
        engine = make_engine(loaded, settings, compiler, registry=a.job.registry)
        comparing = Comparing(engine, loaded, compiler, *jobs)
        names = TokenNames(loaded.tokenizer)
        handler.on_first = engine.interrupt
        sides = zip("ab", (a, b), jobs, strict=True)
        chains = {name: _side(side, str(job.chain), job.method) for name, side, job in sides}
        found = ((one, names.text) for one in comparing.run(prompts))
        code = _write(found, {"model": settings["model"], **chains, "seed": a.job.seed}, own, sink, voice)
        for text in engine.notices:
            voice.notice(text)
    return code


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
            known = TokenNames(tokenizer).text if tokenizer else known_texts(text).get
            one = compare_trace(text, other, tokenizer)
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
    """Write each comparison when it is complete, and the sums over all; return the exit code."""
    form, records, verdict = own["format"], list[dict[str, Any]](), Verdict(own["max_tv"])
    if form == "text":
        sink.write(head_text(head))
    for one, text_of in found:
        record = comparison_record(one, text_of)
        if form == "text":
            sink.write("\n" + comparison_text(record))
        elif form == "jsonl":
            sink.write(record_text({"kind": "text", **record}, form))
        else:
            records.append(record)
        verdict.add(one)
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
