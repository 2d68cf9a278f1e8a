"""The part of `gencli chat` that needs torch: load the model and answer turns on one engine; explanations of
the last answer, which is drawn again for them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property

from gencli.chat.chat_state import Chat, draw_seed, prompt_ids
from gencli.chat.slash_commands import CommandContext, complete, run_command, same_again
from gencli.cli.commands.setting_views import asking, chain_table, wanted_scale
from gencli.cli.inputs import LineReader, TerminalReader, open_reader
from gencli.cli.render import Sink, columns_of, say, say_error, say_part, table
from gencli.cli.result_writers import Writer, reading_line
from gencli.cli.stderr import Interrupts, Stderr, Waiting
from gencli.cli.token_colors import Brush, Shades, legend, show_scores
from gencli.cli.token_views import one_token, whole_text
from gencli.config.job import chat_notices, make_request, notices
from gencli.config.option_names import with_flags
from gencli.core.events import Error, Event, Finish, PromptScores, Reading, Token
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import DeviceError, GencliError, GenerationError, UsageError
from gencli.explain.token_record import Record, records
from gencli.helpers import once
from gencli.results.run_results import Scores, failure
from gencli.runtime.compiled_grammars import compile_plan, grammar_env, make_compiler
from gencli.runtime.model_loading import Loaded
from gencli.runtime.wiring import load_amateurs, load_model, make_drafter, make_engine, model_choice
from gencli.structured.output_spec import OutputValidator, ThinkingSplit, ThinkingSplitter
from gencli.text.tokenizer import Tokenizer
from processors.errors import ProcessorsError
from processors.row_view import RowView


def talk(chat: Chat, *, stderr: Stderr, handler: Interrupts) -> int:
    """Load the model, read turns and answer them. Return the exit code."""
    loaded, _ = load_model(
        chat.settings, stderr, companions=True, rows=chat.job.rows_each, is_chat=not chat.settings["raw"]
    )
    with ExitStack() as stack:
        sink = stack.enter_context(Sink())
        sink.wrap_words()
        progress = [reading_line(sink, stack)] if stderr.has_drawing else []
        loop = _ChatLoop(chat, loaded, sink=sink, progress_writers=progress, stderr=stderr, handler=handler)
        reader = open_reader(loop.offer)
        if reader.is_live:
            stderr.say(f"{chat.settings['model']}, seed {chat.conversation.seed}. /help lists the commands.")
        return loop.follow(reader)


class _ChatLoop:
    """The current chat and an engine whose KV cache keeps the conversation between turns."""

    def __init__(
        self,
        chat: Chat,
        loaded: Loaded,
        *,
        sink: Sink,
        progress_writers: Sequence[Writer],
        stderr: Stderr,
        handler: Interrupts,
    ) -> None:
        self._chat, self._loaded, self._progress_writers = chat, loaded, progress_writers
        self._sink, self._stderr, self._handler = sink, stderr, handler
        self._compiler = make_compiler(grammar_env(loaded), chat.settings["grammar_timeout"])
        # Draft and contrast models are loaded once and outlive a replaced engine.
        choice = replace(model_choice(chat.settings), max_batch=1)
        self._drafter = make_drafter(chat.settings["draft"], loaded, choice, registry=chat.settings.registry)
        self._amateurs = load_amateurs(chat.settings["contrast"], loaded, choice)
        self._engine = self._new_engine()
        self._context = CommandContext(
            loaded.tokenizer,
            loaded.runner.spec.context,
            lambda chat: chain_table(chat.job),
            explain=self._why,
        )
        self._last: LastAnswer | None = None
        self._draft, self._is_edit = "", False  # initial text of the input line, which replaces the last turn
        self._is_over = False
        # Notices of the job are printed before the chat.
        self._notice_once = once(self._stderr.notice, notices(chat.job, ()))
        self._say_once = once(self._stderr.say)
        self._is_valid = True  # whether all answers were valid under their schema or grammar

    def offer(self, line: str) -> tuple[str, list[str]]:
        """Return the last word of a line and its completions."""
        return complete(line, self._chat)

    def follow(self, reader: LineReader | TerminalReader) -> int:
        """Run commands and answer turns until the input ends, and return the exit code.

        Without a terminal: 130 after an interrupt, 6 if an answer was invalid; errors are raised.
        """
        while not self._is_over:
            line = reader.read(self._draft)
            if line is None:
                break
            is_edit, self._draft, self._is_edit = self._is_edit, "", False
            try:
                reason = self._handle_line(line, is_edit=is_edit)
            except (GencliError, ProcessorsError) as error:
                if not reader.is_live or isinstance(error, DeviceError):
                    raise
                say_error(str(error), getattr(error, "hint", ""))
                continue
            if reason == "interrupted" and not reader.is_live:
                return 130
        return 0 if reader.is_live or self._is_valid else 6

    def _handle_line(self, line: str, *, is_edit: bool) -> str:
        # Returns the finish reason of an answer, "" without one. `is_edit`: a turn replaces the last one.
        if not line.strip():
            return ""
        chat = self._chat
        if line.startswith("/") and not line.startswith("//"):
            reply = run_command(line, chat, self._context)
            chat, self._draft, self._is_edit = reply.chat, reply.draft, reply.is_edit
            self._is_over = reply.is_over
            if reply.text:
                say(with_flags(reply.text) if reply.has_keys else reply.text)
            if reply.rows:
                rows = [tuple(map(with_flags, row)) for row in reply.rows]
                say(table(rows, columns_of(sys.stderr)).rstrip("\n"))
            if chat.layers != self._chat.layers:
                for text in notices(chat.job, ()):
                    self._notice_once(text)
        else:
            ask = chat.conversation.edited if is_edit else chat.conversation.asked
            chat = chat.with_conversation(ask(line.removeprefix("/")))
        reason = ""
        if chat.conversation.is_waiting:
            chat, end = self._answer_turn(chat)
            reason = end.reason
            if text := same_again(self._chat.conversation, chat.conversation):
                self._stderr.say(text)
        self._chat = chat
        return reason

    @cached_property
    def _brush(self) -> Brush:
        return Brush(self._sink)  # imports rich, which answers without colours do not need

    def _why(self, chat: Chat, position: int | None) -> str:
        """Explain the last answer or one of its tokens. Raises UsageError without an answer."""
        turns = chat.conversation.turns
        if self._last is None or not turns or turns[-1].answer != self._last.text:
            raise UsageError("The last turn has no answer from this session.")
        with self._running(GencliError), Waiting(sys.stderr) as waiting:
            if self._stderr.has_drawing:
                waiting.show("Explaining the answer")
            return self._last.page(self._engine, position)

    @contextmanager
    def _running(self, harmless: type[GencliError]) -> Iterator[None]:
        """Let Ctrl-C interrupt the engine; after an error that is not `harmless`, another one replaces it."""
        self._handler.on_first = self._engine.interrupt
        try:
            yield
        except harmless:
            raise
        except BaseException:
            self._engine = self._new_engine()  # the state of the old engine is unknown
            raise
        finally:
            self._handler.on_first = None

    def _answer_turn(self, chat: Chat) -> tuple[Chat, Finish]:
        job, tokenizer = chat.job, self._loaded.tokenizer
        if job.structure is not None:  # take the first grammar variant that compiles
            compiled = compile_plan(job.structure.plan, self._compiler)
            for text in compiled.notices:
                self._notice_once(text)
            job = job.on(compiled.variant.constraint)
        ids = prompt_ids(
            chat.conversation,
            tokenizer,
            is_raw=chat.settings["raw"],
            context=self._loaded.runner.spec.context,
            instructions=job.instructions,
        )
        for text in chat_notices(job, tokenizer):
            self._notice_once(text)
        scale = wanted_scale(chat.settings, self._sink, self._notice_once)
        request = make_request(job, "chat", ids, draw_seed(chat.conversation), tokenizer, session="chat")
        self._last = LastAnswer(request, tokenizer)
        if scale:
            asked = asking(job, scale)
            request = replace(request, trace=asked.trace, logprobs=asked.logprobs)
            self._say_once(f"Colours: {legend(scale, self._brush.look)}")
        self._engine.submit(request)
        self._stderr.notice(*self._engine.notices)
        self._engine.notices.clear()
        with self._running(DeviceError):  # after which another engine would fail as well
            shades = Shades(tokenizer.stream(ids), scale) if scale else None
            end = self._write_answer(request.marker, shades, is_scored=job.logprobs is not None)
        self._context = replace(self._context, answers=(*self._context.answers, end))
        self._stderr.say(*_summary(end))
        if failed := failure(OutputValidator(job.structure)(end, request.marker)):
            self._is_valid = False
            say(f"{with_flags(failed.message)} The answer is kept; /undo removes it, /regen draws another.")
        return chat.with_conversation(chat.conversation.answered(end.text, end.reason, chat.job)), end

    def _new_engine(self) -> Engine:
        self._drafter.trim()  # drops the state of a replaced engine
        return make_engine(
            self._loaded,
            self._chat.settings,
            self._compiler,
            registry=self._chat.settings.registry,
            max_batch=1,
            drafter=self._drafter,
            amateurs=self._amateurs,
        )

    def _write_answer(self, marker: str, shades: Shades | None, *, is_scored: bool) -> Finish:
        """Run the engine and return the answer's Finish. Writes the answer to stdout, reasoning to stderr.

        `marker` ends the reasoning; `is_scored`: the answer's log-probabilities were asked for, which colours
        may need as well. Raises GenerationError if the engine fails.
        """
        splitter = ThinkingSplitter(marker) if marker else None
        end: Finish | Error | None = None
        scores = Scores()
        for event in self._engine.run():  # to its end, so that an interrupt is completed
            for writer in self._progress_writers:
                writer.add(event)
            scores.add(event)
            if self._last is not None:
                self._last.add(event)
            if isinstance(event, Reading | PromptScores):
                continue
            if isinstance(event, Token):
                pieces = splitter.feed(event.text) if splitter else ThinkingSplit(result=event.text)
                say_part(pieces.thinking)
                if shades is None:
                    self._sink.write(pieces.result)
                    continue
                shades.add(event)
                deque(shades.spans(pieces.thinking), maxlen=0)
                for text, number in shades.spans(pieces.result):
                    self._brush.write(text, number)
            else:
                say_part(splitter.finish().thinking if splitter else "")
                end = event
                self._sink.write("" if event.text.endswith("\n") else "\n")
        show_scores(scores, 0, self._loaded.tokenizer, has_output=is_scored)
        if isinstance(end, Finish):
            return end
        raise GenerationError(end.message if end else "The engine ended without an answer.")


def _summary(end: Finish) -> Iterator[str]:
    read, seconds = end.prompt_tokens - end.cached_tokens, end.timings.decode
    prompt = f"prompt {end.prompt_tokens}: {end.cached_tokens} kept, {read} read"
    speed = f", {(end.decoded_tokens - 1) / seconds:.1f} tok/s" if seconds > 0 else ""
    yield f"[{prompt}; answer {end.completion_tokens}{speed}, {end.reason}]"
    if end.matched == "context":
        yield "The context is full. /undo removes the last turn, /clear all of them."
    if end.matched == "max_tokens":
        yield "Cut at max-tokens; /set max-tokens N raises it."


_COUNT = 5  # ids in the lists of a record


class LastAnswer:
    """An answer, and the records of its tokens once they were requested.

    Explaining costs nothing while the answer is drawn. Draws are functions of seed and position, so the same
    request gives the same tokens again; its prompt is still in the KV cache.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self.text = ""
        self._request, self._tokenizer = request, tokenizer
        self._ids: list[int] = []
        self._records: list[Record] = []

    def add(self, event: Event) -> None:
        """Collect the tokens of an event."""
        if isinstance(event, Token):
            self._ids += event.ids
            self.text += event.text

    def page(self, engine: Engine, position: int | None) -> str:
        """Return the page of the whole answer, or of the token at a position from 0 on.

        Raises UsageError for a missing position, GenerationError if the answer cannot be drawn again.
        """
        if position is not None and position >= len(self._ids):
            raise UsageError(f"The answer has {len(self._ids)} tokens, from 0 on, but no token {position}.")
        if not self._records:
            self._records = records(self._explained(engine), self._tokenizer, run="chat", sample=0)
        if position is None:
            return whole_text(self._records)
        before = "".join(record["text"] for record in self._records[:position])
        if position >= len(self._records):
            raise UsageError(f"Token {position} completes the document; the model did not choose it.")
        return one_token(self._records[position], before=before, of=len(self._records))

    def _explained(self, engine: Engine) -> list[RowView]:
        """Draw the answer again up to its last token."""
        limits = replace(self._request.limits, max_time=None)
        again = replace(
            self._request, id="why", trace=_COUNT, logprobs=None, finish_open=False, limits=limits
        )
        engine.submit(again)
        ids, views = list[int](), list[RowView]()
        for event in engine.run():
            if isinstance(event, Error):
                raise GenerationError(event.message)
            if isinstance(event, Token):
                ids += event.ids
                views += event.views
                if len(ids) >= len(self._ids):
                    engine.cancel(again.id)
            elif isinstance(event, Finish) and event.reason == "interrupted" and len(ids) < len(self._ids):
                raise GenerationError("The answer is not explained: it was interrupted.")
        engine.notices.clear()  # the notices of the first draw
        views = views[: len(self._ids)]
        if [view.token for view in views] != self._ids[: len(views)]:
            raise GenerationError(
                "The answer came out different when it was drawn again, so it is not explained.",
                hint="With a `verify` other than match, drafts depend on the earlier texts.",
            )
        return views
