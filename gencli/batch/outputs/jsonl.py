"""JSON Lines: one result per line, or one response line of OpenAI's batch files per row."""

from __future__ import annotations

from gencli.batch.openai import response_line
from gencli.batch.outputs.columns import TextTarget
from gencli.batch.records import Outcome
from gencli.json_text import to_json

__all__ = ["JsonLines", "OpenAILines"]


class JsonLines:
    """Writes the records of `gencli run` with `format` = json, with the row's index first."""

    def __init__(self, target: TextTarget) -> None:
        self._target = target

    def write(self, outcome: Outcome) -> None:
        """Write the row's line."""
        line = {"index": outcome.index, **outcome.result, "id": outcome.id}
        self._target.write(to_json(line) + "\n")


class OpenAILines:
    """Writes response lines with choices and usage, or an error."""

    def __init__(self, target: TextTarget) -> None:
        self._target = target

    def write(self, outcome: Outcome) -> None:
        """Write the row's line."""
        self._target.write(to_json(response_line(outcome.id, outcome.result)) + "\n")
