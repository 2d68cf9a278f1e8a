"""What an exception means to a person: a message, a hint, an exit code."""

from __future__ import annotations

import re
from difflib import get_close_matches

from gencli.errors import GencliError, GenerationError, UsageError
from processors.errors import ProcessorsError, RowError

__all__ = ["explain"]


def explain(error: Exception) -> GencliError:
    """The error as one of gencli's own."""
    if isinstance(error, RowError):
        return GenerationError(str(error))
    if isinstance(error, ProcessorsError):
        return UsageError(str(error))
    if hasattr(error, "format_message"):  # typer's own, whose classes it does not export
        return _usage(error)
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return GenerationError("The memory is full.", hint="Lower --max-batch, or take a smaller --dtype.")
    return GencliError(
        f"Unexpected {type(error).__name__}: {error}",
        hint="This is a fault of gencli; --debug shows the traceback.",
    )


def _usage(error: Exception) -> UsageError:
    name = str(getattr(error, "option_name", ""))
    if type(error).__name__ != "NoSuchOption":
        message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
        return UsageError(message, hint=_see(error))
    if not re.fullmatch(r"--?\w[\w-]*", name):
        return UsageError(
            f"There is no option {name!r}.", hint="Put -- before a prompt that begins with a dash."
        )
    close = get_close_matches(name, _flags(error), n=1)
    hint = f"Did you mean {close[0]}?" if close else _see(error)
    return UsageError(f"There is no option {name}.", hint=hint)


def _see(error: Exception) -> str:
    """Where the command at fault is explained."""
    context = getattr(error, "ctx", None)
    return f"See {context.command_path if context else 'gencli run'} --help."


def _flags(error: Exception) -> list[str]:
    """The long flags of the command at fault."""
    context = getattr(error, "ctx", None)
    parameters = context.command.params if context else []
    names = [name for entry in parameters for name in (*entry.opts, *entry.secondary_opts)]
    return [name for name in names if name.startswith("--")]
