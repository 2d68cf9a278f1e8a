"""The errors of gencli with their exit codes, and its one warning.

GencliError
    UsageError          2   unknown options, wrong values, conflicting options
    ConfigError         3   presets and schemas
    PluginError         4   a plugin that cannot be loaded or used
    ModelError          5   a model or tokenizer that cannot be loaded or used
    GenerationError     6   a request that could not be finished
GencliWarning               a notice: nothing fails, but the result may not be the expected one
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "GencliError",
    "GencliWarning",
    "GenerationError",
    "ModelError",
    "PluginError",
    "UsageError",
    "is_out_of_memory",
    "is_panic",
]


class GencliError(Exception):
    """An error for the user: what was given, what was expected, and (`hint`) what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GencliError):
    """An option, argument or request is wrong."""

    exit_code = 2


class ConfigError(GencliError):
    """A preset or schema is wrong."""

    exit_code = 3


class PluginError(GencliError):
    """A plugin cannot be loaded, or its class is not valid."""

    exit_code = 4


class ModelError(GencliError):
    """The model cannot be loaded, or cannot do what was requested."""

    exit_code = 5


class GenerationError(GencliError):
    """A request failed while it ran."""

    exit_code = 6


class GencliWarning(UserWarning):
    """A notice for a Python caller. `gencli run` writes the same text to stderr."""


def is_panic(error: BaseException) -> bool:
    """Whether a Rust library panicked; pyo3's PanicException is not an Exception."""
    return type(error).__name__ == "PanicException"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the host or on an accelerator."""
    text = str(error).lower()
    is_allocator = isinstance(error, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text
    )
    return isinstance(error, MemoryError) or is_allocator
