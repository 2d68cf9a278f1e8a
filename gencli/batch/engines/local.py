"""Rows on a model in this process: the loop over its engine, and the record of a finished row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import Any

from gencli.batch.loop import Ended, Judge, Loop, Tokens
from gencli.batch.records import Outcome, Row
from gencli.batch.rows import kept_columns
from gencli.batch.trace import row_trace
from gencli.config.job import Job
from gencli.config.jobs import Jobs
from gencli.config.settings import Settings
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import ConfigError
from gencli.models.files.checkpoint import ModelIdentity
from gencli.results import results
from gencli.results.record import RunInfo, record
from gencli.runtime.grammars import Grammars, grammar_env, make_compiler
from gencli.runtime.reporter import Reporter
from gencli.runtime.wiring import load_model, make_engine, model_identity
from gencli.text.tokenizer import Tokenizer
from processors.chain import Chain

__all__ = ["open_loop"]

_AHEAD = 4  # samples in the engine, as a multiple of those that run at once


@contextmanager
def open_loop(
    jobs: Jobs, settings: Settings, *, is_chat: bool, are_guided: bool, keep_input: bool, reporter: Reporter
) -> Iterator[Loop]:
    """Load the model; the context's value is the loop that runs rows on it.

    `is_chat`: all rows need the chat template. `are_guided`: some rows may be guided.
    """
    rows = settings["max_batch"] * jobs.base.rows_each
    loaded, _ = load_model(settings, reporter, companions=are_guided, rows=max(2, rows), is_chat=is_chat)
    with closing(make_compiler(grammar_env(loaded), settings["grammar_timeout"])) as compiler:
        engine = make_engine(loaded, settings, compiler, registry=jobs.base.registry)
        grammars = Grammars(compiler)
        identity = model_identity(settings, reporter)
        judge = _make_judge(
            engine, settings["model"], identity, grammars, loaded.tokenizer, keep_input=keep_input
        )
        ahead = _AHEAD * engine.limit
        yield Loop(engine, loaded.tokenizer, jobs, grammars, judge, ahead=ahead, notice=reporter.notice)


def _make_judge(
    engine: Engine,
    model: str,
    identity: ModelIdentity | None,
    grammars: Grammars,
    tokenizer: Tokenizer,
    *,
    keep_input: bool,
) -> Judge:
    """Return the function that makes a row's outcome from its finished samples."""

    @lru_cache(maxsize=1024)
    def effective(chain: Chain, is_greedy: bool) -> Chain:
        return engine.effective(Request("", (), chain, draw="greedy" if is_greedy else "gumbel")).chain

    def judge(row: Row, job: Job, ends: Sequence[Ended], tokens: Tokens) -> Outcome:
        compiled = None
        with suppress(ConfigError):  # the row has failed with this error, which `ends` contains
            compiled = grammars.compiled(job)
        if compiled is not None:
            job = job.on(compiled.variant.constraint)
        is_partial = job.structure is None or job.structure.is_partial
        texts = [end.text for end in ends]
        line = results.Row(
            row.id,
            row.prompt or "",
            texts,
            list(ends),
            is_partial,
            scores=tokens.scores,
            ids=tokens.ids,
            prompt_ids=tokens.prompt_ids,
        )
        chain = effective(job.assembly.chain, job.is_greedy)
        info = RunInfo(model, chain, job, compiled, identity, tokenizer, engine.eos_ids)
        result = {**record(line, info), **_of_input(row, keep_input=keep_input)}
        is_error = any(results.failure(end) is not None for end in ends)
        trace = row_trace(row, info, ends, tokens.views, tokens.prompt_ids)
        return Outcome(row.record.index, row.id, result, is_error, trace=trace)

    return judge


def _of_input(row: Row, *, keep_input: bool) -> Mapping[str, Any]:
    """Return the fields of a result copied from the row: prompt, messages, kept columns."""
    found: dict[str, Any] = {"prompt": row.prompt}
    if row.messages:
        found["messages"] = list(row.messages)
    if keep_input:
        found["input"] = kept_columns(row)
    return found
