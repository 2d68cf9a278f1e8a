"""The exceptions of the library, suggestions for misspelled names, errors of the machine rather than of
the code, and the lazy import of the names that a package exports.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any


def nearest(name: str, known_names: Iterable[str]) -> str:
    """Return a sentence that suggests the closest known names, or lists all of them."""
    names = sorted(known_names)
    close = [repr(near) for near in close_names(name, names)]
    return did_you_mean(close) or (f"Known are: {', '.join(names)}." if names else "There is none.")


def raised_in(error: BaseException) -> str:
    """Return where code of others raised the error, as in " in mine.py, line 3"; "" if it is unknown.

    That is the innermost frame which is neither this project's nor torch's.
    """
    packages = os.path.dirname(os.path.dirname(__file__))
    folders = tuple(os.path.join(packages, name, "") for name in ("processors", "gencli"))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_torch = f"{os.sep}torch{os.sep}" in frame.filename
        if not is_torch and not frame.filename.startswith(("<", *folders)):
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

    def __init__(self, name: str, stages: Iterable[str]) -> None:
        names = sorted(stages)
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

    def __init__(self, stage: str, other: str, why: str) -> None:
        super().__init__(
            f"{stage} and {other} contradict each other: {why}. Leave out one.", stages=(stage, other)
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

    _text = "{message} After stage {stage!r}, for token {token} of the output."

    def __init__(self, message: str, *, stage: str, slot: int, position: int) -> None:
        super().__init__(self._text.format(message=message, stage=stage, token=position + 1))
        self.stage, self.slot, self.position = stage, slot, position


class EmptySupport(RowError):
    """A stage masked the last token of the row that was not masked."""


class NonFiniteLogits(RowError):
    """The output of this stage has NaN or +inf."""


class StageFailure(RowError):
    """The stage raised or returned an invalid result; that exception is `__cause__`."""

    _text = "The stage {stage!r} is wrong: {message}, for token {token} of the output."


_MAX_LENGTH = 64  # characters; longer words get no suggestion, because a key from a file may have any length
_MAX_NAMES = 5  # with more candidates there is no suggestion


def close_names(word: str, known_names: Iterable[str], *, more: int = 0) -> list[str]:
    """Return the known names that `word` may be a misspelling of; empty if none is near.

    In this order, the first rule with a result decides: names that differ only in separators; names that
    start with `word` or have it as a whole part; names at the least edit distance. The distance is at most 1
    for up to five letters, 2 for up to eight, else 3, plus `more`.
    """
    names = sorted(set(known_names))
    wanted = _plain(word)
    if not wanted or len(wanted) > _MAX_LENGTH:
        return []
    if same := [name for name in names if _plain(name) == wanted]:
        return same
    if len(wanted) > 2:
        part = "_".join(_parts(word))
        within = [
            name
            for name in names
            if _plain(name).startswith(wanted) or f"_{part}_" in f"_{'_'.join(_parts(name))}_"
        ]
        if within:
            return within if len(within) <= _MAX_NAMES else []
    limit = more + (1 if len(wanted) <= 5 else 2 if len(wanted) <= 8 else 3)
    distances = {name: edit_distance(wanted, _plain(name), limit) for name in names}
    least = min(distances.values(), default=limit + 1)
    near = [name for name in names if distances[name] == least <= limit]
    return near if len(wanted) > 2 and len(near) <= _MAX_NAMES else []


def did_you_mean(names: Sequence[str]) -> str:
    """Return a question like `Did you mean top_k or top_p?`; "" without names."""
    if not names:
        return ""
    listed = ", ".join(names[:-1])
    return f"Did you mean {f'{listed} or {names[-1]}' if listed else names[-1]}?"


def _parts(name: str) -> list[str]:
    return name.casefold().replace("-", "_").strip("_").split("_")


def _plain(name: str) -> str:
    return "".join(_parts(name))


def edit_distance(word: str, other: str, limit: int) -> int:
    """Return the edit distance with transpositions; `limit` + 1 if the lengths differ by more than that."""
    if abs(len(word) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, char in enumerate(word, start=1):
        row = [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (char != wanted))
            if i > 1 and j > 1 and char == other[j - 2] and word[i - 2] == wanted:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


_FULL = re.compile(
    "out of memory|can't allocate memory|not enough memory|CU(BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
# Prefixes of GPU errors of PyTorch, its libraries and Triton.
_DEVICE = re.compile(r"(CUDA|HIP|cuDNN|NCCL)( \w+)? error|Triton Error \[\w+\]|NVIDIA driver", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the host or on an accelerator."""
    is_full = isinstance(error, RuntimeError) and _FULL.search(str(error)) is not None
    return isinstance(error, MemoryError) or is_full


def device_fault(error: BaseException) -> str:
    """Return the message of a failed GPU or its driver, in one line; "" for any other error.

    After most of these faults every call on the GPU fails until the process ends.
    """
    if not isinstance(error, RuntimeError) or is_out_of_memory(error) or not _DEVICE.search(str(error)):
        return ""
    return str(error).strip().partition("\n")[0].rstrip(".")


def exports(package: str, home: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package; `home` maps each of its modules to the names that it exports."""
    module_of = {name: module for module, names in home.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return get
