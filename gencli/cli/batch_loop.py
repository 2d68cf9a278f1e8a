"""The model of a batch and the loop on it: in this process, or in a worker's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from gencli.batch.grammars import Grammars
from gencli.batch.loop import Loop
from gencli.batch.overrides import RowJobs
from gencli.beams.engine import ChoosingEngine
from gencli.cli.batch_rows import make_judge
from gencli.cli.generate import load_model, model_choice, model_identity
from gencli.cli.render import Voice
from gencli.drafters.make import make_drafter
from gencli.guidance.amateur import load_amateurs
from gencli.settings import Settings
from gencli.structured.compiling import grammar_env, make_compiler

__all__ = ["open_loop"]

_AHEAD = 4  # times the samples that run at once are in the engine


@contextmanager
def open_loop(
    jobs: RowJobs, settings: Settings, *, is_chat: bool, are_guided: bool, keep_input: bool, voice: Voice
) -> Iterator[Loop]:
    """The model, and the loop that runs rows on it in this process.

    `is_chat` says that all rows need the chat template, `are_guided` that some may be guided.
    """
    loaded, _ = load_model(settings, voice, companions=are_guided, has_company=True, is_chat=is_chat)
    with closing(make_compiler(grammar_env(loaded), settings["grammar_timeout"])) as compiler:
        engine = ChoosingEngine(
            loaded.runner,
            loaded.tokenizer,
            max_batch=settings["max_batch"],
            registry=jobs.base.registry,
            drafter=make_drafter(
                settings["draft"], loaded, model_choice(settings), registry=jobs.base.registry
            ),
            grammars=compiler,
            amateurs=load_amateurs(settings["contrast"], loaded, model_choice(settings)),
        )
        grammars = Grammars(compiler)
        identity = model_identity(settings, voice)
        judge = make_judge(engine, settings["model"], identity, grammars, keep_input=keep_input)
        yield Loop(engine, loaded.tokenizer, jobs, grammars, judge, ahead=_AHEAD * engine.limit)
