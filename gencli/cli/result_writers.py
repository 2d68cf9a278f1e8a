"""Writers of results, selected by the flags of a run, stdout and stderr: streamed text, labelled blocks,
lines, JSON and YAML; reasoning on stderr; the prompts of `--show-prompt`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gencli.cli.render import Sink, say, say_part
from gencli.cli.stderr import Stderr, Waiting
from gencli.cli.token_colors import Brush, Shades, legend
from gencli.config.result_formats import ResultFormat, format_of
from gencli.config.settings import Settings
from gencli.core.events import Error, Event, Finish, PromptScores, Reading, Token
from gencli.explain.token_record import Scale
from gencli.explain.trace_file import text_label
from gencli.helpers import shortened
from gencli.results.run_record import RunInfo, record, thinking
from gencli.results.run_results import PromptRow, Results
from gencli.structured.output_spec import ThinkingSplitter
from gencli.text.escapes import escape_controls

if TYPE_CHECKING:
    from rich.text import Text

    from gencli.cli.progress_bars import Drawing
    from gencli.results.run_results import Meter
    from gencli.text.detokenizer import TokenDecoder
    from gencli.text.tokenizer import Tokenizer

Pen = Callable[[PromptRow, int, str], None]  # writes the next part of the text of a sample


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
    structure, limits, form = info.job.structure, info.job.limits, format_of(settings)
    count = len(results.rows) * info.job.n
    is_data = structure is not None and structure.is_data
    is_shown = form.is_text and settings["stream"] is not False
    is_streaming = is_shown and structure is None  # structured output is written once it is validated
    pen = pen or (lambda row, sample, text: sink.write(text))
    is_thinking_seen, summaries = False, list[Writer]()
    if structure and any(markers) and form.is_text:
        # With retries only the last attempt counts.
        is_thinking_seen = count == 1 and stderr.has_drawing and not structure.retries
        summaries = [] if is_thinking_seen else [ThinkingSummary(results, stderr)]
    if form.is_text and not is_data:
        sink.wrap_words()
    if is_shown and count > 1 and not is_data and sink.has_control:
        from gencli.cli.progress_bars import Drawing
        from gencli.results.run_results import Meter

        drawing = stack.enter_context(Drawing(sys.stdout))
        sink.before_write = drawing.erase
        meter = None if stderr.is_quiet else Meter(count, limits.max_tokens)
        return [LiveWriter(sink, results, drawing, meter, pen), *summaries]
    writers: list[Writer] = []  # reasoning is written before the result
    if is_thinking_seen or (stderr.has_drawing and is_streaming and not sink.is_file):
        writers.append(reading_line(sink, stack, is_begun=True))
    elif stderr.has_drawing:
        from gencli.cli.progress_bars import RunBar

        writers.append(RunBar(sink, count, limits.max_tokens, stack))
    if is_thinking_seen:
        writers.append(LiveThinking(markers[0]))
    if form.is_text:
        has_labels = count > 1 and not is_data
        writers.append(BlockWriter(sink, results, pen, is_streaming=is_streaming, has_labels=has_labels))
    else:
        writers.append(RecordWriter(sink, results, info, form))
    return [*writers, *summaries]


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


class Writer(Protocol):
    """Interface of a writer of a run. The run's `Results` include an event before `add` is called with it."""

    def add(self, event: Event) -> None:
        """Write the new output of an event, by default nothing."""
        return

    def close(self) -> None:
        """Write the remaining output at the end of the run, by default nothing."""
        return


class BlockWriter(Writer):
    """Writes texts in the order of the prompts, a newline after each unless it ends with one.

    Several texts are blocks, with labels or without. The first unfinished text is streamed; later ones wait
    until all before them are written. `num_written` counts the finished texts.
    """

    def __init__(
        self, sink: Sink, results: Results, pen: Pen, *, is_streaming: bool = False, has_labels: bool = True
    ) -> None:
        self._sink, self._pen, self._is_streaming, self._has_labels = sink, pen, is_streaming, has_labels
        self._turns = ((row, sample) for row in results.rows for sample in range(len(row.texts)))
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

    def _write(self, row: PromptRow, sample: int, *, is_done: bool) -> None:
        text = row.shown(sample) if is_done else row.texts[sample]
        if text is None:
            return
        if self._written is None:
            if self._has_labels:
                self._sink.write(("" if self._is_first else "\n") + label(row, sample) + "\n")
            self._is_first, self._written = False, ""
        if new := (_ended(text) if is_done else text)[len(self._written) :]:
            self._pen(row, sample, new)
        self._written = text


class LiveWriter(Writer):
    """Writes finished texts as blocks in order, and draws the newest words of every text not written yet.

    A text that finishes out of order keeps its line until it can be written. A last line counts the texts
    without a line, for lack of space or because they have not begun. A meter adds a line with the rate.
    """

    def __init__(self, sink: Sink, results: Results, drawing: Drawing, meter: Meter | None, pen: Pen) -> None:
        self._results, self._blocks = results, BlockWriter(sink, results, pen)
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
        texts, width = list[Text](), self._drawing.size[0]
        for row, sample in (running.get(at) or self._held[at] for at in begun):
            number = text_label((row.id, sample), len(row.texts))
            tail = escape_controls(" ".join(row.texts[sample][-2 * width :].split()))
            texts.append(Text(f"[{number}] {tail[-max(1, width - len(number) - 4) :]}"))
        more = missing - len(begun)
        return [*texts, *([Text(f"{more} more")] if more else [])][:room]


def _index(row: PromptRow, sample: int) -> int:  # among all samples of the run
    return (int(row.id) - 1) * len(row.texts) + sample


def label(row: PromptRow, sample: int) -> str:
    """Return the line above a block, in the format of head(1) and tail(1)."""
    return block_label(text_label((row.id, sample), len(row.texts)), row.prompt)


def block_label(number: str, prompt: str) -> str:
    """Return the label of a block: its number and at most 60 characters of the prompt."""
    return f"==> {number}: {shortened(' '.join(prompt.split()), 60)} <=="


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


class RecordWriter(Writer):
    """Writes a record for each prompt when it finishes; or, in a format with one document, that document at
    the end: the record, or an array for several prompts.
    """

    def __init__(self, sink: Sink, results: Results, info: RunInfo, form: ResultFormat) -> None:
        self._sink, self._results, self._info, self._form = sink, results, info, form
        self._is_first = True

    def add(self, event: Event) -> None:
        """Write the prompt's record if this was its last event."""
        row = self._results.row(event.request)
        if self._form.by_record and isinstance(event, Finish | Error) and row.is_done:
            self._write(record(row, self._info))

    def close(self) -> None:
        """Write the one document."""
        if not self._form.by_record:
            records = [record(row, self._info) for row in self._results.rows]
            self._write(records[0] if len(records) == 1 else records)

    def _write(self, document: Any) -> None:
        self._sink.write(self._form.encode(document, self._sink.encoding, is_first=self._is_first))
        self._is_first = False


class LiveThinking(Writer):
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


class ThinkingSummary(Writer):
    """Writes the reasoning of each sample to stderr at the end of the run."""

    def __init__(self, results: Results, stderr: Stderr) -> None:
        self._results, self._stderr = results, stderr

    def close(self) -> None:
        """Write a paragraph for each sample."""
        for text in thinking(self._results):
            if not self._stderr.is_quiet:
                say(text)  # text of the model, in which no key becomes a flag


@dataclass(slots=True)
class ColoredPen(Writer):
    """Colours texts by their tokens; `write` is its Pen. It gets each event before the writer that uses it.

    By request: `decoders` makes a new decoder for the text after its prompt, `markers` are as in Shades.
    """

    brush: Brush
    scale: Scale
    decoders: Mapping[str, Callable[[], TokenDecoder]]
    markers: Mapping[str, str]
    _shades: dict[tuple[str, int], Shades] = field(default_factory=dict)

    @property
    def legend(self) -> str:
        """The legend of the colours, as a sentence."""
        return f"Colours: {legend(self.scale, self.brush.look)}"

    def add(self, event: Event) -> None:
        """Record the levels of an event's tokens."""
        if isinstance(event, Token):
            self._of(event.request, event.sample).add(event)
        elif isinstance(event, Finish):
            self._of(event.request, event.sample).keep(event.completion_tokens)

    def write(self, row: PromptRow, sample: int, text: str) -> None:
        """Write the next part of the text of a sample."""
        for piece, number in self._of(row.id, sample).spans(text):
            self.brush.write(piece, number)

    def _of(self, request: str, sample: int) -> Shades:
        key = request, sample
        if key not in self._shades:
            self._shades[key] = Shades(self.decoders[request](), self.scale, after=self.markers[request])
        return self._shades[key]


def show_prompts(
    prompts: Sequence[str], ids: Sequence[Sequence[int]], tokenizer: Tokenizer, form: ResultFormat, sink: Sink
) -> None:
    """Write the decoded ids of each prompt: as text, with labels if there are several, or as records."""
    rendered = [tokenizer.decode(tokens, skip_special=False) for tokens in ids]
    records = [
        {"prompt": prompt, "rendered": text, "ids": list(tokens)}
        for prompt, text, tokens in zip(prompts, rendered, ids, strict=True)
    ]
    if form.is_text:
        blocks = [*map(_ended, rendered)]
        if blocks[1:]:
            numbered = enumerate(zip(prompts, blocks, strict=True), start=1)
            blocks = [f"{block_label(str(number), prompt)}\n{block}" for number, (prompt, block) in numbered]
        sink.write("\n".join(blocks))
    else:
        parts = records if form.is_lines else [records if records[1:] else records[0]]
        for number, part in enumerate(parts):
            sink.write(form.encode(part, sink.encoding, is_first=not number))
