"""How much of a checkpoint is loaded, told while transformers loads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gencli.models.files.card import read_head

__all__ = ["OnBytes", "watched"]

OnBytes = Callable[[int, int], None]  # bytes so far, and all of them
_BAR = "Loading weights"  # what the library calls the bar of its one loop over weights


@contextmanager
def watched(files: Sequence[Path], on_bytes: OnBytes) -> Iterator[None]:
    """Call `on_bytes` before the first weight and after each.

    The library hands its progress bars to a hook; without that bar nothing is told, and all else is as ever.
    """
    from transformers.utils import logging

    stored = {name: _size(entry) for file in files for name, entry in read_head(file).items()}

    def hook(make: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options.get("desc") == _BAR and args:
            return _told(args[0], stored, on_bytes)
        return make(*args, **options)

    before = logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def _told(weights: Any, stored: dict[str, int], on_bytes: OnBytes) -> Iterator[Any]:
    """The pairs of name and weight. A weight made of others shares the bytes that no name accounts for."""
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


def _size(entry: dict[str, Any]) -> int:
    begin, end = entry["data_offsets"]
    return int(end - begin)
