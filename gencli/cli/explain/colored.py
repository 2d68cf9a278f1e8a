"""Colours of a run's text: the data that requests need for them, and the coloured pen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from gencli.cli.explain.brush import Brush
from gencli.cli.explain.levels import legend
from gencli.cli.explain.shades import Shades
from gencli.cli.terminal.render import Sink
from gencli.config.job import Job
from gencli.config.settings import Settings
from gencli.core.events import Event, Finish, Token
from gencli.explain.levels import Scale
from gencli.results.run_results import Row
from gencli.text.detokenizer import TokenDecoder

__all__ = ["ColoredPen", "asking", "wanted_scale"]


def wanted_scale(settings: Settings, sink: Sink, notice: Callable[[str], None]) -> Scale | None:
    """Return the measure that colours show, None without colours; report why colours have no effect."""
    scale: Scale | Literal["off"] = settings["color"]
    if scale == "off":
        return None
    reason = ""
    if settings["format"] != "text":
        reason = f"{settings.with_value('format')} writes records"
    elif not sink.is_terminal:
        reason = "the result goes to a file" if settings["output"] else "stdout is no terminal"
    if reason:
        notice(f"{settings.name('color')} has no effect: {reason}.")
        return None
    return scale


def asking(job: Job, scale: Scale) -> Job:
    """Return the job whose events have the data for the colours, at the least cost.

    Log-probabilities give probability and rank, but before guidance; so guided texts are explained instead,
    as are all texts for entropy and deciding stages. Searches have no explanations.
    """
    is_search = job.beams is not None or job.best_of is not None
    is_guided = (job.guidance.is_on or job.dola is not None) and not is_search
    if scale in ("entropy", "decided") or is_guided:
        return job if job.trace is not None else replace(job, trace=1)
    return job if job.trace is not None or job.logprobs is not None else replace(job, logprobs=0)


class ColoredPen:
    """A pen that colours texts by their tokens. It gets each event before the writer that uses it.

    By request: `decoders` makes a new decoder for the text after its prompt, `markers` are as in Shades.
    """

    def __init__(
        self,
        brush: Brush,
        scale: Scale,
        decoders: Mapping[str, Callable[[], TokenDecoder]],
        markers: Mapping[str, str],
    ) -> None:
        self._brush, self._scale, self._decoders, self._markers = brush, scale, decoders, markers
        self._shades: dict[tuple[str, int], Shades] = {}

    def add(self, event: Event) -> None:
        """Record the levels of an event's tokens."""
        if isinstance(event, Token):
            self._of(event.request, event.sample).add(event)
        elif isinstance(event, Finish):
            self._of(event.request, event.sample).keep(event.completion_tokens)

    def close(self) -> None:
        """Do nothing; everything has been written."""

    def write(self, row: Row, sample: int, text: str) -> None:
        """Write the next part of the text of a sample."""
        for piece, number in self._of(row.id, sample).spans(text):
            self._brush.write(piece, number)

    @property
    def legend(self) -> str:
        """The legend of the colours, in one line."""
        return f"Colours: {legend(self._scale, self._brush.look)}"

    def _of(self, request: str, sample: int) -> Shades:
        key = request, sample
        if key not in self._shades:
            self._shades[key] = Shades(self._decoders[request](), self._scale, after=self._markers[request])
        return self._shades[key]
