"""`gencli score`: log-probabilities and perplexities of texts, pairs, choices and answers in files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gencli.batch.batch_plan import BatchPlan, gather_settings, make_plan
from gencli.cli.fetching import fetch_models
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page
from gencli.cli.terminal.interrupts import Interrupts, interrupts
from gencli.cli.terminal.render import Sink
from gencli.cli.terminal.stderr import Stderr
from gencli.config.environment import untraced
from gencli.config.settings import DEFAULT, FLAG, Settings
from gencli.errors import UsageError
from gencli.runtime.machine import importing, quiet_libraries, set_wait
from gencli.scoring.text_scores import CHAIN_KEYS, SCORE_OPTIONS, SCORE_OWN

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
    """\
Usage: gencli score [OPTIONS] [INPUT]...

Score texts under a model: log-probability, perplexity, bits per byte. Rows of
JSON Lines, JSON, CSV, TSV, Parquet or text, as of gencli batch, have `text`; or
`context` with `continuation` or `choices`; or `messages`, whose last one is
scored. Without a file it reads stdin:
    gencli score --model tiny texts.jsonl
""",
    SCORE_OPTIONS,
    "INPUT",
)


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Score the rows and return the exit code."""
    plan = make_plan(tuple(arguments), given, os.environ, SCORE_OWN)
    if plan["tokens"] is not None and plan["format"] == "text":
        raise UsageError("`tokens` has no place in lines of text.", hint="Set `format` = jsonl.")
    if plan["max_batch"] == "auto":
        raise UsageError("`max_batch` = auto plans for generated texts only.", hint="Give a number.")
    with (
        interrupts(signal.SIGINT, signal.SIGTERM) as handler,
        quiet_libraries(is_on="debug" not in given),
    ):
        return _run(plan, handler)


def _run(plan: BatchPlan, handler: Interrupts) -> int:
    settings = gather_settings(plan, untraced(os.environ))
    voice = Stderr(is_quiet=settings["quiet"])
    _check_chain(plan, settings)
    fetch_models(settings, None, voice)
    set_wait(settings["wait"], os.environ)  # before torch is imported
    with voice.starting(), importing():
        from gencli.batch.batch_setup import prepare
        from gencli.batch.run_batch import run_batch
        from gencli.cli.commands.batch_reporter import TerminalReporter
        from gencli.scoring.score_files import Scoring

    batch, sink = prepare(plan, settings, Scoring(plan, seed=settings["seed"] or 0)), Sink()
    if plan["tokens"] is not None and batch.output.format.name == "text":
        raise UsageError("`tokens` has no place in lines of text.", hint="Set `format` = jsonl.")
    reporter = TerminalReporter(sink, handler, is_quiet=settings["quiet"])
    for text in (*batch.input.notices, *settings.notices(), *_idle(plan, settings)):
        reporter.notice(text)
    return run_batch(batch, reporter, sink)


def _check_chain(plan: BatchPlan, settings: Settings) -> None:
    """Raise UsageError for chain flags, which scores of the model alone do not use."""
    if plan["mode"] == "processed":
        return
    for key in plan.given:
        # A preset may need a plug-in.
        if key in CHAIN_KEYS and not (key == "plugin" and "preset" in plan.given):
            raise UsageError(
                f"{settings.name(key)} is for scores under the chain, but these are of the model alone.",
                hint="Set `mode` = processed.",
            )


def _idle(plan: BatchPlan, settings: Settings) -> list[str]:
    """Return a notice about values, other than flags, that do not affect these scores."""
    is_raw = plan["mode"] == "raw"
    known = {entry.key for entry in SCORE_OPTIONS} - (CHAIN_KEYS if is_raw else set())
    idle = [key for key in settings if settings.origin(key) not in (FLAG, DEFAULT) and key not in known]
    stages = is_raw and any(layer.stages for layer in settings.layers)
    named = [settings.name(key) for key in idle] + (["the stages of presets"] if stages else [])
    return [f"Scores do not use {', '.join(named)}."] if named else []
