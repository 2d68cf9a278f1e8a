"""`Cuts`: positions where a repetition ends: at breaker texts, in any tokenization, and at exempt ids."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from processors.base import Env
from processors.errors import TokenError
from processors.rows import Rows
from processors.upload import upload, upload_ints

__all__ = ["Cuts"]


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """Rule of a slot: breakers of more than one byte, ids that cut on their own, spared ids [V] bool."""

    breakers: tuple[bytes, ...]
    cutting: frozenset[int]
    spared: Tensor

    @property
    def reach(self) -> int:
        """Number of bytes before a token that may belong to a breaker that ends in the token."""
        return max(map(len, self.breakers), default=1) - 1


@dataclass(frozen=True, slots=True)
class _Place:
    """State after some tokens: the last bytes, in which a breaker may have begun, and tokens since a cut."""

    tail: bytes
    num_since: int


class Cuts:
    """Counts for each slot the tokens since the latest cut.

    A token cuts if a breaker ends in it (alone, inside it, or begun in earlier tokens), or if its id is
    exempt. Special tokens have no bytes. Tokens that contain a whole breaker, and exempt ids, are spared:
    they get no penalty.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        self._bytes = env.vocabulary.token_bytes if env.vocabulary else ()
        self._rules: dict[int, _Rule] = {}
        self._places: dict[int, _Place] = {}
        self._build = functools.lru_cache(maxsize=16)(self._built)

    def admit(
        self,
        slot: int,
        prompt: Sequence[int],
        *,
        breakers: tuple[str, ...] = (),
        exempt: Iterable[int] = (),
        spares_breakers: bool = True,
        what: str = "",
    ) -> None:
        """Set the state after a request's prompt. TokenError for breakers without a tokenizer."""
        if breakers and self._env.vocabulary is None:
            raise TokenError(
                f"{what} has breakers, which are texts, but there is no tokenizer. Set breakers=[]."
            )
        rule = self._build(breakers, frozenset(exempt), spares_breakers)
        self._rules[slot], self._places[slot] = rule, self._begun(rule, prompt)

    def commit(self, slot: int, tokens: Iterable[int]) -> None:
        """Advance the slot by committed tokens."""
        rule, place = self._rules[slot], self._places[slot]
        for token in tokens:
            place = self._next(rule, place, token)
        self._places[slot] = place

    def release(self, slot: int) -> None:
        """Drop the slot."""
        self._rules.pop(slot, None)
        self._places.pop(slot, None)

    def copy(self, source: int, target: int) -> None:
        """Copy one slot to another."""
        self._rules[target], self._places[target] = self._rules[source], self._places[source]

    def num_since(self, rows: Rows) -> Tensor:
        """Return for each row the number of tokens that it sees after the latest cut [R]."""
        found: list[int] = []
        place, before = _Place(b"", 0), (-1, tuple[int, ...]())
        for slot, drafts in zip(rows.host_slots, rows.host_drafts, strict=True):
            if not drafts or before != (slot, drafts[:-1]):  # else the row sees one draft more
                place = self._places[slot]
                for token in drafts[:-1]:
                    place = self._next(self._rules[slot], place, token)
            if drafts:
                place = self._next(self._rules[slot], place, drafts[-1])
            before = slot, drafts
            found.append(place.num_since)
        return upload_ints(found, rows.history.device)

    def is_spared(self, ids: Tensor, rows: Rows) -> Tensor:
        """Return which of the ids [R, W] are spared; every id is below V."""
        places: dict[_Rule, list[int]] = {}
        for place, slot in enumerate(rows.host_slots):
            places.setdefault(self._rules[slot], []).append(place)
        if len(places) == 1:
            (rule,) = places
            return rule.spared[ids]
        flags = torch.zeros_like(ids, dtype=torch.bool)
        for rule, some in places.items():
            at = upload(some, ids.device)
            flags[at] = rule.spared[ids[at]]
        return flags

    def _built(self, breakers: tuple[str, ...], exempt: frozenset[int], spares_breakers: bool) -> _Rule:
        texts = tuple(text.encode(errors="surrogatepass") for text in breakers)
        whole = {token for text in texts for token, data in enumerate(self._bytes) if text in data}
        spared = torch.zeros(self._env.vocab_size, dtype=torch.bool)
        ids = [token for token in (exempt | whole if spares_breakers else exempt) if token < len(spared)]
        spared[ids] = True
        longer = tuple(text for text in texts if len(text) > 1)
        return _Rule(longer, exempt | whole, spared.to(self._env.device, non_blocking=True))

    def _begun(self, rule: _Rule, prompt: Sequence[int]) -> _Place:
        """Return the state after a prompt, found by a search from its end."""
        since = next((i for i, token in enumerate(reversed(prompt)) if token in rule.cutting), len(prompt))
        if not rule.breakers:
            return _Place(b"", since)
        parts = [self._spelled(token) for token in prompt]
        text = b"".join(parts)
        ends = [text.rfind(breaker) + len(breaker) for breaker in rule.breakers if breaker in text]
        if ends:
            since = min(since, _num_behind(parts, len(text) - max(ends)))
        return _Place(text[max(0, len(text) - rule.reach) :], since)

    def _next(self, rule: _Rule, place: _Place, token: int) -> _Place:
        """Return the state after one more token."""
        if not rule.breakers:
            return _Place(b"", 0 if token in rule.cutting else place.num_since + 1)
        tail, added = place.tail, self._spelled(token)
        text = tail + added
        cuts = token in rule.cutting or any(
            text.find(breaker, max(0, len(tail) - len(breaker) + 1)) >= 0 for breaker in rule.breakers
        )
        return _Place(text[max(0, len(text) - rule.reach) :], 0 if cuts else place.num_since + 1)

    def _spelled(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""


def _num_behind(parts: Sequence[bytes], size: int) -> int:
    """Return how many of the last tokens lie entirely within the last `size` bytes."""
    count = 0
    for part in reversed(parts):
        size -= len(part)
        if size < 0:
            break
        count += 1
    return count
