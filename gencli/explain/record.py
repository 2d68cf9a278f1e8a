"""The record of a token as JSON (docs/trace.schema.json), one line of a trace file."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from gencli.text.tokenizer import Tokenizer
from processors.explain.view import Place, RowView, StageView, Weighed

__all__ = ["VERSION", "Record", "significant", "token_record", "token_text"]

VERSION = 1  # version of the lines of a trace
Record = Mapping[str, Any]
_DIGITS = 6  # significant digits of a number


def token_record(view: RowView, tokenizer: Tokenizer, *, run: str, sample: int, position: int) -> Record:
    """Return the record of a token at an output position, counted from 0.

    Ids are written with their texts, [id, text, p]. Bytes of partial characters appear as U+FFFD; `bytes` has
    the token's bytes in base64.
    """
    names = _Names(tokenizer)
    return {
        "run": run,
        "sample": sample,
        "pos": position,
        "id": view.token,
        "text": names.text(view.token),
        "bytes": base64.b64encode(names.bytes(view.token)).decode("ascii"),
        "raw": _place(view.raw, names),
        "final": _place(view.final, names),
        "surprise": significant(view.surprise),
        "stages": [_stage(stage, names) for stage in view.stages],
        "draw": {
            "kind": view.race.kind,
            "greedy": view.race.kind == "greedy",
            "forced": view.final.alive == 1,
            "margin": None if view.race.margin is None else significant(view.race.margin),
            "runner_up": None if view.race.runner_up is None else names.pair(view.race.runner_up),
        },
        "decided_by": list(view.decided_by),
        "instead": [None if token is None else names.pair(token) for token in view.instead],
        "mask": {"constrained_by": list(view.mask.constrained_by), "n_masked": view.mask.n_masked},
        "forgone": None
        if view.forgone is None
        else {
            "id": view.forgone.id,
            "text": names.text(view.forgone.id),
            "p": significant(view.forgone.p_raw),
            "removed_by": view.forgone.removed_by,
        },
        **_kept(view),
    }


def _kept(view: RowView) -> dict[str, Any]:
    if view.kept is None:
        return {}
    from gencli.explain.kept import kept_fields  # imports torch, which readers of a trace do not need

    return {"logits": kept_fields(view.kept)}


def token_text(token: int, tokenizer: Tokenizer) -> str:
    """Return the characters that a token adds to the text."""
    return _Names(tokenizer).text(token)


class _Names:
    """Looks up the texts of ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def bytes(self, token: int) -> bytes:
        """Return the bytes that the token adds to the text."""
        known = self._tokenizer.token_bytes
        return known[token] if token < len(known) else b""

    def text(self, token: int) -> str:
        """Return the characters that the token adds to the text."""
        return self.bytes(token).decode("utf-8", "replace")

    def pair(self, token: int) -> list[Any]:
        """Return [id, text]."""
        return [token, self.text(token)]

    def weighed(self, found: Iterable[Weighed]) -> list[list[Any]]:
        """Return [id, text, p] for each pair."""
        return [[token, self.text(token), significant(p)] for token, p in found]


def significant(value: float) -> float | None:
    """Return the number with six significant digits; None if it is not finite."""
    rounded = float(f"{value:.{_DIGITS}g}")
    return rounded if abs(rounded) != float("inf") and rounded == rounded else None


def _place(place: Place, names: _Names) -> dict[str, Any]:
    return {
        "p": significant(place.p),
        "rank": place.rank,
        "logit": significant(place.logit),
        "entropy": significant(place.entropy),
        "alive": place.alive,
        "top": names.weighed(place.top),
        "others": significant(place.others),
    }


def _stage(stage: StageView, names: _Names) -> dict[str, Any]:
    return {
        "name": stage.name,
        "params": stage.params,
        "acted": stage.acted,
        "alive": list(stage.alive),
        "mass_kept": significant(stage.mass_kept),
        **{key: value for key, value in _place(stage.after, names).items() if key != "alive"},
        "removed": names.weighed(stage.removed),
        "changed": [
            [token, names.text(token), significant(before), significant(after)]
            for token, before, after in stage.changed
        ],
        "note": stage.note,
        "why_not": stage.why_not,
    }
