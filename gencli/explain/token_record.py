"""The record of a token as JSON (docs/trace.schema.json) and the levels that colour it; a list of texts as a
vocabulary.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from gencli.results.run_results import ByToken, bytes_of, piece, significant
from gencli.text.tokenizer import Tokenizer
from processors.row_view import Place, RowView, StageView, Weighed

VERSION = 1  # version of the lines of a trace
Record = Mapping[str, Any]


def token_record(view: RowView, tokenizer: Tokenizer, *, run: str, sample: int, position: int) -> Record:
    """Return the record of a token at an output position, counted from 0.

    Ids are written with their texts, [id, text, p]; a special token, which adds no text, with its name.
    Bytes of partial characters appear as U+FFFD; `bytes` has the token's bytes in base64.
    """
    forgone, race, kept = view.forgone, view.race, dict[str, Any]()
    text, name = token_text(view.token, tokenizer), piece(view.token, tokenizer)
    if view.kept is not None:
        from gencli.explain.logits_file import kept_fields

        kept = {"logits": kept_fields(view.kept)}
    return {
        "run": run,
        "sample": sample,
        "pos": position,
        "id": view.token,
        "text": text,
        **({} if name == text else {"name": name}),
        "bytes": base64.b64encode(bytes_of(view.token, tokenizer)).decode("ascii"),
        "raw": _state(view.raw, tokenizer),
        "final": _state(view.final, tokenizer),
        "surprise": significant(view.surprise),
        "stages": [_stage(stage, tokenizer) for stage in view.stages],
        "draw": {
            "kind": race.kind,
            "greedy": race.kind == "greedy",
            "forced": view.final.alive == 1,
            "margin": None if race.margin is None else significant(race.margin),
            "runner_up": _pair(race.runner_up, tokenizer),
        },
        "decided_by": list(view.decided_by),
        "instead": [_pair(token, tokenizer) for token in view.instead],
        "mask": {"constrained_by": list(view.mask.constrained_by), "n_masked": view.mask.n_masked},
        "forgone": forgone
        and {
            "id": forgone.id,
            "text": piece(forgone.id, tokenizer),
            "p": significant(forgone.p_raw),
            "removed_by": forgone.removed_by,
        },
        **kept,
    }


def token_text(token: int, tokenizer: Tokenizer) -> str:
    """Return the characters that a token adds to the text."""
    return bytes_of(token, tokenizer).decode("utf-8", "replace")


def _pair(token: int | None, tokenizer: Tokenizer) -> list[Any] | None:
    return None if token is None else [token, piece(token, tokenizer)]


def _weighed(tokens: Iterable[Weighed], tokenizer: Tokenizer) -> list[list[Any]]:
    return [[token, piece(token, tokenizer), significant(p)] for token, p in tokens]


def _state(state: Place, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "p": significant(state.p),
        "rank": state.rank,
        "logit": significant(state.logit),
        "entropy": significant(state.entropy),
        "alive": state.alive,
        "top": _weighed(state.top, tokenizer),
        "others": significant(state.others),
    }


def _stage(stage: StageView, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "name": stage.name,
        "params": stage.params,
        "acted": stage.acted,
        "alive": list(stage.alive),
        "mass_kept": significant(stage.mass_kept),
        **{key: value for key, value in _state(stage.after, tokenizer).items() if key != "alive"},
        "removed": _weighed(stage.removed, tokenizer),
        "changed": [
            [token, piece(token, tokenizer), significant(before), significant(after)]
            for token, before, after in stage.changed
        ],
        "note": stage.note,
        "why_not": stage.why_not,
    }


Views = ByToken[RowView]


def views() -> Views:
    """Return a collector of the explanations of one request's tokens."""
    return ByToken(lambda event: event.views)


def records(
    views: Iterable[RowView], tokenizer: Tokenizer, *, run: str, sample: int, first: int = 0
) -> list[Record]:
    """Return the records of consecutive tokens; the first one has position `first`."""
    return [
        token_record(view, tokenizer, run=run, sample=sample, position=position)
        for position, view in enumerate(views, start=first)
    ]


@dataclass(frozen=True)
class ListVocabulary:
    """A vocabulary for stages and records: id i is the i-th text. Other texts have no ids."""

    texts: Sequence[str]

    @classmethod
    def numbered(cls, count: int) -> ListVocabulary:
        """Return a vocabulary of `count` ids without texts, named by number."""
        return cls([f"#{number}" for number in range(count)])

    @property
    def vocab_size(self) -> int:
        return len(self.texts)

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset()

    @cached_property
    def token_bytes(self) -> Sequence[bytes]:
        return [text.encode() for text in self.texts]

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return [id] of the text; [] if the vocabulary lacks it."""
        return [self.texts.index(text)] if text in self.texts else []


Scale = Literal["probability", "rank", "entropy", "decided"]

# The level of a value is the number of bounds that it exceeds.
_BOUNDS: dict[str, tuple[float, float, float]] = {
    "probability": (0.5, 0.1, 0.02),
    "rank": (1, 5, 20),
    "entropy": (0.5, 1.5, 3),
    "decided": (0, 1, 2),
}
LEGENDS: dict[str, tuple[str, str, str, str]] = {
    "probability": ("p > .5", ".1 to .5", ".02 to .1", "below .02"),
    "rank": ("first", "2 to 5", "6 to 20", "beyond"),
    "entropy": ("below .5 nats", ".5 to 1.5", "1.5 to 3", "3 and more"),
    "decided": ("by no stage", "one stage", "two", "more"),
}


def level(scale: Scale, value: float | None) -> int:
    """Return the level of a value; the last one for None."""
    if scale == "probability":
        return sum((value or 0.0) < bound for bound in _BOUNDS[scale])
    if value is None:
        return len(_BOUNDS[scale])
    return sum(value >= bound if scale == "entropy" else value > bound for bound in _BOUNDS[scale])
