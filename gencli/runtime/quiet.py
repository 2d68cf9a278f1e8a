"""Imports large libraries fast, and keeps their progress bars, warnings and logs off stderr."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["importing", "quiet_libraries"]

# The libraries read these variables when they are imported later.
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


@contextmanager
def importing() -> Iterator[None]:
    """Pause the garbage collector while libraries are imported in the block.

    The collector would repeatedly traverse hundreds of thousands of objects that all stay alive. After the
    block it ignores these objects.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def quiet_libraries(*, is_on: bool = True) -> Iterator[None]:
    """Silence the libraries inside the block. Messages that a user needs become errors or notices."""
    if not is_on:
        yield
        return
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)
