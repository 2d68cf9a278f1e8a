"""The stage `force`: write a given text into the output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from processors.base import Admission
from processors.catalog.forcing import ForceParams
from processors.errors import TokenError
from processors.marker import Marker
from processors.rows import Rows
from processors.stages.script import Script, ScriptStage, spelled
from processors.stages.tokens import checked
from processors.upload import upload

__all__ = ["Force"]


@dataclass(frozen=True, slots=True, eq=False)
class _Rules:
    """Constants of a request. The text begins after at most `begin` output tokens; None for no limit."""

    ids: tuple[int, ...]
    begin: int | None = None
    marker: Marker | None = None
    after_id: int | None = None
    before_end: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Writing(Script):
    """State: `place`, index of the text's next id, None before it begins; `count`, output tokens so far."""

    rules: _Rules
    place: int | None = None
    count: int = 0
    tail: bytes = b""  # last output bytes, while the stage waits for a marker text

    @property
    def ahead(self) -> tuple[int, ...]:
        return () if self.place is None else self.rules.ids[self.place :]

    @property
    def is_held(self) -> bool:
        return self.rules.before_end and self.place is None

    def begun(self) -> _Writing:
        """Return the state at the beginning of the text."""
        return replace(self, place=0)

    def step(self, token: int) -> _Writing:
        if self.place is not None:
            return replace(self, place=min(self.place + 1, len(self.rules.ids)))
        count, tail, rules = self.count + 1, b"", self.rules
        if rules.marker is not None:
            found = rules.marker.step(self.tail, token)
            is_here, tail = found is None, found or b""
        else:
            is_here = token == rules.after_id or count == rules.begin
        return replace(self, place=0 if is_here else None, count=count, tail=tail)


class Force(ScriptStage[ForceParams]):
    """Write a text once: at the start, after a text, an id or a number of tokens, or before the end.

    "Before the end" is where an end-of-text or stop id has the largest logit, or where `max_tokens` leaves
    room for the text only; until then end ids are masked. TokenError at admission: an id outside the
    vocabulary, or a text without a tokenizer.
    """

    name = "force"
    Params = ForceParams

    def script(self, params: ForceParams, request: Admission) -> Script:
        """Return the state before the first output token."""
        ids = checked(params.ids or spelled(params.text, self.env.vocabulary, "force"), self.env, "force")
        marker, begin = None, None
        if params.at == "text":
            if self.env.vocabulary is None:
                raise TokenError("force waits for a text, but there is no tokenizer. Use at=id.")
            marker = Marker.of(params.after, self.env.vocabulary)
            begin = 0 if marker.ends(request.prompt) else None
        elif params.at == "tokens":
            begin = params.after_tokens
        elif params.at == "start":
            begin = 0
        elif params.at == "end" and request.max_tokens is not None:
            begin = max(0, request.max_tokens - len(ids))
        after_id = params.after_id
        if after_id is not None:
            checked((after_id,), self.env, "force")
        waiting = _Writing(_Rules(ids, begin, marker, after_id, params.at == "end"))
        return waiting.begun() if begin == 0 else waiting

    def _decide(self, logits: Tensor, rows: Rows) -> None:
        """Begin the text in each row where an end id has the largest logit, for texts `at: end`.

        Copies one flag of each such row from the device to the host.
        """
        seen = [*zip(rows.host_slots, rows.host_drafts, strict=True)]
        places = [
            place for place, (slot, _) in enumerate(seen)
            if self._ends[slot] and self._replays[slot].after((), is_plain=True).is_held
        ]  # fmt: skip
        if not places:
            return
        width = max(len(self._ends[seen[place][0]]) for place in places)
        ends = [self._ends[seen[place][0]] for place in places]
        ids = upload([[*own, *own[-1:] * (width - len(own))] for own in ends], logits.device, torch.int64)
        some = logits[upload(places, logits.device)]
        best = some.amax(1)
        flags = ((some.gather(1, ids).amax(1) == best) & best.isfinite()).tolist()
        for place, is_end in sorted(zip(places, flags, strict=True), key=lambda pair: len(seen[pair[0]][1])):
            slot, drafts = seen[place]
            plain = cast(_Writing, self._replays[slot].after(drafts, is_plain=True))
            self._replays[slot].decide(drafts, plain.begun() if is_end and plain.is_held else plain)
