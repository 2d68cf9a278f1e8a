"""Message, hint and exit code of an exception."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gencli.config.options.run import OPTIONS
from gencli.config.peers import COMMAND_NAMES, meant_command, meant_option
from gencli.errors import (
    ConfigError,
    DeviceError,
    GencliError,
    GenerationError,
    PluginError,
    UsageError,
    is_panic,
)
from processors.errors import GrammarError, ProcessorsError, RowError, StageFailure, UnknownStage
from processors.machine_faults import is_out_of_memory
from processors.names import did_you_mean

__all__ = ["explain", "unknown_word"]

_DEBUG = "--debug shows the traceback."


def explain(error: BaseException, arguments: Sequence[str] = ()) -> GencliError:
    """Return the error as a GencliError; `arguments`: the command line."""
    is_bare = isinstance(error, UsageError) and not error.hint
    if is_bare and (hint := _about_dashes(arguments)):
        return UsageError(str(error), hint=hint)
    if isinstance(error, GencliError):
        return error
    if isinstance(error, StageFailure):
        return PluginError(str(error), hint="gencli stages check PLUGIN shows the smallest case.")
    if isinstance(error, RowError):
        return GenerationError(str(error))
    if isinstance(error, GrammarError):
        return ConfigError(str(error))
    if isinstance(error, ProcessorsError):
        is_far = isinstance(error, UnknownStage) and not error.is_near
        return UsageError(str(error), hint="The stage of a plug-in needs --plugin FILE." if is_far else "")
    if hasattr(error, "format_message"):  # typer's own exceptions, whose classes are not exported
        return _usage(error, arguments)
    if fault := DeviceError.of(error):
        return fault
    if is_out_of_memory(error):
        return GenerationError("The memory is full.", hint="Lower --max-batch, or take a smaller --dtype.")
    if is_panic(error):
        return GencliError(f"The Rust code of a library has given up: {error}.", hint=_DEBUG)
    return GencliError(
        f"Unexpected {type(error).__name__}: {error}",
        hint=f"This is a fault of gencli; {_DEBUG}",
    )


def _usage(error: BaseException, arguments: Sequence[str]) -> UsageError:
    name, command = str(getattr(error, "option_name", "")), _command(error)
    if type(error).__name__ != "NoSuchOption":
        message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
        return _of_group(message, error) or UsageError(message, hint=f"See {command} --help.")
    if not re.fullmatch(r"--?\w[\w-]*", name):
        return UsageError(
            f"There is no option {name!r}.", hint="Put -- before a prompt that begins with a dash."
        )
    if len(name) == 2:  # a long name after one dash is read letter by letter
        name = next((word for word in arguments if word.startswith(name)), name).partition("=")[0]
    flags = _flags(error)
    hint = f"gencli run has it; {command} has not." if _is_of_run(name, flags) else meant_option(name, flags)
    return UsageError(f"There is no option {name}.", hint=hint or f"See {command} --help.")


def _is_of_run(name: str, flags: Mapping[str, str]) -> bool:
    """Whether the option belongs to `gencli run`, and not to the command with these flags."""
    return name not in flags.values() and any(name == entry.flag for entry in OPTIONS)


def _of_group(message: str, error: BaseException) -> UsageError | None:
    """Return the error for an unknown or missing subcommand; None for other errors."""
    group = getattr(getattr(error, "ctx", None), "command", None)
    known, command = sorted(getattr(group, "commands", ())), _command(error)
    if not known:
        return None
    if unknown := re.match(r"No such command '(.*?)'", message):
        return unknown_word(command, unknown[1], known)
    return unknown_word(command, "", known) if message.startswith("Missing command") else None


def unknown_word(command: str, word: str, known: Sequence[str]) -> UsageError:
    """Return the error of a command that expects one of several words."""
    listed = ", ".join(known)
    if not word:
        return UsageError(f"{command} needs one of: {listed}.", hint=f"See {command} --help.")
    hint = did_you_mean([repr(name) for name in meant_command(word, known, COMMAND_NAMES)])
    return UsageError(f"{command} takes {listed}, not {word!r}.", hint=hint or f"See {command} --help.")


def _about_dashes(arguments: Sequence[str]) -> str:
    """Return a hint for a long name after one dash, which is read as a short option and its value."""
    flags = {entry.key: entry.flag for entry in OPTIONS}
    for word in arguments:
        found = re.fullmatch("-([a-z][a-z-]+)(=.*)?", word, re.DOTALL)
        if found and (meant := meant_option(found[1], flags)):
            return f"{word} is read as {word[:2]} {word[2:]}. {meant}"
    return ""


def _command(error: BaseException) -> str:
    return getattr(getattr(error, "ctx", None), "command_path", None) or "gencli"


def _flags(error: BaseException) -> dict[str, str]:
    """Return the long flags of the called command, by key."""
    parameters = getattr(getattr(getattr(error, "ctx", None), "command", None), "params", ())
    names = [name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)]
    keys = {entry.flag: entry.key for entry in OPTIONS}
    flags = [name for name in names if name.startswith("-") and name != "-h"]
    return {keys.get(name, name.lstrip("-").replace("-", "_")): name for name in flags}
