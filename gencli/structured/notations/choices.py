"""`--choice`: the output is one of a few texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gencli.errors import ConfigError
from gencli.structured.plan import Audit, Plan, Variant
from processors.constraint import Constraint

__all__ = ["ChoiceCheck", "plan_choices"]


@dataclass(frozen=True, slots=True)
class ChoiceCheck:
    """Looks the finished text up."""

    choices: tuple[str, ...]

    def faults(self, text: str) -> tuple[str, ...]:
        """See TextCheck."""
        return () if text in self.choices else (f"{text!r} is none of the {len(self.choices)} choices.",)


def plan_choices(choices: Sequence[str]) -> Plan:
    """How to enforce one of these texts. One of them may begin another.

    ConfigError for none, an empty one, one that is given twice, or one that is no text.
    """
    if not choices:
        raise ConfigError(
            "There is no choice.", hint="Give at least one, better two: --choice yes --choice no."
        )
    seen: set[str] = set()
    for number, choice in enumerate(choices, start=1):
        _refuse(choice, number, seen)
        seen.add(choice)
    constraint = Constraint("choice", json.dumps(list(choices)), "trie")
    check = ChoiceCheck(tuple(choices))
    return Plan((Variant(constraint, Audit("trie")),), "A list of texts needs no grammar.", check=check)


def _refuse(choice: object, number: int, seen: set[str]) -> None:
    if not isinstance(choice, str):
        raise ConfigError(f"Choice {number} is {choice!r}, which is no text.", hint="Put it into quotes.")
    if not choice:
        raise ConfigError(f"Choice {number} is empty.", hint="An output has at least one character.")
    if choice in seen:
        raise ConfigError(f"Choice {number} is {choice!r}, as an earlier one is.", hint="Give each once.")
    if not choice.isascii() and any("\ud800" <= letter <= "\udfff" for letter in choice):
        raise ConfigError(f"Choice {number} is {choice!r}, which is not valid UTF-8.")
