"""Everything the library can refuse.

ProcessorsError
    ParamError          a value that a stage does not take
    UnknownStage        a name that no stage has
    ChainError          stages that cannot stand together, or text that is no chain
    TokenError          a text that is not one token, or an id outside the vocabulary
    GrammarError        a grammar that no back end can compile
        GrammarTimeout      one that takes too long
    RowError            one row of a step cannot be decided; its neighbours go on
        EmptySupport        every token is masked
        NonFiniteLogits     NaN or +inf
        StageFailure        a stage raised, or returned what is no result
"""

from __future__ import annotations

from collections.abc import Iterable

from processors.names import close_names, did_you_mean

__all__ = [
    "ChainError",
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
]


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known names, or lists all of them."""
    names = sorted(known)
    close = [repr(found) for found in close_names(name, names)]
    return did_you_mean(close) or f"Known are: {', '.join(names)}."


class ProcessorsError(Exception):
    """Base of all errors of the library; the message says what was given and what was expected."""


class ParamError(ProcessorsError, ValueError):
    """A parameter's name, type or value is not one that the stage takes.

    `path` holds the indexes that lead to the fault in a value that is a list; empty for the whole value.
    """

    def __init__(self, message: str, path: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class UnknownStage(ProcessorsError, LookupError):
    """No stage has this name. `is_near` says whether some stage has one like it."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(f"There is no stage {name!r}. {nearest(name, names)}")
        self.name = name
        self.is_near = bool(close_names(name, names))


class ChainError(ProcessorsError, ValueError):
    """The text is no chain, or its stages cannot stand together; `stages` names those at fault."""

    def __init__(self, message: str, *, stages: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.stages = stages


class TokenError(ProcessorsError, ValueError):
    """A text that has to be one token is not, or an id lies outside the vocabulary."""


class GrammarError(ProcessorsError, ValueError):
    """A grammar is wrong, too large, or in a language that the back end does not know."""


class GrammarTimeout(GrammarError):
    """A grammar takes longer to compile than it may."""


class RowError(ProcessorsError):
    """One row cannot be decided. `stage` is the stage it came out of ("model" for raw logits)."""

    def __init__(self, message: str, *, stage: str, slot: int, position: int) -> None:
        super().__init__(f"{message} After stage {stage!r}, for token {position + 1} of the output.")
        self.stage = stage
        self.slot = slot
        self.position = position


class EmptySupport(RowError):
    """After this stage no token was left to choose from."""


class NonFiniteLogits(RowError):
    """NaN or +inf came out of this stage."""


class StageFailure(RowError):
    """The stage raised, or returned what is no result; the exception that says so is the cause."""

    def __init__(self, message: str, *, stage: str, slot: int, position: int) -> None:
        ProcessorsError.__init__(
            self, f"The stage {stage!r} is wrong: {message}, for token {position + 1} of the output."
        )
        self.stage, self.slot, self.position = stage, slot, position
