"""`gencli batch`: check the command line, then generate a text for each row of files."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from gencli.batch.batch_options import BATCH_OPTIONS
from gencli.batch.batch_plan import BatchPlan, gather_settings, make_plan
from gencli.cli.commands.setting_views import follow_leader
from gencli.cli.render import Sink
from gencli.cli.stderr import Interrupts, Stderr, interrupts
from gencli.cli.usage import Page
from gencli.runtime.machine import importing, quiet_libraries, set_wait

PAGE = Page(
    """\
Usage: gencli batch [OPTIONS] [INPUT]...

Generate a text for each row of files: JSON Lines, JSON, CSV, TSV, Parquet, text;
also .gz, .zst, folders, patterns, URLs, and - for stdin. Every finished row is
safe in OUTPUT.journal; --resume continues an interrupted run:
    gencli batch prompts.jsonl -o out.jsonl --resume
""",
    BATCH_OPTIONS,
    "INPUT",
    everyday=tuple(
        "output resume prompt_column template model chat preset json_schema temperature max_tokens seed n "
        "max_batch limit dry_run".split()
    ),
    examples=(
        "gencli batch prompts.jsonl -o out.jsonl --max-tokens 100",
        'gencli batch people.csv --template "Where does {{ name }} live?" -o out.parquet',
        'gencli batch texts.txt --json-schema "name, age int" -o out.jsonl --dry-run',
    ),
)


def run(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Run the batch and return the exit code."""
    if (code := follow_leader(flags)) is not None:
        return code
    plan = make_plan(tuple(arguments), flags, os.environ)
    with interrupts(signal.SIGINT, signal.SIGTERM) as handler, quiet_libraries(is_on="debug" not in flags):
        return _run(plan, handler)


def _run(plan: BatchPlan, handler: Interrupts) -> int:
    settings = gather_settings(plan, os.environ)
    set_wait(settings["wait"], os.environ)  # before torch is imported
    with Stderr(is_quiet="quiet" in plan.given).starting(), importing():
        from gencli.batch.batch_setup import prepare
        from gencli.batch.run_batch import Generation, run_batch
        from gencli.cli.experiment_runs import preview
        from gencli.cli.stderr import TerminalReporter
        from gencli.config.job import notices

    batch, sink = prepare(plan, settings, Generation()), Sink()
    reporter = TerminalReporter(sink, handler, is_quiet=batch.settings["quiet"])
    reporter.notice(*batch.input.notices, *batch.settings.notices())
    reporter.notice(*(batch.documents.notices if batch.documents else ()))
    if batch.settings["log"]:
        reporter.notice("The log stores runs, not batches; a batch has its journal.")
    reporter.notice(*notices(batch.jobs.base, (), has_rows=True))
    return preview(batch, sink) if plan["dry_run"] else run_batch(batch, reporter, sink)
