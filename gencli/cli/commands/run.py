"""`gencli run`, `gencli chat` and `gencli score`: check the command line, turn it into a job, and load the
model only then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from gencli.batch.batch_options import SCORE_OPTIONS, SCORE_OWN
from gencli.batch.batch_plan import BatchPlan, gather_settings, make_plan
from gencli.chat.chat_state import CHAT_OPTIONS, open_chat
from gencli.cli.commands.setting_views import chain_rows, chain_table, follow_leader
from gencli.cli.fetching import fetch_models
from gencli.cli.inputs import Prompts, read_prompts, type_ahead
from gencli.cli.render import Sink, is_terminal
from gencli.cli.stderr import Interrupts, Stderr, interrupts, running
from gencli.cli.usage import RUN, Page, with_format
from gencli.config.conflicts import refuse_quiet_scores, refuse_unwritten_ids, search_notices
from gencli.config.job import Job, encode_prompt, make_job, notices
from gencli.config.job_parts import wanted_template
from gencli.config.layers import gather, has_idle_template
from gencli.config.result_formats import FORMATS, format_of
from gencli.config.settings import CHAT_DEFAULT, DEFAULT, FLAG, Settings, untraced
from gencli.errors import UsageError
from gencli.runtime.machine import importing, quiet_libraries, set_wait
from gencli.scoring.text_scores import CHAIN_KEYS
from gencli.structured.output_spec import DOCUMENTS

if TYPE_CHECKING:
    from gencli.cli.commands.generate import WriterFactory

PAGE = RUN


def run(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Run the command with the given flags and return the exit code."""
    if (code := follow_leader(flags)) is not None:
        return code
    is_shown = is_terminal(sys.stdout) and "output" not in flags  # a person reads the text
    settings = gather(flags, os.environ, applies_template=is_shown)
    is_document = any(settings[kind] for kind in (*DOCUMENTS, "tools"))  # which is JSON as it is
    formatted = with_format(flags)
    if formatted is not flags and not settings.is_given("format") and not is_document:
        flags = formatted
        settings = gather(flags, os.environ, settings.registry, applies_template=is_shown)
    job = make_job(settings)
    refuse_quiet_scores(settings)
    refuse_unwritten_ids(settings)
    form = format_of(settings)
    if settings["show_chain"]:
        form = FORMATS["json"] if form.is_lines else form
        with Sink(settings["output"]) as sink:
            sink.write(chain_table(job) if form.is_text else form.encode(chain_rows(job)))
        return 0
    source = read_prompts(arguments, settings["file"], wanted_template(settings))
    stderr = Stderr(is_quiet=settings["quiet"])
    if settings["show_prompt"]:
        stderr.notice(*settings.notices(), *source.notices)
        with Sink(settings["output"]) as sink, quiet_libraries(is_on=not settings["debug"]):
            from gencli.cli.result_writers import show_prompts
            from gencli.runtime.model_loading import load_tokenizer

            tokenizer = load_tokenizer(settings["model"], trust_remote_code=settings["trust_remote_code"])
            all_ids = [encode_prompt(job, prompt, tokenizer) for prompt in source.texts]
            show_prompts(source.texts, all_ids, tokenizer, form, sink)
        return 0
    job, settings = begin(job, settings, source, flags, stderr, applies_template=is_shown)
    beside: list[WriterFactory] = []
    if settings["log"]:
        from gencli.cli.commands.generate import LogWriter

        beside.append(partial(LogWriter, settings, stderr))
    with ExitStack() as stack:
        if settings["trace"] is not None:
            from gencli.cli.commands.generate import trace_writer

            beside.append(partial(trace_writer, stack.enter_context(Sink(settings["trace"])).write, settings))
        return carry_out(job, source.texts, settings, stderr, beside)


def begin(
    job: Job,
    settings: Settings,
    source: Prompts,
    flags: Mapping[str, Any],
    stderr: Stderr,
    *,
    applies_template: bool = False,
) -> tuple[Job, Settings]:
    """Fetch missing models and print the notices. Return job and settings, which may change by that.

    `applies_template`: as in `gather`.
    """
    if fetch_models(settings, job.registry, stderr):
        # Again, because the model's files set defaults.
        settings = gather(flags, os.environ, applies_template=applies_template)
        job = make_job(settings)
    stderr.notice(*settings.notices(), *source.notices, *notices(job, source.texts))
    names = job.untold_tools
    if names and not all(any(name in prompt for name in names) for prompt in source.texts):
        stderr.notice(
            "The prompt does not name the tools, so the model does not know them; --chat describes them."
        )
    stderr.notice(*search_notices(settings))
    if settings.origin("chat") == CHAT_DEFAULT:
        stderr.notice("The model's chat template is applied; --raw takes the prompt as it is.")
    elif has_idle_template(settings):
        stderr.notice(
            "The model has a chat template, which --chat applies; --raw says that the prompt is complete."
        )
    return job, settings


def carry_out(
    job: Job, prompts: Sequence[str], settings: Settings, stderr: Stderr, beside: Sequence[WriterFactory] = ()
) -> int:
    """Load the model, generate, and return the exit code. `beside`: as in `generate`."""
    with Sink(settings["output"]) as sink, running(settings) as handler:
        with stderr.starting(), importing():
            from gencli.cli.commands.generate import generate

        return generate(job, prompts, settings, sink=sink, stderr=stderr, handler=handler, beside=beside)


CHAT_PAGE = Page(
    """\
Usage: gencli chat [OPTIONS]

Talk with a model. On a terminal, /help lists the commands, Ctrl-C stops an
answer and keeps its beginning, Ctrl-D leaves. A pipe is read turn by turn, one
a line, commands included, and stdout gets the answers:
    printf 'Hello!\\nWho are you?\\n' | gencli chat
""",
    CHAT_OPTIONS,
    everyday=tuple(
        "model system preset temperature top_p top_k min_p repetition_penalty seed max_tokens stop tools "
        "regex json_schema".split()
    ),
    examples=(
        "gencli chat -m model.gguf",
        'gencli chat -m model.gguf --system "Answer in one sentence." --temperature 0.7',
        "gencli chat --preset creative",
    ),
)


def run_chat(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Read and answer turns until the input ends. Return the exit code."""
    if (code := follow_leader(flags)) is not None:
        return code
    chat = open_chat(flags)
    stderr = Stderr(is_quiet=chat.settings["quiet"])
    if fetch_models(chat.settings, chat.job.registry, stderr):
        chat = open_chat(flags)  # again, because the model's files set defaults
    settings = chat.settings
    refuse_quiet_scores(settings)
    stderr.notice(*settings.notices(), *notices(chat.job, ()))
    if settings["log"]:
        stderr.notice("The log stores runs, not chats; /save stores a chat.")
    with type_ahead(), running(settings) as handler:
        with stderr.starting(), importing():
            from gencli.cli.commands.talk import talk

        return talk(chat, stderr=stderr, handler=handler)


SCORE_PAGE = Page(
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


def run_score(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Score the rows and return the exit code."""
    plan = make_plan(tuple(arguments), flags, os.environ, SCORE_OWN)
    if plan["max_batch"] == "auto":
        raise UsageError("`max_batch` = auto plans for generated texts only.", hint="Give a number.")
    with interrupts(signal.SIGINT, signal.SIGTERM) as handler, quiet_libraries(is_on="debug" not in flags):
        return _run(plan, handler)


def _run(plan: BatchPlan, handler: Interrupts) -> int:
    settings = gather_settings(plan, untraced(os.environ))
    stderr, is_raw = Stderr(is_quiet=settings["quiet"]), plan["mode"] == "raw"
    if plan["mode"] != "processed":
        for key in plan.given:
            # A preset may need a plug-in.
            if key in CHAIN_KEYS and not (key == "plugin" and "preset" in plan.given):
                raise UsageError(
                    f"{settings.name(key)} is for scores under the chain, but these are of the model alone.",
                    hint="Set `mode` = processed.",
                )
    fetch_models(settings, None, stderr)
    set_wait(settings["wait"], os.environ)  # before torch is imported
    with stderr.starting(), importing():
        from gencli.batch.batch_setup import prepare
        from gencli.batch.run_batch import run_batch
        from gencli.batch.score_files import ScoreWork
        from gencli.cli.stderr import TerminalReporter

    batch, sink = prepare(plan, settings, ScoreWork(plan, seed=settings["seed"] or 0)), Sink()
    if plan["tokens"] is not None and not batch.output.format.has_fields:
        raise UsageError("`tokens` cannot be written as lines of text.", hint="Set `format` = jsonl.")
    reporter = TerminalReporter(sink, handler, is_quiet=settings["quiet"])
    reporter.notice(*batch.input.notices, *settings.notices())
    # Values, other than flags, that do not affect these scores.
    used = {entry.key for entry in SCORE_OPTIONS} - (CHAIN_KEYS if is_raw else set())
    idle = [
        settings.name(key)
        for key in settings
        if settings.origin(key) not in (FLAG, DEFAULT) and key not in used
    ]
    if is_raw and any(layer.stages for layer in settings.layers):
        idle.append("the stages of presets")
    if idle:
        reporter.notice(f"Scores do not use {', '.join(idle)}.")
    return run_batch(batch, reporter, sink)
