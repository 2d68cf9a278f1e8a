"""Cases of a loop in a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*values: object) -> Iterator[None]:
    """An error within says of which case it is."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {', '.join(map(str, values))}"[:300])
        raise
