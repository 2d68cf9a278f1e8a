"""Sources of explained texts: prompts, the logits of a trace, a file of logits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from gencli.cli.commands.generate import head_of, trace_writer
from gencli.cli.commands.run import begin, carry_out
from gencli.cli.inputs import read_prompts
from gencli.cli.render import say_notice
from gencli.cli.stderr import Stderr
from gencli.cli.token_views import lesson_page
from gencli.cli.trace_views import RUN_KEYS
from gencli.config.job import Job, make_job
from gencli.config.job_parts import wanted_template
from gencli.config.layers import gather
from gencli.config.settings import Settings
from gencli.core.events import Event, Token
from gencli.errors import GenerationError, UsageError
from gencli.explain.token_record import token_record
from gencli.explain.trace_file import TracedText, TraceWriter, read_trace
from gencli.helpers import counted
from gencli.runtime.machine import importing, quiet_libraries
from processors.catalog import Draw
from processors.chain import Chain
from processors.params import MOST

if TYPE_CHECKING:
    from gencli.explain.replay import Replay, Seeker
    from gencli.results.run_record import RunInfo
    from gencli.results.run_results import Results


ExplainedTexts = tuple[list[TracedText], "Seeker | None"]


def settings_of(flags: Mapping[str, Any], **more: Any) -> tuple[Settings, Job]:
    """Return the settings and the job of the run options among the given ones."""
    kept = {key: value for key, value in flags.items() if key in RUN_KEYS}
    settings = gather({**kept, **more}, os.environ)
    return settings, make_job(settings)


def lesson(flags: Mapping[str, Any]) -> str:
    """Return the page of what the chain of the given options does to twelve words."""
    settings, job = settings_of(flags)
    with quiet_libraries(is_on=not settings["debug"]), importing():
        from gencli.explain.lesson import TEXT, WORDS, make_lesson

    shown = make_lesson(job.assembly.chain, job.draw, settings["seed"] or 0, job.registry)
    return lesson_page(shown, TEXT, list(WORDS))


class _Watcher:
    """Writes a run's trace without logits, after using them to look for a named token."""

    def __init__(self, writer: TraceWriter, seeker: Seeker | None, results: Results, info: RunInfo) -> None:
        self._writer, self._seeker, self._head = writer, seeker, cache(head_of(results, info, {}))

    def add(self, event: Event) -> None:
        if isinstance(event, Token) and self._seeker is not None:
            key = event.request, event.sample
            for view in event.views:
                assert view.kept is not None
                self._seeker.add(key, self._head(*key), view.token, view.kept)
            event = replace(event, views=tuple(replace(view, kept=None) for view in event.views))
        self._writer.add(event)

    def close(self) -> None:
        self._writer.close()


def of_prompts(arguments: Sequence[str], flags: Mapping[str, Any], why: str | None) -> ExplainedTexts:
    """Run the prompts with the given options and return their traces. Raises GenerationError if one fails."""
    keep = {} if why is None else {"keep_logits": str(MOST)}
    more = {"trace": os.devnull, "output": os.devnull, **keep}
    settings, job = settings_of(flags, **more)
    if why is not None and job.structure is not None and job.structure.retries:
        raise UsageError("--why and --retries do not go together.", hint="Leave one of them out.")
    source = read_prompts(arguments, settings["file"], wanted_template(settings), command="explain")
    stderr = Stderr(is_quiet=settings["quiet"])
    run_given = {key: value for key, value in flags.items() if key in RUN_KEYS} | more
    job, settings = begin(job, settings, source, run_given, stderr)
    lines, seekers = list[str](), list["Seeker"]()

    def watch(results: Results, info: RunInfo) -> _Watcher:
        if why is not None:
            assert info.tokenizer is not None
            seekers.append(_seeker(why, info.tokenizer, info.chain, info.job.resolved[1], job))
        writer = trace_writer(lines.append, settings, results, info)
        return _Watcher(writer, next(iter(seekers), None), results, info)

    code = carry_out(job, source.texts, settings, stderr, [watch])
    texts = read_trace(lines)
    if code and not any(text.records for text in texts):
        raise GenerationError("There is no text to explain.")
    return texts, next(iter(seekers), None)


def _seeker(why: str, tokenizer: Any, chain: Chain, draw: Draw, job: Job) -> Seeker:
    from gencli.explain.replay import Seeker, find_token

    named, notice = find_token(why, tokenizer)
    if notice:
        say_notice(notice)
    return Seeker(named, tokenizer, chain, draw, job.registry, job.trace or 5)


def of_trace(
    texts: Sequence[TracedText], flags: Mapping[str, Any], why: str | None, *, is_replay: bool
) -> ExplainedTexts:
    """Look for a token in the texts of a trace, by its kept logits.

    With `is_replay` the chain of the given options replaces the texts' own chain: the records describe its
    choice at each position.
    """
    if len({text.head["model"] for text in texts}) > 1:
        raise UsageError("The texts of the trace are of several models.", hint="Choose one with --run.")
    model = str(texts[0].head["model"])
    with quiet_libraries(), importing():
        from gencli.explain.replay import chain_of, kept_of, replay_of
        from gencli.runtime.model_loading import load_tokenizer

        settings, job = settings_of(flags, model=model)
        tokenizer = load_tokenizer(model, trust_remote_code=settings["trust_remote_code"])
    seeker, explained, different, doubtful, total = None, [], 0, 0, 0
    for text in texts:
        chain, draw = (job.assembly.chain, job.draw) if is_replay else chain_of(text.head, job.registry)
        if why is not None and seeker is None:
            seeker = _seeker(why, tokenizer, chain, draw, job)
        replay: Replay | None = None
        records = []
        for record, kept in kept_of(text):
            if seeker is not None:
                seeker.add(text.key, text.head, record["id"], kept)
            if not is_replay:
                continue
            replay = replay or replay_of(text.head, kept, tokenizer, chain, draw, job.registry)
            look = replay.look(kept)
            view = replay.explain(kept, look.token, count=settings["trace_top"])
            replay.commit(record["id"])
            run, sample = text.key
            total, doubtful = total + 1, doubtful + (not look.is_exact)
            different += look.token != record["id"]
            records.append(token_record(view, tokenizer, run=run, sample=sample, position=record["pos"]))
        explained.append(replace(text, records=tuple(records)) if is_replay else text)
    if is_replay:
        say_notice(
            f"The chain would choose another token at {different} of {counted(total, 'place')}"
            + (f"; at {doubtful} the kept logits do not decide it." if doubtful else ".")
        )
    return explained, seeker


def of_logits(name: str, flags: Mapping[str, Any], values: Mapping[str, Any]) -> ExplainedTexts:
    """Run the chain of the given options on the rows of a file, and return its text."""
    with quiet_libraries(), importing():
        from gencli.explain.logits_file import read_logits
        from gencli.explain.replay import replay_of
        from gencli.explain.token_record import ListVocabulary
        from gencli.runtime.model_loading import load_tokenizer
        from processors.explain_rows import KeptLogits
        from processors.rng import derive

        settings, job = settings_of(flags)
        rows = read_logits(name, values["tensor"])
        has_names = settings.is_given("model")
        tokenizer: Any = ListVocabulary.numbered(rows.shape[1])
        if has_names:
            trusted = settings["trust_remote_code"]
            tokenizer = load_tokenizer(settings["model"], trust_remote_code=trusted)
    try:
        ids = [int(part) for part in values["tokens"].split(",")] if values["tokens"] is not None else []
    except ValueError:
        message = f"--tokens is {values['tokens'][:40]!r}, which is not a list of ids."
        raise UsageError(message, hint="Write 12,7,3.") from None
    count, vocab = rows.shape
    if values["tokens"] is not None and not (len(ids) == count and all(0 <= token < vocab for token in ids)):
        given, rows_read = counted(len(ids), "id"), counted(count, "row")
        raise UsageError(f"--tokens has {given}; the file has {rows_read} of {vocab} logits.")
    chain, seed = job.assembly.chain, derive(derive(job.seed, 0), 0)
    seeker = None if values["why"] is None else _seeker(values["why"], tokenizer, chain, job.draw, job)
    head = {"run": name, "sample": 0, "model": settings["model"] if has_names else "", "prompt": ""}
    records, replay = [], None
    for position, row in enumerate(rows):
        kept = KeptLogits.of(row, len(row), seed)
        replay = replay or replay_of(head, kept, tokenizer, chain, job.draw, job.registry)
        token = ids[position] if ids else replay.look(kept).token
        if token < 0:
            raise GenerationError(f"The chain leaves no token at row {position}.")
        if seeker is not None:
            seeker.add((name, 0), head, token, kept)
        view = replay.explain(kept, token, count=settings["trace_top"])
        replay.commit(token)
        records.append(token_record(view, tokenizer, run=name, sample=0, position=position))
    return [TracedText(head, tuple(records), "length")], seeker
