"""Why a named token was not chosen: its path through the chain at each position of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gencli.errors import UsageError
from gencli.explain.record import token_record, token_text
from gencli.explain.replay import Replay, replay_of
from gencli.text.tokenizer import Tokenizer
from processors.catalog import Draw
from processors.chain import Chain
from processors.explain.kept import KeptLogits
from processors.explain.view import RowView
from processors.registry import Registry

__all__ = ["Seeker", "Sight", "find_token", "why_record"]


@dataclass(frozen=True, slots=True)
class Sight:
    """A named token at one position of a text, whose token there is `chosen`.

    `view` explains the named token. `winner`: the token that the chain draws here, equal to `chosen` for the
    text's own chain. `removed_by`: the stage that masked the named token, "" if none did. `wins_without`:
    stages without each of which the same draw gives the named token. `bound`: smallest kept logit, an upper
    bound of the named token's logit if that was not kept; its probability is then unknown. `kept`: number of
    kept logits.
    """

    view: RowView
    chosen: int
    winner: int
    removed_by: str
    wins_without: tuple[str, ...]
    bound: float | None
    kept: int
    is_exact: bool


class Seeker:
    """Follows texts with a chain and a named token; `sights`: a Sight a position, by request and sample."""

    def __init__(
        self,
        named: int,
        tokenizer: Tokenizer,
        chain: Chain,
        draw: Draw,
        registry: Registry | None = None,
        *,
        count: int = 5,
    ) -> None:
        self.named, self.tokenizer = named, tokenizer
        self.sights: dict[tuple[str, int], list[Sight]] = {}
        self._chain, self._draw, self._registry, self._count = chain, draw, registry, count
        self._replays: dict[tuple[str, int], Replay] = {}

    def add(self, key: tuple[str, int], head: Mapping[str, Any], chosen: int, kept: KeptLogits) -> None:
        """Add the Sight of the next position of a text, whose token there is `chosen`."""
        if key not in self._replays:
            parts = self.tokenizer, self._chain, self._draw, self._registry
            self._replays[key], self.sights[key] = replay_of(head, kept, *parts), []
        self.sights[key].append(_look(self.named, chosen, kept, self._replays[key], self._count))


def _look(named: int, chosen: int, kept: KeptLogits, replay: Replay, count: int) -> Sight:
    if named >= kept.vocab_size:
        raise UsageError(f"Token id {named} is outside the model's vocabulary of {kept.vocab_size}.")
    look = replay.look(kept)
    view = replay.explain(kept, named, count=count)
    replay.commit(chosen)
    is_kept = bool((kept.ids == named).any())
    masks = (stage.name for stage in view.stages if stage.after.rank is None)
    return Sight(
        view=view,
        chosen=chosen,
        winner=look.token,
        removed_by=next(masks, "") if view.raw.rank is not None else "model",
        wins_without=view.wins_without,
        bound=None if is_kept or len(kept.ids) == kept.vocab_size else float(kept.values.min()),
        kept=len(kept.ids),
        is_exact=look.is_exact,
    )


def why_record(sight: Sight, tokenizer: Tokenizer, key: tuple[str, int], position: int) -> dict[str, Any]:
    """Return the record of the named token at a position, extended by the fields of the sight.

    `chosen` and `winner` are [id, text]; `kept` is the number of logits that the trace keeps.
    """
    return {
        **token_record(sight.view, tokenizer, run=key[0], sample=key[1], position=position),
        "chosen": [sight.chosen, token_text(sight.chosen, tokenizer)],
        "winner": [sight.winner, token_text(sight.winner, tokenizer)],
        "removed_by": sight.removed_by,
        "wins_without": list(sight.wins_without),
        "bound": sight.bound,
        "kept": sight.kept,
        "exact": sight.is_exact,
    }


def find_token(text: str, tokenizer: Tokenizer) -> tuple[int, str]:
    """Return the id of the token for this text, and a notice if the token's text differs.

    "#12" means the token with id 12. Otherwise: the token with the same bytes, with a space before them, or
    the first token of the text. Raises UsageError if there is none.
    """
    known = tokenizer.token_bytes
    for wanted in (text, f" {text}"):
        if text and (found := _index(known, wanted.encode())) is not None:
            return found, "" if wanted == text else f"No token is {text!r}, so it is {wanted!r}."
    number = text.removeprefix("#")
    if text.startswith("#") and number.isascii() and number.isdigit() and len(number) < 10:
        return int(number), ""
    if ids := tokenizer.encode(text, special=False) if text else []:
        first = known[ids[0]].decode("utf-8", "replace") if ids[0] < len(known) else f"#{ids[0]}"
        return ids[0], f"{text!r} has {len(ids)} tokens; this is about the first one, {first!r}."
    raise UsageError("No token has this text: it is empty.", hint="Give the text of a token, or #ID.")


def _index(known: Any, wanted: bytes) -> int | None:
    return next((at for at, one in enumerate(known) if one == wanted), None)
