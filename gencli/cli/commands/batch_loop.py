"""The model of a batch and the loop on it: in this process, or in a worker's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from gencli.batch.loop import Loop
from gencli.cli.commands.batch_rows import make_judge
from gencli.cli.commands.generate import load_model, model_identity
from gencli.cli.terminal.render import Stderr
from gencli.config.jobs import Jobs
from gencli.config.settings import Settings
from gencli.runtime.grammars import grammar_env, make_compiler
from gencli.runtime.job_grammars import Grammars
from gencli.runtime.wiring import make_engine

__all__ = ["open_loop"]

_AHEAD = 4  # times the samples that run at once are in the engine


@contextmanager
def open_loop(
    jobs: Jobs, settings: Settings, *, is_chat: bool, are_guided: bool, keep_input: bool, voice: Stderr
) -> Iterator[Loop]:
    """The model, and the loop that runs rows on it in this process.

    `is_chat` says that all rows need the chat template, `are_guided` that some may be guided.
    """
    loaded, _ = load_model(settings, voice, companions=are_guided, has_company=True, is_chat=is_chat)
    with closing(make_compiler(grammar_env(loaded), settings["grammar_timeout"])) as compiler:
        engine = make_engine(loaded, settings, compiler, registry=jobs.base.registry)
        grammars = Grammars(compiler)
        identity = model_identity(settings, voice)
        judge = make_judge(engine, settings["model"], identity, grammars, keep_input=keep_input)
        yield Loop(engine, loaded.tokenizer, jobs, grammars, judge, ahead=_AHEAD * engine.limit)
