"""The options of drafts, for the table in gencli.config.options.run. Imports nothing heavy."""

from __future__ import annotations

from typing import Any, Literal

from gencli.config.options.option import Option
from gencli.errors import UsageError
from processors.conversion import Bounds, whole
from processors.policy import MATCH, Policy

__all__ = ["BUILT_IN", "DRAFTS", "EARLY_EXIT", "NO_DRAFTER"]

NO_DRAFTER = "none"
EARLY_EXIT = "early-exit"
BUILT_IN = ("ngram", "suffix", "auto", EARLY_EXIT)  # drafters that need no model of their own


def _read_tokens(given: Any) -> int | str:
    if given == "auto" or isinstance(given, int):
        return str(given) if given == "auto" else given
    if (number := whole(str(given))) is None:
        raise UsageError(f"{str(given)[:60]!r} is neither a whole number nor auto.")
    return number


DRAFTS: tuple[Option, ...] = (
    Option(("--draft",), str, "Draft tokens, so that one forward may give several; the text is the same. "
           "none, ngram, suffix, auto, early-exit, or a smaller model: a name or a folder.", "Drafts",
           NO_DRAFTER, metavar="NAME"),
    Option(("--draft-tokens",), int | Literal["auto"], "At most this many draft tokens at a time; auto "
           "takes as many as save time.", "Drafts", "auto", Bounds(ge=1, le=64), read=_read_tokens,
           metavar="NUMBER"),
    Option(("--draft-min-p",), float, "Draft only tokens with at least this probability in the drafter.",
           "Drafts", 0.0, Bounds(ge=0, le=1)),
    Option(("--verify",), Policy, "Which draft tokens are accepted. match: those that the model chooses, so "
           "the text is the same; rejection: texts have the same distribution; lossy-typical, "
           "lossy-threshold: more tokens, and the text may differ.", "Drafts", MATCH.policy),
    Option(("--verify-threshold",), float, "lossy-threshold accepts draft tokens with at least this "
           f"probability in the model; {MATCH.threshold} by default.", "Drafts", None, Bounds(gt=0, le=1)),
)  # fmt: skip
