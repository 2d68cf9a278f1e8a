"""Writers of results, selected by the flags of a run, stdout and stderr: streamed text, labelled blocks,
lines, JSON and YAML; reasoning on stderr; the prompts of `--show-prompt`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from gencli.cli.render import Sink, say, say_part
from gencli.cli.stderr import Stderr, Waiting
from gencli.cli.token_colors import Pen, PlainPen
from gencli.cli.usage import record_text
from gencli.config.settings import Settings
from gencli.core.events import Error, Event, Finish, PromptScores, Reading, Token
from gencli.explain.trace_file import text_label
from gencli.results.run_record import RunInfo, record, thinking
from gencli.results.run_results import PromptRow, Results
from gencli.structured.output_spec import OutputSpec, ThinkingSplitter
from gencli.text.escapes import escape_controls

if TYPE_CHECKING:
    from rich.text import Text

    from gencli.cli.progress_bars import Drawing
    from gencli.results.run_results import Meter
    from gencli.text.tokenizer import Tokenizer


def open_writers(
    settings: Settings,
    sink: Sink,
    results: Results,
    info: RunInfo,
    stderr: Stderr,
    stack: ExitStack,
    markers: Sequence[str],
    pen: Pen | None = None,
) -> list[Writer]:
    """Return the writer of the result, and the writers of reasoning and progress.

    A progress bar is drawn only if the result itself does not show progress. `pen` writes the texts;
    `markers` end the reasoning of each request's output.
    """
    structure, is_text = info.job.structure, settings["format"] == "text"
    is_single = len(results.rows) == info.job.n == 1
    is_data = structure is not None and structure.is_data
    is_shown = is_text and settings["stream"] is not False
    is_streaming = is_shown and structure is None  # structured output is written once it is validated
    thinking_writers = list[Writer]()
    if structure and any(markers) and is_text:
        thinking_writers = [_thinking(structure, results, stderr, markers[0])]
    if is_text and not is_data:
        sink.wrap_words()
    if is_shown and not is_single and not is_data and sink.has_control:
        return [_live(sink, results, info, stderr, stack, pen), *thinking_writers]
    form = "lines" if is_data and not is_single else settings["format"]
    writers = [_writer(form, sink, results, info, pen, is_streaming=is_streaming)]
    is_seen = is_text and is_streaming and not sink.is_file
    is_seen = is_seen or any(isinstance(writer, LiveThinking) for writer in thinking_writers)
    if stderr.has_drawing and not is_seen:
        writers.append(running_bar(sink, len(results.rows) * info.job.n, info.job.limits.max_tokens, stack))
    elif stderr.has_drawing:
        writers.append(reading_line(sink, stack, is_begun=True))
    return [*writers, *thinking_writers]


def _writer(
    form: str, sink: Sink, results: Results, info: RunInfo, pen: Pen | None, *, is_streaming: bool
) -> Writer:
    if form in ("jsonl", "yaml"):
        return RecordWriter(sink, results, info, form)
    if form == "json":
        return JsonWriter(sink, results, info)
    if form == "lines":
        return LineWriter(sink, results, pen)
    if len(results.rows) == info.job.n == 1:
        return TextWriter(sink, results, is_streaming=is_streaming, pen=pen)
    return BlockWriter(sink, results, is_streaming=is_streaming, pen=pen)


def _thinking(structure: OutputSpec, results: Results, stderr: Stderr, marker: str) -> Writer:
    is_single = sum(len(row.outcomes) for row in results.rows) == 1
    if (
        is_single and stderr.has_drawing and not structure.retries
    ):  # with retries only the last attempt counts
        return LiveThinking(marker)
    return ThinkingSummary(results, stderr)


def _live(
    sink: Sink, results: Results, info: RunInfo, stderr: Stderr, stack: ExitStack, pen: Pen | None
) -> Writer:
    from gencli.cli.progress_bars import Drawing
    from gencli.results.run_results import Meter

    drawing = stack.enter_context(Drawing(sys.stdout))
    sink.before_write = drawing.erase
    limits = info.job.limits
    meter = None if stderr.is_quiet else Meter(len(results.rows) * info.job.n, limits.max_tokens)
    return LiveWriter(sink, results, drawing, meter, pen)


def reading_line(sink: Sink, stack: ExitStack, *, is_begun: bool = False) -> Writer:
    """Return a writer that shows the progress of a long prompt on stderr; it is erased before the result.

    `is_begun`: the prompt is being read from now on.
    """
    from gencli.cli.progress_bars import ReadingLine

    waiting = stack.enter_context(Waiting(sys.stderr))
    sink.before_write = waiting.close  # stdout and stderr may be the same terminal
    if is_begun:
        waiting.show("Reading the prompt")
    return ReadingLine(waiting)


def running_bar(sink: Sink, texts: int, max_tokens: int, stack: ExitStack) -> Writer:
    """Return a writer that draws the number of ended texts on stderr; it is erased before the result."""
    from gencli.cli.progress_bars import Drawing, RunBar
    from gencli.results.run_results import Meter

    drawing = stack.enter_context(Drawing(sys.stderr))
    sink.before_write = drawing.erase  # stdout and stderr may be the same terminal
    return RunBar(Meter(texts, max_tokens), drawing)


class Writer(Protocol):
    """Interface of a writer of a run. The run's `Results` include an event before `add` is called with it."""

    def add(self, event: Event) -> None:
        """Write the new output of an event."""
        ...

    def close(self) -> None:
        """Write the remaining output at the end of the run."""
        ...


class TextWriter:
    """Writes one text, streamed or at the end, with a newline after it unless it ends with one."""

    def __init__(self, sink: Sink, results: Results, *, is_streaming: bool, pen: Pen | None = None) -> None:
        self._pen, self._results, self._is_streaming = pen or PlainPen(sink), results, is_streaming

    def add(self, event: Event) -> None:
        """Write new text."""
        if isinstance(event, Token) and event.text and self._is_streaming:
            self._pen.write(self._results.rows[0], 0, event.text)

    def close(self) -> None:
        """Write the text that is not streamed yet."""
        row = self._results.rows[0]
        text = row.shown(0)
        if text is not None:
            self._pen.write(row, 0, _rest("" if not self._is_streaming else text, text))


class BlockWriter:
    """Writes several texts as labelled blocks, in the order of the prompts.

    The first unfinished text is streamed; later ones wait until all before them are written. `num_written`
    counts the finished blocks.
    """

    def __init__(self, sink: Sink, results: Results, *, is_streaming: bool, pen: Pen | None = None) -> None:
        self._sink, self._is_streaming, self._pen = sink, is_streaming, pen or PlainPen(sink)
        self._turns = _samples(results)
        self._open = next(self._turns, None)
        self.num_written = 0
        self._is_first = True
        self._written: str | None = None  # the written part of the open block

    def add(self, event: Event) -> None:
        """Write the new text of the open block, and complete blocks after it."""
        while self._open:
            row, sample = self._open
            is_done = row.outcomes[sample] is not None
            if not is_done and not (self._is_streaming and row.texts[sample]):
                return
            self._write(row, sample, is_done=is_done)
            if not is_done:
                return
            self._open = next(self._turns, None)
            self.num_written += 1
            self._written = None

    def close(self) -> None:
        """Do nothing; all blocks have been written."""

    def _write(self, row: PromptRow, sample: int, *, is_done: bool) -> None:
        text = row.shown(sample) if is_done else row.texts[sample]
        if text is None:
            return
        if self._written is None:
            self._sink.write(("" if self._is_first else "\n") + label(row, sample) + "\n")
            self._is_first, self._written = False, ""
        if new := _rest(self._written, text) if is_done else text[len(self._written) :]:
            self._pen.write(row, sample, new)
        self._written = text


class LiveWriter:
    """Writes finished texts as blocks in order, and draws the newest words of every text not written yet.

    A text that finishes out of order keeps its line until it can be written. A last line counts the texts
    without a line, for lack of space or because they have not begun. A meter adds a line with the rate.
    """

    def __init__(
        self, sink: Sink, results: Results, drawing: Drawing, meter: Meter | None, pen: Pen | None = None
    ) -> None:
        self._results, self._blocks = results, BlockWriter(sink, results, is_streaming=False, pen=pen)
        self._drawing, self._meter = drawing, meter
        self._held: dict[int, tuple[PromptRow, int]] = {}  # finished out of order, by index

    def add(self, event: Event) -> None:
        """Redraw the lines if a drawing is due; write texts that are finished and next in order."""
        if self._meter:
            self._meter.add(event, time.monotonic())
        if isinstance(event, Finish | Error):
            row = self._results.row(event.request)
            self._held[_index(row, event.sample)] = row, event.sample
            self._blocks.add(event)
            self._held = {at: held for at, held in self._held.items() if at >= self._blocks.num_written}
        elif not self._drawing.is_due:
            return
        from gencli.cli.progress_bars import run_bar

        bar = [run_bar(self._meter.pace(time.monotonic()))] if self._meter else []
        self._drawing.show(*self._lines(self._drawing.size[1] - len(bar)), *bar)

    def close(self) -> None:
        """Erase the lines; all texts have been written."""
        self._drawing.erase()

    def _lines(self, room: int) -> list[Text]:
        """Return a line for each text that has begun, at most `room`, and the number of the others."""
        from rich.text import Text

        running = {
            _index(row, sample): (row, sample)
            for row in self._results.rows
            for sample in row.running
            if row.texts[sample]
        }
        begun = sorted({**running, **self._held})
        missing = sum(len(row.texts) for row in self._results.rows) - self._blocks.num_written
        if missing > room or missing > len(begun):
            # Running texts have precedence over finished ones.
            begun = sorted(begun, key=lambda at: at in self._held)[: max(0, room - 1)]
        texts = [self._line(*(running.get(at) or self._held[at])) for at in begun]
        more = missing - len(begun)
        return [*texts, *([Text(f"{more} more")] if more else [])][:room]

    def _line(self, row: PromptRow, sample: int) -> Text:
        from rich.text import Text

        width, _ = self._drawing.size
        number = text_label((row.id, sample), len(row.texts))
        tail = escape_controls(" ".join(row.texts[sample][-2 * width :].split()))
        return Text(f"[{number}] {tail[-max(1, width - len(number) - 4) :]}")


def _index(row: PromptRow, sample: int) -> int:
    """Return the index of a sample among all samples of the run."""
    return (int(row.id) - 1) * len(row.texts) + sample


def _samples(results: Results) -> Iterator[tuple[PromptRow, int]]:
    """Return an iterator over (row, sample) in the order in which they are written."""
    return ((row, sample) for row in results.rows for sample in range(len(row.texts)))


def label(row: PromptRow, sample: int) -> str:
    """Return the line above a block, in the format of head(1) and tail(1)."""
    return block_label(text_label((row.id, sample), len(row.texts)), row.prompt)


def block_label(number: str, prompt: str) -> str:
    """Return the label of a block: its number and at most 60 characters of the prompt."""
    prompt = " ".join(prompt.split())
    return f"==> {number}: {prompt if len(prompt) <= 60 else prompt[:57] + '...'} <=="


def _rest(written: str, text: str) -> str:
    """Return the unwritten part of a text, with a newline at its end."""
    return text[len(written) :] + ("" if text.endswith("\n") else "\n")


class LineWriter:
    """Writes one result a line without labels, in the order of the prompts, as they are completed."""

    def __init__(self, sink: Sink, results: Results, pen: Pen | None = None) -> None:
        self._pen = pen or PlainPen(sink)
        self._turns = _samples(results)
        self._open = next(self._turns, None)

    def add(self, event: Event) -> None:
        """Write the complete results that are next in order."""
        while self._open and self._open[0].outcomes[self._open[1]] is not None:
            row, sample = self._open
            self._open = next(self._turns, None)
            text = row.shown(sample)
            if text is not None:
                self._pen.write(row, sample, _rest("", text))

    def close(self) -> None:
        """Do nothing; all results have been written."""


class RecordWriter:
    """Writes a record for each prompt when it finishes: a JSON line (`jsonl`) or a YAML document (`yaml`)."""

    def __init__(self, sink: Sink, results: Results, info: RunInfo, form: str) -> None:
        self._sink, self._results, self._info, self._form = sink, results, info, form
        self._head = ""

    def add(self, event: Event) -> None:
        """Write the prompt's record if this was its last event."""
        row = self._results.row(event.request)
        if isinstance(event, Finish | Error) and row.is_done:
            text = record_text(record(row, self._info), self._form, encoding=self._sink.encoding)
            self._sink.write(self._head + text)
            self._head = "---\n" if self._form == "yaml" else ""

    def close(self) -> None:
        """Do nothing; all records have been written."""


class JsonWriter:
    """Writes one JSON document at the end: an object, or an array for several prompts."""

    def __init__(self, sink: Sink, results: Results, info: RunInfo) -> None:
        self._sink, self._results, self._info = sink, results, info

    def add(self, event: Event) -> None:
        """Do nothing before the end."""

    def close(self) -> None:
        """Write the document."""
        records = [record(row, self._info) for row in self._results.rows]
        document = records[0] if len(records) == 1 else records
        self._sink.write(record_text(document, "json", encoding=self._sink.encoding))


class LiveThinking:
    """Streams the reasoning of a single sample to stderr, up to the marker."""

    def __init__(self, marker: str) -> None:
        self._splitter, self._is_open = ThinkingSplitter(marker), False

    def add(self, event: Event) -> None:
        """Write the text that is certainly reasoning, and a line end after the last part."""
        if isinstance(event, Reading | PromptScores):
            return
        is_token = isinstance(event, Token)
        pieces = self._splitter.feed(event.text) if is_token else self._splitter.finish()
        if text := pieces.thinking if self._is_open else pieces.thinking.lstrip():
            say_part(text if self._is_open else f"[thinking] {text}")
            self._is_open = True
        if self._is_open and (self._splitter.is_over or not is_token):
            say_part("\n")
            self._is_open = False

    def close(self) -> None:
        """Do nothing; everything has been written."""


class ThinkingSummary:
    """Writes the reasoning of each sample to stderr at the end of the run."""

    def __init__(self, results: Results, stderr: Stderr) -> None:
        self._results, self._stderr = results, stderr

    def add(self, event: Event) -> None:
        """Do nothing before the end."""

    def close(self) -> None:
        """Write a paragraph for each sample."""
        for text in thinking(self._results):
            if not self._stderr.is_quiet:
                say(text)  # text of the model, in which no key becomes a flag


def show_prompts(
    prompts: Sequence[str], all_ids: Sequence[Sequence[int]], tokenizer: Tokenizer, form: str, sink: Sink
) -> None:
    """Write the decoded ids of each prompt: as text, with labels if there are several, or as records."""
    rendered = [tokenizer.decode(ids, skip_special=False) for ids in all_ids]
    records = [
        {"prompt": prompt, "rendered": text, "ids": list(ids)}
        for prompt, text, ids in zip(prompts, rendered, all_ids, strict=True)
    ]
    if form == "jsonl":
        sink.write("".join(record_text(record, form, encoding=sink.encoding) for record in records))
    elif form != "text":
        document = records if records[1:] else records[0]
        sink.write(record_text(document, form, encoding=sink.encoding))
    else:
        blocks = [text if text.endswith("\n") else f"{text}\n" for text in rendered]
        if blocks[1:]:
            numbered = enumerate(zip(prompts, blocks, strict=True), start=1)
            blocks = [f"{block_label(str(number), prompt)}\n{block}" for number, (prompt, block) in numbered]
        sink.write("\n".join(blocks))
