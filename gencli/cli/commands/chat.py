"""`gencli chat`: check the command line, then load the model and talk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gencli.chat.chat_state import CHAT_OPTIONS, open_chat
from gencli.cli.fetching import fetch_models
from gencli.cli.follower import follow_leader
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page
from gencli.cli.terminal.interrupts import interrupts
from gencli.cli.terminal.stderr import Stderr
from gencli.cli.terminal.typeahead import type_ahead
from gencli.config.conflicts import refuse_quiet_scores
from gencli.config.job import notices
from gencli.runtime.machine import importing, quiet_libraries, set_wait

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
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


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Read and answer turns until the input ends. Return the exit code."""
    if (code := follow_leader(given)) is not None:
        return code
    chat = open_chat(given)
    voice = Stderr(is_quiet=chat.settings["quiet"])
    if fetch_models(chat.settings, chat.job.registry, voice):
        chat = open_chat(given)  # again, because the model's files set defaults
    settings = chat.settings
    refuse_quiet_scores(settings)
    for text in (*settings.notices(), *notices(chat.job, ())):
        voice.notice(text)
    if settings["log"]:
        voice.notice("The log keeps runs, and no chats; /save keeps a chat.")
    set_wait(settings["wait"], os.environ)  # before torch is imported
    with type_ahead(), interrupts() as handler, quiet_libraries(is_on=not settings["debug"]):
        with voice.starting(), importing():
            from gencli.cli.commands.talk import talk

        return talk(chat, voice=voice, handler=handler)
