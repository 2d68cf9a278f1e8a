"""`gencli run`: check the command line, turn it into a job, and run the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gencli.cli.commands.chain_view import chain_rows, chain_table
from gencli.cli.fetching import fetch_models
from gencli.cli.follower import follow_leader
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import with_format
from gencli.cli.parser.prompts import Prompts, read_prompts
from gencli.cli.terminal.interrupts import interrupts
from gencli.cli.terminal.records import record_text
from gencli.cli.terminal.render import Sink, is_terminal
from gencli.cli.terminal.stderr import Stderr
from gencli.config.chat_defaults import has_idle_template
from gencli.config.conflicts import refuse_quiet_scores, refuse_unwritten_ids
from gencli.config.job import Job, make_job, notices
from gencli.config.layers import gather
from gencli.config.requests import encode_prompt
from gencli.config.search_conflicts import search_notices
from gencli.config.settings import CHAT_DEFAULT, Settings
from gencli.runtime.machine import importing, quiet_libraries, set_wait
from gencli.structured.output_spec import DOCUMENTS
from gencli.templates.prompt_templates import wanted_template

if TYPE_CHECKING:
    from gencli.cli.commands.generate import Beside

__all__ = ["begin", "carry_out", "command", "run"]


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Run the command with the given flags and return the exit code."""
    if (code := follow_leader(given)) is not None:
        return code
    is_shown = is_terminal(sys.stdout) and "output" not in given  # a person reads the text
    settings = gather(given, os.environ, applies_template=is_shown)
    is_document = any(settings[kind] for kind in (*DOCUMENTS, "tools"))  # which is JSON as it is
    formatted = with_format(given, ("json", "jsonl", "yaml"))
    if formatted is not given and not settings.is_given("format") and not is_document:
        given = formatted
        settings = gather(given, os.environ, settings.registry, applies_template=is_shown)
    job = make_job(settings)
    refuse_quiet_scores(settings)
    refuse_unwritten_ids(settings)
    if settings["show_chain"]:
        return _show_chain(job, settings)
    source = read_prompts(arguments, settings["file"], wanted_template(settings))
    prompts = source.texts
    voice = Stderr(is_quiet=settings["quiet"])
    if settings["show_prompt"]:
        return _show_prompts(job, source, settings, voice)
    job, settings = begin(job, settings, source, given, voice, applies_template=is_shown)
    beside: list[Beside] = []
    if settings["log"]:
        from gencli.cli.logged import keep  # imports the database, which other runs do not need

        beside.append(keep(settings, voice))
    with ExitStack() as stack:
        if settings["trace"] is not None:
            from gencli.cli.explain.traced import trace_to

            beside.append(trace_to(stack.enter_context(Sink(settings["trace"])).write, settings))
        return carry_out(job, prompts, settings, voice, beside)


def begin(
    job: Job,
    settings: Settings,
    source: Prompts,
    given: Mapping[str, Any],
    voice: Stderr,
    *,
    applies_template: bool = False,
) -> tuple[Job, Settings]:
    """Fetch missing models and print the notices. Return job and settings, which may change by that.

    `applies_template`: as in `gather`.
    """
    if fetch_models(settings, job.registry, voice):
        # Again, because the model's files set defaults.
        settings = gather(given, os.environ, applies_template=applies_template)
        job = make_job(settings)
    prompts = source.texts
    texts = (*settings.notices(), *source.notices, *notices(job, prompts), *_tool_notices(job, prompts))
    for text in (*texts, *search_notices(settings), *_template_notices(settings)):
        voice.notice(text)
    return job, settings


def carry_out(
    job: Job, prompts: Sequence[str], settings: Settings, voice: Stderr, beside: Sequence[Beside] = ()
) -> int:
    """Load the model, generate, and return the exit code. `beside`: as in `generate`."""
    set_wait(settings["wait"], os.environ)  # before torch is imported
    # Importing torch and all later steps can be interrupted, and libraries print warnings.
    with (
        Sink(settings["output"]) as sink,
        interrupts() as handler,
        quiet_libraries(is_on=not settings["debug"]),
    ):
        with voice.starting(), importing():
            from gencli.cli.commands.generate import generate

        return generate(job, prompts, settings, sink=sink, voice=voice, handler=handler, beside=beside)


def _template_notices(settings: Settings) -> Iterator[str]:
    if settings.origin("chat") == CHAT_DEFAULT:
        yield "The model's chat template is applied; --raw takes the prompt as it is."
    elif has_idle_template(settings):
        yield "The model has a chat template, which --chat applies; --raw says that the prompt is complete."


def _tool_notices(job: Job, prompts: Sequence[str]) -> Iterator[str]:
    names = job.untold_tools
    if names and not all(any(name in prompt for name in names) for prompt in prompts):
        yield "The prompt does not name the tools, so the model does not know of them; --chat tells it."


def _show_prompts(job: Job, prompts: Prompts, settings: Settings, voice: Stderr) -> int:
    for text in (*settings.notices(), *prompts.notices):
        voice.notice(text)
    with Sink(settings["output"]) as sink, quiet_libraries(is_on=not settings["debug"]):
        from gencli.cli.commands.prompt_view import show_prompts
        from gencli.runtime.model_loading import load_tokenizer

        tokenizer = load_tokenizer(settings["model"], trust_remote_code=settings["trust_remote_code"])
        all_ids = [encode_prompt(job, prompt, tokenizer) for prompt in prompts.texts]
        show_prompts(prompts.texts, all_ids, tokenizer, settings["format"], sink)
    return 0


def _show_chain(job: Job, settings: Settings) -> int:
    with Sink(settings["output"]) as sink:
        form = "json" if settings["format"] == "jsonl" else settings["format"]
        sink.write(chain_table(job) if form == "text" else record_text(chain_rows(job), form))
    return 0
