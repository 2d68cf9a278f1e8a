"""The options of drafts; a part of the table in gencli.config.options.run. Imports nothing heavy."""

from __future__ import annotations

from typing import Any, Literal

from gencli.config.options.option import Option
from gencli.errors import UsageError
from processors.params import Bounds, whole
from processors.policy import MATCH, Policy

__all__ = ["BUILT_IN", "DRAFTS", "EARLY_EXIT", "NO_DRAFTER"]

NO_DRAFTER = "none"
EARLY_EXIT = "early-exit"
BUILT_IN = ("ngram", "suffix", "auto", EARLY_EXIT)  # drafters that need no other model


def _read_tokens(given: Any) -> int | str:
    if given == "auto" or isinstance(given, int):
        return str(given) if given == "auto" else given
    if (number := whole(str(given))) is None:
        raise UsageError(f"{str(given)[:60]!r} is neither a whole number nor auto.")
    return number


DRAFTS: tuple[Option, ...] = (
    Option(("--draft",), str, "Guess tokens ahead, so that a forward may give several; the text is the same. "
           "none, ngram, suffix, auto, early-exit, or a smaller model: a name or a folder.", "Drafts",
           NO_DRAFTER, metavar="NAME"),
    Option(("--draft-tokens",), int | Literal["auto"], "At most this many drafts at a time; auto takes as "
           "many as pay, or none.", "Drafts", "auto", Bounds(ge=1, le=64), read=_read_tokens,
           metavar="NUMBER"),
    Option(("--draft-min-p",), float, "Draft no token that the drafter gives less than this.", "Drafts", 0.0,
           Bounds(ge=0, le=1)),
    Option(("--verify",), Policy, "Which drafts stand. match: those that the model chooses, so the text is "
           "the same; rejection: drawn texts follow the same distribution; lossy-typical, lossy-threshold: "
           "more of them, and the text is another.", "Drafts", MATCH.policy),
    Option(("--verify-threshold",), float, "What lossy-threshold lets stand: drafts that the model gives at "
           f"least this; {MATCH.threshold} if nothing is said.", "Drafts", None, Bounds(gt=0, le=1)),
)  # fmt: skip
