"""JSON Lines: a result a line; or, as OpenAI's batch files have it, a response a line."""

from __future__ import annotations

from gencli.batch.openai import response_line
from gencli.batch.outputs.columns import TextTarget
from gencli.batch.records import Outcome
from gencli.json_text import to_json

__all__ = ["JsonLines", "OpenAILines"]


class JsonLines:
    """The fields of `gencli run --format json`, led by the row's index."""

    def __init__(self, target: TextTarget) -> None:
        self._target = target

    def write(self, outcome: Outcome) -> None:
        """Write the row's line."""
        line = {"index": outcome.index, **outcome.result, "id": outcome.id}
        self._target.write(to_json(line) + "\n")


class OpenAILines:
    """Response objects with choices and usage, or an error."""

    def __init__(self, target: TextTarget) -> None:
        self._target = target

    def write(self, outcome: Outcome) -> None:
        """Write the row's line."""
        self._target.write(to_json(response_line(outcome.id, outcome.result)) + "\n")
