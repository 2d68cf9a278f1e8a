"""The part of `gencli chat` that needs torch: turn after turn on one engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from gencli.chat.commands import CommandContext, run_command, same_again
from gencli.chat.complete import complete
from gencli.chat.conversation import draw_seed, prompt_ids
from gencli.chat.state import Chat
from gencli.cli.commands.chain_view import chain_table
from gencli.cli.commands.generate import load_model
from gencli.cli.commands.turns import Reader, open_reader
from gencli.cli.flags import with_flags
from gencli.cli.terminal.display import reading_line
from gencli.cli.terminal.interrupts import Interrupts
from gencli.cli.terminal.render import Sink, Stderr, prompt, say, say_error
from gencli.cli.terminal.writers import Writer
from gencli.config.job import Job, make_request, notices
from gencli.core.events import Error, Finish, Reading, Token
from gencli.engine.engine import Engine
from gencli.errors import GencliError, GenerationError
from gencli.results.results import failure
from gencli.runtime.contrast import load_amateurs
from gencli.runtime.drafters import make_drafter
from gencli.runtime.grammars import compile_plan, grammar_env, make_compiler
from gencli.runtime.models import Loaded
from gencli.runtime.wiring import make_engine, model_choice
from gencli.structured.output_spec import OutputSpec
from gencli.structured.validate.thinking import Pieces, ThinkingSplitter
from gencli.structured.validate.verdict import OutputValidator
from processors.errors import ProcessorsError

__all__ = ["talk"]


def talk(chat: Chat, *, voice: Stderr, handler: Interrupts) -> int:
    """Read turns and answer them; the exit code."""
    loaded, _ = load_model(
        chat.settings,
        voice,
        companions=True,
        has_company=chat.job.is_drafted,
        is_chat=not chat.settings["raw"],
    )
    with ExitStack() as stack:
        sink = stack.enter_context(Sink())
        shown = [reading_line(sink, stack)] if voice.has_drawing else []
        talker = _Talker(chat, loaded, sink=sink, shown=shown, voice=voice, handler=handler)
        reader = open_reader(talker.offer)
        if reader.is_live:
            voice.say(f"{chat.settings['model']}, seed {chat.conversation.seed}. /help lists the commands.")
        return talker.follow(reader)


class _Talker:
    """The chat as it stands, and the engine that keeps what it has read."""

    def __init__(
        self,
        chat: Chat,
        loaded: Loaded,
        *,
        sink: Sink,
        shown: Sequence[Writer],
        voice: Stderr,
        handler: Interrupts,
    ) -> None:
        self._chat, self._loaded, self._shown = chat, loaded, shown
        self._sink, self._voice, self._handler = sink, voice, handler
        self._compiler = make_compiler(grammar_env(loaded), chat.settings["grammar_timeout"])
        # What drafts, or is an amateur, is loaded once, whatever becomes of an engine.
        choice = replace(model_choice(chat.settings), max_batch=1)
        self._drafter = make_drafter(chat.settings["draft"], loaded, choice, registry=chat.settings.registry)
        self._amateurs = load_amateurs(chat.settings["contrast"], loaded, choice)
        self._engine = self._new_engine()
        self._scene = CommandContext(
            loaded.tokenizer, loaded.runner.spec.context, lambda chat: chain_table(chat.job)
        )
        self._draft = ""
        self._is_over = False
        self._noticed = set(notices(chat.job, ()))  # which was said when the chat began
        self._is_valid = True  # whether every answer was what had been asked for

    def offer(self, line: str) -> tuple[str, list[str]]:
        """The last word of a line, and what may stand for it."""
        return complete(line, self._chat)

    def follow(self, reader: Reader) -> int:
        """Do what is typed until its end.

        Without a terminal: 130 if it was interrupted, 6 if an answer was not valid.
        """
        while not self._is_over:
            line = reader.read(self._draft)
            if line is None:
                break
            self._draft = ""
            try:
                reason = self._take(line)
            except (GencliError, ProcessorsError) as error:
                if not reader.is_live:
                    raise
                say_error(str(error), getattr(error, "hint", ""))
                continue
            if reason == "interrupted" and not reader.is_live:
                return 130
        return 0 if reader.is_live or self._is_valid else 6

    def _take(self, line: str) -> str:
        """Carry out a command or answer a turn; how the answer ended."""
        if not line.strip():
            return ""
        chat = self._chat
        if line.startswith("/") and not line.startswith("//"):
            reply = run_command(line, chat, self._scene)
            chat, self._draft, self._is_over = reply.chat, reply.draft, reply.is_over
            if reply.text:
                say(with_flags(reply.text) if reply.has_keys else reply.text)
            if chat.layers != self._chat.layers:
                for text in notices(chat.job, ()):
                    if text not in self._noticed:
                        self._voice.notice(text)
                    self._noticed.add(text)
        else:
            chat = chat.with_conversation(chat.conversation.asked(line.removeprefix("/")))
        if chat.conversation.is_waiting:
            chat, end = self._answered(chat)
            if said := same_again(self._chat.conversation, chat.conversation):
                self._voice.say(said)
            self._chat = chat
            return end.reason
        self._chat = chat
        return ""

    def _answered(self, chat: Chat) -> tuple[Chat, Finish]:
        """The chat with the answer to its last turn, which is written while it is made."""
        job, spec = self._constrained(chat.job), self._loaded.runner.spec
        ids = prompt_ids(
            chat.conversation,
            self._loaded.tokenizer,
            is_raw=chat.settings["raw"],
            context=spec.context,
            tools=job.structure.tools if job.structure else (),
        )
        seed, tokenizer = draw_seed(chat.conversation), self._loaded.tokenizer
        self._engine.submit(make_request(job, "chat", ids, seed, tokenizer, session="chat"))
        while self._engine.notices:
            self._voice.notice(self._engine.notices.pop(0))
        self._handler.on_first = self._engine.interrupt
        try:
            end = self._written(job.structure)
        except BaseException:
            self._engine = self._new_engine()  # what the old one was doing is not known
            raise
        finally:
            self._handler.on_first = None
        self._scene = replace(self._scene, answers=(*self._scene.answers, end))
        for line in _summary(end):
            self._voice.say(line)
        if failed := failure(OutputValidator(job.structure)(end)):
            self._is_valid = False
            say(
                f"{with_flags(failed.message)} The answer is kept; /undo takes it back, /regen draws another."
            )
        return chat.with_conversation(chat.conversation.answered(end.text, end.reason)), end

    def _new_engine(self) -> Engine:
        self._drafter.trim()  # of what an earlier engine may have left
        return make_engine(
            self._loaded,
            self._chat.settings,
            self._compiler,
            registry=self._chat.settings.registry,
            max_batch=1,
            drafter=self._drafter,
            amateurs=self._amateurs,
        )

    def _constrained(self, job: Job) -> Job:
        """The job with the grammar that compiles; it is compiled once."""
        if job.structure is None:
            return job
        return job.on(compile_plan(job.structure.plan, self._compiler).variant.constraint)

    def _written(self, structure: OutputSpec | None) -> Finish:
        """The answer, written while it is made; what stands before it goes to stderr."""
        splitter = ThinkingSplitter(structure.after) if structure and structure.after else None
        end: Finish | Error | None = None
        for event in self._engine.run():  # to its end: an interrupt is over then
            for writer in self._shown:
                writer.add(event)
            if isinstance(event, Reading):
                continue
            if isinstance(event, Token):
                pieces = splitter.feed(event.text) if splitter else Pieces(rest=event.text)
                prompt(pieces.thinking)
                self._sink.write(pieces.rest)
            else:
                prompt(splitter.finish().thinking if splitter else "")
                end = event
                self._sink.write("" if event.text.endswith("\n") else "\n")
        if isinstance(end, Finish):
            return end
        raise GenerationError(end.message if end else "The engine ended without an answer.")


def _summary(end: Finish) -> Iterator[str]:
    read = end.prompt_tokens - end.cached_tokens
    speed = (
        f", {(end.completion_tokens - 1) / end.timings.decode:.1f} tok/s" if end.timings.decode > 0 else ""
    )
    yield f"[prompt {end.prompt_tokens}: {end.cached_tokens} kept, {read} read; " + (
        f"answer {end.completion_tokens}{speed}, {end.reason}]"
    )
    if end.matched == "context":
        yield "The context is full. /undo takes back the last turn, /clear all of them."
    if end.matched == "max_tokens":
        yield "Cut at max-tokens; /set max-tokens N raises it."
