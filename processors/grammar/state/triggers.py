"""Triggers: literals of a grammar after which a text that may end anywhere may not end any longer.

Around tool calls and structural tags the text is free, so any token may be its last one, but for those that
complete a trigger: they begin a part that has to be ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from processors.grammar.backends.base import Matcher

__all__ = ["TriggerTokens", "find_triggers"]

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)+"')  # of JSON, Lark and EBNF
_MAX_BYTES = 1 << 14  # of all literals that are tried


def find_triggers(text: str, matcher: Matcher, byte_ids: dict[int, int]) -> tuple[bytes, ...]:
    """Return the triggers among the literals of a grammar's text; () where the text may not end at the start.

    A literal is given to the matcher byte by byte; `byte_ids` are the ids of single bytes. The matcher is
    left unchanged.
    """
    if not matcher.is_complete():
        return ()
    triggers = {trigger for data in _literals(text) if (trigger := _ending(data, matcher, byte_ids))}
    return tuple(sorted(one for one in triggers if not any(other in one for other in triggers - {one})))


def _literals(text: str) -> Iterator[bytes]:
    left = _MAX_BYTES
    for literal in dict.fromkeys(_LITERAL.findall(text)):
        try:
            data = json.loads(literal).encode()
        except ValueError:  # other escapes than those of JSON, or half of a surrogate pair
            continue
        left -= len(data)
        if left < 0:
            return
        yield data


def _ending(data: bytes, matcher: Matcher, byte_ids: dict[int, int]) -> bytes:
    """Return the first bytes of the literal after which the text may not end; b"" if it always may."""
    accepted = 0
    try:
        for byte in data:
            if not matcher.accept(byte_ids.get(byte, -1)):
                return b""
            accepted += 1
            if not matcher.is_complete():
                return data[:accepted]
        return b""
    finally:
        matcher.rollback(accepted)


class TriggerTokens:
    """The tokens that complete a trigger, by the end of the text before them."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._containing = lru_cache(maxsize=64)(self._scan)

    def completing(self, text: bytes, triggers: Sequence[bytes]) -> list[int]:
        """Return the ids of the tokens with which `text` contains one more trigger."""
        found = set[int]()
        for trigger in triggers:
            found.update(self._containing(trigger, False))
            for size in range(1, len(trigger)):
                if text.endswith(trigger[:size]):
                    found.update(self._containing(trigger[size:], True))
        return sorted(found)

    def _scan(self, data: bytes, is_first: bool) -> tuple[int, ...]:
        known = enumerate(self._token_bytes)
        if is_first:
            return tuple(token for token, text in known if text.startswith(data))
        return tuple(token for token, text in known if data in text)
