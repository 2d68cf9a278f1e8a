"""Options from environment variables: GENCLI_ and the key in capitals, as in GENCLI_TOP_P=0.9.

Values are written as on the command line. A switch takes 1, true, yes, on or 0, false, no, off. A repeatable
option takes one value or a JSON list: GENCLI_STOP='["END", "\\\\n\\\\n"]'. An empty variable is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gencli.config.options.run import OPTIONS, Option
from gencli.config.peers import meant_option
from gencli.config.settings import ENVIRONMENT, Layer
from gencli.errors import UsageError

__all__ = ["OTHER_VARIABLES", "environment_layer", "untraced"]

OTHER_VARIABLES = ("GENCLI_NO_PLUGINS", "GENCLI_API_KEY")  # variables that other modules read
_OF_TRACES = ("GENCLI_TRACE", "GENCLI_TRACE_TOP")
_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Return the layer of options that variables set. Raises UsageError with the name of the variable."""
    known = {entry.variable: entry for entry in OPTIONS}
    given: dict[str, Any] = {}
    for name, text in environ.items():
        if not name.startswith("GENCLI_") or name in OTHER_VARIABLES or not text:
            continue
        if name not in known:
            spelled = {entry.key: entry.variable for entry in OPTIONS}
            hint = meant_option(name.removeprefix("GENCLI_"), spelled) or "gencli run -h lists the options."
            raise UsageError(f"The environment variable {name} belongs to no option.", hint=hint)
        given[known[name].key] = _typed(known[name], text)
    return Layer.of(ENVIRONMENT, given, {key: f"GENCLI_{key.upper()}" for key in given})


def untraced(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of traces, for a command that writes no trace."""
    return {name: text for name, text in environ.items() if name not in _OF_TRACES}


def _typed(entry: Option, text: str) -> Any:
    """Return the value in the form that the command line gives."""
    if entry.type is bool:
        if text.lower() not in _SWITCH:
            raise UsageError(f"{entry.variable} is {text!r}, but has to be true or false.")
        return _SWITCH[text.lower()]
    return _listed(entry, text) if entry.many else text


def _listed(entry: Option, text: str) -> list[str]:
    if not text.startswith("["):
        return [text]
    hint = 'A value that begins with [ is a JSON list, as in ["one", "two"].'
    try:
        items = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{entry.variable} is not a JSON list: {error}.", hint=hint) from None
    if not all(isinstance(item, str | int | float) for item in items):
        raise UsageError(f"{entry.variable} is a list with other values than texts and numbers.", hint=hint)
    return [item if isinstance(item, str) else json.dumps(item) for item in items]
