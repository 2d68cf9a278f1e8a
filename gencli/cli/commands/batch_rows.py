"""What becomes of a row whose samples have ended: the record that `gencli run --format json` would write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from gencli.batch.loop import Ended, Judge
from gencli.batch.records import Outcome, Row
from gencli.batch.rows import kept_columns
from gencli.cli.report import RunInfo, record
from gencli.config.job import Job
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import ConfigError
from gencli.models.files.identity import ModelIdentity
from gencli.results import results
from gencli.runtime.job_grammars import Grammars
from processors.chain import Chain

__all__ = ["make_judge"]


def make_judge(
    engine: Engine, model: str, identity: ModelIdentity | None, grammars: Grammars, *, keep_input: bool
) -> Judge:
    """The function that turns ended samples into an outcome."""

    @lru_cache(maxsize=1024)
    def effective(chain: Chain, is_greedy: bool) -> Chain:
        return engine.effective(Request("", (), chain, draw="greedy" if is_greedy else "gumbel")).chain

    def judge(row: Row, job: Job, ends: Sequence[Ended]) -> Outcome:
        compiled = None
        with suppress(ConfigError):  # then it is why the row failed
            compiled = grammars.compiled(job)
        if compiled is not None:
            job = job.on(compiled.variant.constraint)
        is_partial = job.structure is None or job.structure.is_partial
        texts = [end.text for end in ends]
        line = results.Row(row.id, row.prompt or "", texts, list(ends), is_partial)
        info = RunInfo(model, effective(job.assembly.chain, job.is_greedy), job, compiled, identity)
        result = {**record(line, info), **_of_input(row, keep_input=keep_input)}
        is_error = any(results.failure(end) is not None for end in ends)
        return Outcome(row.record.index, row.id, result, is_error)

    return judge


def _of_input(row: Row, *, keep_input: bool) -> Mapping[str, Any]:
    """What the row itself adds to its result."""
    found: dict[str, Any] = {"prompt": row.prompt}
    if row.messages:
        found["messages"] = list(row.messages)
    if keep_input:
        found["input"] = kept_columns(row)
    return found
