"""The exceptions of the library.

ProcessorsError
    ParamError          a value that a stage does not take
    UnknownStage        a name that no stage has
    ChainError          stages that cannot be combined, or text that is no chain
        Contradiction       two stages of which only one can run
    TokenError          a text that is not one token, or an id outside the vocabulary
    GrammarError        a grammar that no back end can compile
        GrammarTimeout      a grammar that takes too long to compile
    RowError            no token can be chosen for one row; the other rows go on
        EmptySupport        every token is masked
        NonFiniteLogits     NaN or +inf
        StageFailure        a stage raised, or returned an invalid result
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Iterable
from typing import Any

from processors.names import close_names, did_you_mean

__all__ = [
    "ChainError",
    "Contradiction",
    "EmptySupport",
    "GrammarError",
    "GrammarTimeout",
    "NonFiniteLogits",
    "ParamError",
    "ProcessorsError",
    "RowError",
    "StageFailure",
    "TokenError",
    "UnknownStage",
    "nearest",
    "raised_in",
    "shown_value",
]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the closest known names, or lists all of them."""
    names = sorted(known)
    close = [repr(found) for found in close_names(name, names)]
    return did_you_mean(close) or (f"Known are: {', '.join(names)}." if names else "There is none.")


def raised_in(error: BaseException) -> str:
    """Return where code of others raised the error, as in " in mine.py, line 3"; "" if it is unknown.

    That is the innermost frame which is neither this project's nor torch's.
    """
    packages = os.path.dirname(os.path.dirname(__file__))
    own = tuple(os.path.join(packages, name, "") for name in ("processors", "gencli"))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_torch = f"{os.sep}torch{os.sep}" in frame.filename
        if not is_torch and not frame.filename.startswith(("<", *own)):
            return f" in {os.path.basename(frame.filename)}, line {frame.lineno}"
    return ""


def shown_value(value: Any) -> str:
    """Return a value as messages show it: as JSON if it can be."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)


class ProcessorsError(Exception):
    """Base of all errors of the library; the message says what was given and what was expected."""


class ParamError(ProcessorsError, ValueError):
    """A stage does not accept a parameter's name, type or value.

    `path` holds the indexes of the wrong item in a list value; empty if the whole value is wrong.
    """

    def __init__(self, message: str, path: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class UnknownStage(ProcessorsError, LookupError):
    """No stage has this name. `is_near`: some stage has a similar name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(f"There is no stage {name!r}. {nearest(name, names)}")
        self.name = name
        self.is_near = bool(close_names(name, names))


class ChainError(ProcessorsError, ValueError):
    """The text is no chain, or its stages cannot be combined; `stages` names the conflicting ones."""

    def __init__(self, message: str, *, stages: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.stages = stages


class Contradiction(ChainError):
    """Only one of two stages can run: `stages` names them, `why` says the reason."""

    def __init__(self, one: str, other: str, why: str) -> None:
        super().__init__(
            f"{one} and {other} contradict each other: {why}. Leave out one.", stages=(one, other)
        )
        self.why = why


class TokenError(ProcessorsError, ValueError):
    """A text is not exactly one token, or an id lies outside the vocabulary."""


class GrammarError(ProcessorsError, ValueError):
    """A grammar is wrong, too large, or of a kind that the back end does not support."""


class GrammarTimeout(GrammarError):
    """A grammar exceeds the time limit of compiling."""


class RowError(ProcessorsError):
    """No token can be chosen for one row. `stage` is the failing stage ("model" for raw logits)."""

    def __init__(self, message: str, *, stage: str, slot: int, position: int) -> None:
        super().__init__(f"{message} After stage {stage!r}, for token {position + 1} of the output.")
        self.stage = stage
        self.slot = slot
        self.position = position


class EmptySupport(RowError):
    """A stage masked the last token of the row that was not masked."""


class NonFiniteLogits(RowError):
    """The output of this stage has NaN or +inf."""


class StageFailure(RowError):
    """The stage raised or returned an invalid result; that exception is `__cause__`."""

    def __init__(self, message: str, *, stage: str, slot: int, position: int) -> None:
        ProcessorsError.__init__(
            self, f"The stage {stage!r} is wrong: {message}, for token {position + 1} of the output."
        )
        self.stage, self.slot, self.position = stage, slot, position
