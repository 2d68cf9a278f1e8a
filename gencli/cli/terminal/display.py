"""Selects the output of a run by its flags, stdout and stderr: result writer, progress bars, reasoning."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from gencli.cli.terminal.pens import Pen
from gencli.cli.terminal.render import Sink
from gencli.cli.terminal.stderr import Stderr
from gencli.cli.terminal.thinking import LiveThinking, ThinkingSummary
from gencli.cli.terminal.waiting import Waiting
from gencli.cli.terminal.writers import BlockWriter, JsonWriter, LineWriter, RecordWriter, TextWriter, Writer
from gencli.config.settings import Settings
from gencli.results.run_record import RunInfo
from gencli.results.run_results import Results
from gencli.structured.output_spec import OutputSpec

__all__ = ["open_writers", "reading_line", "running_bar"]


def open_writers(
    settings: Settings,
    sink: Sink,
    results: Results,
    info: RunInfo,
    voice: Stderr,
    stack: ExitStack,
    markers: Sequence[str],
    pen: Pen | None = None,
) -> list[Writer]:
    """Return the writer of the result, and the writers of reasoning and progress.

    A progress bar is drawn only if the result itself does not show progress. `pen` writes the texts;
    `markers` end the reasoning of each request's output.
    """
    structure, is_text = info.job.structure, settings["format"] == "text"
    is_one = len(results.rows) == info.job.n == 1
    is_data = structure is not None and structure.is_data
    is_shown = is_text and settings["stream"] is not False
    is_streaming = is_shown and structure is None  # structured output is written once it is validated
    thinking_writers = (
        [_thinking(structure, results, voice, markers[0])] if structure and any(markers) and is_text else []
    )
    if is_text and not is_data:
        sink.wrap_words()
    if is_shown and not is_one and not is_data and sink.has_control:
        return [_live(sink, results, info, voice, stack, pen), *thinking_writers]
    form = "lines" if is_data and not is_one else settings["format"]
    writers = [_writer(form, sink, results, info, pen, is_streaming=is_streaming)]
    is_seen = is_text and is_streaming and not sink.is_file
    if (
        voice.has_drawing
        and not is_seen
        and not any(isinstance(one, LiveThinking) for one in thinking_writers)
    ):
        writers.append(running_bar(sink, len(results.rows) * info.job.n, info.job.limits.max_tokens, stack))
    elif voice.has_drawing:
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


def _thinking(
    structure: OutputSpec, results: Results, voice: Stderr, marker: str
) -> LiveThinking | ThinkingSummary:
    is_one = sum(len(row.outcomes) for row in results.rows) == 1
    if is_one and voice.has_drawing and not structure.retries:  # with retries only the last attempt counts
        return LiveThinking(marker)
    return ThinkingSummary(results, voice)


def _live(
    sink: Sink, results: Results, info: RunInfo, voice: Stderr, stack: ExitStack, pen: Pen | None
) -> Writer:
    from gencli.cli.terminal.drawing import Drawing
    from gencli.cli.terminal.live import LiveWriter
    from gencli.results.run_results import Meter

    drawing = stack.enter_context(Drawing(sys.stdout))
    sink.before_write = drawing.erase
    limits = info.job.limits
    meter = None if voice.is_quiet else Meter(len(results.rows) * info.job.n, limits.max_tokens)
    return LiveWriter(sink, results, drawing, meter, pen)


def reading_line(sink: Sink, stack: ExitStack, *, is_begun: bool = False) -> Writer:
    """Return a writer that shows the progress of a long prompt on stderr; it is erased before the result.

    `is_begun`: the prompt is being read from now on.
    """
    from gencli.cli.terminal.progress import ReadingLine  # imports rich

    waiting = stack.enter_context(Waiting(sys.stderr))
    sink.before_write = waiting.close  # stdout and stderr may be the same terminal
    if is_begun:
        waiting.show("Reading the prompt")
    return ReadingLine(waiting)


def running_bar(sink: Sink, texts: int, max_tokens: int, stack: ExitStack) -> Writer:
    """Return a writer that draws the number of ended texts on stderr; it is erased before the result."""
    from gencli.cli.terminal.drawing import Drawing
    from gencli.cli.terminal.progress import RunBar
    from gencli.results.run_results import Meter

    drawing = stack.enter_context(Drawing(sys.stderr))
    sink.before_write = drawing.erase  # stdout and stderr may be the same terminal
    return RunBar(Meter(texts, max_tokens), drawing)
