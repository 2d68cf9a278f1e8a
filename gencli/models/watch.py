"""Report the progress of transformers in loading a checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gencli.models.files.table import StoredTensor

__all__ = ["OnBytes", "Sum", "watched"]

OnBytes = Callable[[int, int], None]  # bytes loaded, and total bytes
_BAR = "Loading weights"  # title of the progress bar of transformers' loop over weights


class Sum:
    """Adds up the bytes that several readers of the same files report, from any thread."""

    def __init__(self, on_bytes: OnBytes) -> None:
        self._on_bytes, self._lock, self._done = on_bytes, threading.Lock(), 0

    def part(self) -> OnBytes:
        """Return what one of the readers calls."""
        own = 0

        def told(done: int, total: int) -> None:
            nonlocal own
            with self._lock:
                self._done, own = self._done + done - own, done
                self._on_bytes(self._done, total)

        return told


@contextmanager
def watched(table: Mapping[str, StoredTensor], on_bytes: OnBytes) -> Iterator[None]:
    """Call `on_bytes` before the first weight and after each.

    Uses the progress bar hook of transformers. If the bar has another title, nothing is reported.
    """
    from transformers.utils import logging

    stored = {name: tensor.nbytes for name, tensor in table.items()}

    def hook(make: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options.get("desc") == _BAR and args:
            return _counted(args[0], stored, on_bytes)
        return make(*args, **options)

    before = logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def _counted(weights: Any, stored: dict[str, int], on_bytes: OnBytes) -> Iterator[Any]:
    """Yield the (name, weight) pairs, and count their bytes.

    Weights merged from several stored tensors share the remaining bytes evenly.
    """
    names = [name for name, _ in weights]
    made = [name for name in names if name not in stored]
    rest = sum(stored.values()) - sum(stored.get(name, 0) for name in names)
    share = rest // len(made) if made else 0
    total, done = sum(stored.get(name, share) for name in names), 0
    on_bytes(done, total)
    for name, weight in weights:
        yield name, weight
        done += stored.get(name, share)
        on_bytes(done, total)
