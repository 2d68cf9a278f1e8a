"""Renders untrusted templates in a separate process with a time limit."""

from __future__ import annotations

import atexit
from threading import Lock

from gencli.templates.messages import MAX_MEMORY, SECONDS, Order, Rendered
from processors.child import OUT_OF_MEMORY, Child, ChildDied, ChildLate

__all__ = ["Renderer", "renderer"]

_START = 60.0  # seconds that the process may take to start on a busy machine


class Renderer:
    """Starts the process at the first template and keeps it; starts another after a timeout or crash."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._lock = Lock()

    def render(self, order: Order) -> Rendered:
        """Render a template, within SECONDS and MAX_MEMORY. Failures are in the result's `error`."""
        with self._lock:
            try:
                return self._ask(order)
            except ChildLate:
                return Rendered(error=f"it did not end within {SECONDS:g} seconds")
            except ChildDied as died:
                memory = f"it needs more than {MAX_MEMORY >> 20} MiB of memory"
                return Rendered(error=memory if died.code == OUT_OF_MEMORY else "its process died")

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._child is not None:
                self._child.close()
            self._child = None

    def _ask(self, order: Order) -> Rendered:
        if self._child is None or not self._child.is_alive:
            self._child = Child("gencli.templates.worker")
            self._child.ask(None, _START)
        rendered: Rendered = self._child.ask(order, SECONDS)
        return rendered


renderer = Renderer()
atexit.register(renderer.close)
