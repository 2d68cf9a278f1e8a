"""The fields of a choice beyond OpenAI's: stop match, token ids, faults, trace."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gencli.explain.views import records
from gencli.server.wire.answers import Delta
from gencli.server.wire.call import Call
from gencli.server.wire.logprobs import TokenNames

__all__ = ["Notes"]


class Notes:
    """Makes the additional fields of choices, in the reply with id `key`; counts explained tokens."""

    def __init__(self, call: Call, key: str, names: TokenNames) -> None:
        self._call, self._key, self._names = call, key, names
        self._positions = Counter[int]()

    def of(self, index: int, delta: Delta) -> dict[str, Any]:
        """Return the additional fields for an increment of a choice."""
        found: dict[str, Any] = {}
        if delta.matched is not None:
            found["stop_reason"] = delta.matched
        if delta.faults:
            found["faults"] = list(delta.faults)
        if self._call.has_ids and delta.ids:
            found["token_ids"] = list(delta.ids)
        if delta.views:
            first, self._positions[index] = self._positions[index], self._positions[index] + len(delta.views)
            found["trace"] = records(
                delta.views, self._names.tokenizer, run=self._key, sample=index, first=first
            )
        return found
