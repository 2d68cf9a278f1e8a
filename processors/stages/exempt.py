"""Ids that a request exempts from a stage: keywords, ids, and texts of one token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from processors.base import Admission, Env
from processors.stages.tokens import token_id

__all__ = ["Exempt"]


class Exempt:
    """Reads the field `exempt` of a stage.

    `special` are the special tokens of the vocabulary, `eos` the end-of-text ids, `stop` these and the stop
    ids of the request, `newline` every token with a line feed. Without a vocabulary there are no special
    tokens and no newlines.
    """

    def __init__(self, env: Env, stage: str) -> None:
        self._env, self._stage = env, stage
        self._keywords: Mapping[str, Callable[[Admission], Iterable[int]]] = {
            "special": lambda request: env.vocabulary.special_ids if env.vocabulary else (),
            "eos": lambda request: env.eos_ids,
            "stop": lambda request: (*env.eos_ids, *request.stop_ids),
            "newline": lambda request: self._newlines,
        }

    def ids(self, keys: Iterable[int | str], request: Admission) -> set[int]:
        """Return the ids that the keys name. TokenError for a text that is not one token."""
        found: set[int] = set()
        for key in keys:
            if isinstance(key, str) and key in self._keywords:
                found.update(self._keywords[key](request))
            else:
                found.add(token_id(key, self._env, f"{self._stage}: exempt"))
        return found

    @cached_property
    def _newlines(self) -> tuple[int, ...]:
        known = self._env.vocabulary.token_bytes if self._env.vocabulary else ()
        return tuple(token for token, data in enumerate(known) if b"\n" in data)
