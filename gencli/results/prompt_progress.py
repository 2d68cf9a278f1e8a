"""Progress of the prompts in prefill, from a run's events."""

from __future__ import annotations

from gencli.core.events import Event, Reading

__all__ = ["PromptProgress"]


class PromptProgress:
    """Counts the prefilled tokens of prompts without output so far.

    A prompt shared by several samples counts once.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, int]] = {}  # tokens prefilled, and total, by request

    def add(self, event: Event) -> None:
        """Add an event. A request with output, or at its end, is no longer counted."""
        if isinstance(event, Reading):
            done, _ = self._open.get(event.request, (0, 0))
            self._open[event.request] = max(done, event.done), event.total
        else:
            self._open.pop(event.request, None)

    @property
    def text(self) -> str:
        """A text such as "reading a prompt: 512 of 901 tokens"; "" if no long prompt is being read."""
        if not self._open:
            return ""
        done, total = (sum(counts) for counts in zip(*self._open.values(), strict=True))
        what = "a prompt" if len(self._open) == 1 else f"{len(self._open)} prompts"
        return f"reading {what}: {done:,} of {total:,} tokens"
