"""Navigation in a trace by keys: position, and effect of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from gencli.explain.levels import Scale
from gencli.explain.record import Record
from gencli.explain.trace_file import TracedText

__all__ = ["KEYS", "Walk", "press"]

_SURPRISING = 4.0  # bits of a surprising token
_PAGE = 10  # tokens of a page
_Panel = Literal["distribution", "alternatives", "help"]


@dataclass(frozen=True, slots=True)
class Walk:
    """A position in texts with at least one token each: text, token, and stage.

    Stage 0 is the model, then come the token's stages, and last the draw. `note`: about the last key.
    """

    texts: tuple[TracedText, ...]
    text: int = 0
    token: int = 0
    stage: int = 0
    panel: _Panel = "distribution"
    scale: Scale = "probability"
    note: str = ""
    is_over: bool = False

    @property
    def records(self) -> tuple[Record, ...]:
        """The token records of the current text."""
        return self.texts[self.text].records

    @property
    def record(self) -> Record:
        """The record of the current token."""
        return self.records[self.token]

    def at(self, token: int) -> Walk:
        """Return the position at the nearest existing token, at the same stage if that token has it."""
        moved = replace(self, token=min(max(token, 0), len(self.records) - 1))
        return moved.at_stage(self.stage)

    def at_stage(self, stage: int) -> Walk:
        """Return the position at the nearest existing stage."""
        return replace(self, stage=min(max(stage, 0), len(self.record["stages"]) + 1))


def press(walk: Walk, key: str) -> Walk:
    """Return the position after a key; an unknown key changes nothing."""
    action = KEYS.get(key)
    return walk if action is None else action[1](replace(walk, note=""))


def _to(found: Iterable[int], walk: Walk, missing: str) -> Walk:
    """Go to the first of these tokens; without any, set the note `missing`."""
    token = next(iter(found), None)
    return replace(walk, note=missing) if token is None else walk.at(token)


def _decided(walk: Walk) -> Walk:
    rest = range(walk.token + 1, len(walk.records))
    found = (at for at in rest if walk.records[at]["decided_by"])
    return _to(found, walk, "No stage decided a later token.")


def _surprising(walk: Walk) -> Walk:
    rest = range(walk.token + 1, len(walk.records))
    found = (at for at in rest if _bits(walk.records[at]) >= _SURPRISING)
    return _to(found, walk, f"No later token has {_SURPRISING:g} bits or more.")


def _bits(record: Record) -> float:
    bits = record["surprise"]
    return float("inf") if bits is None else float(bits)


def _panel(name: _Panel) -> Callable[[Walk], Walk]:
    """Return the action of a key that opens a panel, and closes it again."""
    return lambda walk: replace(walk, panel="distribution" if walk.panel == name else name)


def _next_scale(walk: Walk) -> Walk:
    scales: tuple[Scale, ...] = get_args(Scale)
    return replace(walk, scale=scales[(scales.index(walk.scale) + 1) % len(scales)])


def _next_text(walk: Walk) -> Walk:
    return replace(walk, text=(walk.text + 1) % len(walk.texts), token=0).at(0)


KEYS: dict[str, tuple[str, Callable[[Walk], Walk]]] = {
    "left": ("the token before", lambda walk: walk.at(walk.token - 1)),
    "right": ("the next token", lambda walk: walk.at(walk.token + 1)),
    "up": ("the stage before", lambda walk: walk.at_stage(walk.stage - 1)),
    "down": ("the next stage", lambda walk: walk.at_stage(walk.stage + 1)),
    "pageup": (f"{_PAGE} tokens back", lambda walk: walk.at(walk.token - _PAGE)),
    "pagedown": (f"{_PAGE} tokens on", lambda walk: walk.at(walk.token + _PAGE)),
    "home": ("the first token", lambda walk: walk.at(0)),
    "end": ("the last token", lambda walk: walk.at(len(walk.records))),
    "n": ("the next token that a stage decided", _decided),
    "u": (f"the next surprising token, {_SURPRISING:g} bits or more", _surprising),
    "a": ("alternatives: what else was likely, and what became of it", _panel("alternatives")),
    "c": ("colour by probability, rank, entropy, deciding stages", _next_scale),
    "t": ("the next text", _next_text),
    "?": ("these keys", _panel("help")),
    "q": ("leave", lambda walk: replace(walk, is_over=True)),
}
