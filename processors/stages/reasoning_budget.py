"""The stage `reasoning_budget`: end the model's reasoning after a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from processors.base import Admission
from processors.catalog.forcing import ReasoningBudgetParams
from processors.errors import TokenError
from processors.marker import Marker
from processors.stages.script import Script, ScriptStage, spelled

__all__ = ["ReasoningBudget"]

_State = Literal["outside", "counting", "waiting", "writing"]
_LONGEST = 3  # bytes of an incomplete UTF-8 character


@dataclass(frozen=True, slots=True, eq=False)
class _Rules:
    """Constants of a request. `closing`: ids of the message and the end tag."""

    tokens: int
    start: Marker
    end: Marker
    closing: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Thinking(Script):
    """State of the output: outside of reasoning, counting, waiting for a complete character, or writing.

    It waits once the budget is used, and writes the closing. Outside, a start tag begins a new count.

    `tail`: last output bytes, in which the next tag may begin. `cut`: bytes of an incomplete character at the
    end. `left`: tokens of the budget that are left. `place`: index of the next id of the closing.
    """

    rules: _Rules
    state: _State = "outside"
    tail: bytes = b""
    cut: bytes = b""
    left: int = 0
    place: int = 0

    @property
    def ahead(self) -> tuple[int, ...]:
        return self.rules.closing[self.place :] if self.state == "writing" else ()

    @property
    def is_held(self) -> bool:
        return self.state == "waiting"

    def opened(self) -> _Thinking:
        """Return the state after a start tag."""
        return _Thinking(self.rules, "counting" if self.rules.tokens else "writing", left=self.rules.tokens)

    def step(self, token: int) -> _Thinking:
        if self.state == "writing":
            place = self.place + 1
            return replace(self, place=place) if place < len(self.rules.closing) else _Thinking(self.rules)
        tag = self.rules.start if self.state == "outside" else self.rules.end
        tail = tag.step(self.tail, token)
        if self.state == "outside":
            return self.opened() if tail is None else replace(self, tail=tail)
        if tail is None:
            return _Thinking(self.rules)
        known = tag.vocabulary.token_bytes
        cut = _cut(self.cut + (known[token] if token < len(known) else b""))
        left = max(0, self.left - 1)
        state: _State = "counting" if left else "waiting" if cut else "writing"
        return replace(self, state=state, tail=tail, cut=cut, left=left)


class ReasoningBudget(ScriptStage[ReasoningBudgetParams]):
    """Write the message and the end tag once `tokens` tokens have followed a start tag.

    Tags are found in any tokenization, or as one special token. The closing waits for a complete character. A
    prompt that ends with the start tag, white space aside, begins the count; with `open`, so does each prompt
    that does not end with the end tag. Each further start tag begins a new count. TokenError at admission: no
    tokenizer.
    """

    name = "reasoning_budget"
    Params = ReasoningBudgetParams

    def script(self, params: ReasoningBudgetParams, request: Admission) -> Script:
        """Return the state before the first output token."""
        vocabulary = self.env.vocabulary
        if vocabulary is None:
            raise TokenError("reasoning_budget looks for texts, but there is no tokenizer.")
        start, end = Marker.of(params.start, vocabulary), Marker.of(params.end, vocabulary)
        closing = spelled(params.message + params.end, vocabulary, "reasoning_budget")
        script = _Thinking(_Rules(params.tokens or 0, start, end, closing))
        is_begun = start.ends(request.prompt) or (params.open and not end.ends(request.prompt))
        return script.opened() if is_begun else script


def _cut(text: bytes) -> bytes:
    """Return the bytes of the incomplete UTF-8 character with which the text ends; b"" if there is none."""
    for size in range(1, min(_LONGEST, len(text)) + 1):
        first = text[-size]
        if first >= 0xC0:
            whole = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return text[-size:] if size < whole else b""
        if first < 0x80:
            break
    return b""
