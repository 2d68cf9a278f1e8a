"""How far the prompts are that are being read, told from a run's events."""

from __future__ import annotations

from gencli.core.events import Event, Reading

__all__ = ["PromptProgress"]


class PromptProgress:
    """Takes events and says in words how much is read of the prompts that have no text yet.

    Samples of a request share its prompt, which counts once.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, int]] = {}  # tokens that are read, and all, by request

    def add(self, event: Event) -> None:
        """Take note of an event. A request with text, or an end, reads no more."""
        if isinstance(event, Reading):
            done, _ = self._open.get(event.request, (0, 0))
            self._open[event.request] = max(done, event.done), event.total
        else:
            self._open.pop(event.request, None)

    @property
    def text(self) -> str:
        """As in "reading a prompt: 512 of 901 tokens"; empty where no long prompt is being read."""
        if not self._open:
            return ""
        done, total = (sum(counts) for counts in zip(*self._open.values(), strict=True))
        what = "a prompt" if len(self._open) == 1 else f"{len(self._open)} prompts"
        return f"reading {what}: {done:,} of {total:,} tokens"
