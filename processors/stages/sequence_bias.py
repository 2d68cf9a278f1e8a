"""The stage `sequence_bias`: add to the logit of a token that completes a sequence of tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.catalog import Phase
from processors.catalog.adjust import SequenceBiasParams, SequenceKey
from processors.errors import TokenError
from processors.rows import Rows
from processors.stages.tables import TableStage
from processors.stages.tokens import HIGHEST, LOWEST, checked
from processors.upload import upload

__all__ = ["SequenceBias", "Sequences"]

_Biases = tuple[tuple[SequenceKey, float], ...]


class SequenceBias(TableStage[SequenceBiasParams, "Sequences"]):
    """x[i] = x[i] + bias for each sequence whose last id is i and whose other ids end the text.

    A text key means the ids that the tokenizer makes of it. The text consists of prompt, output and visible
    drafts. -inf bans the completion. TokenError at admission: a text without a tokenizer or without tokens,
    an id outside the vocabulary, a sequence that is listed twice.
    """

    name = "sequence_bias"
    phase = Phase.ADJUST
    Params = SequenceBiasParams

    def tables(self, params: SequenceBiasParams) -> Sequences:
        """Return the tables of the sequences."""
        return self._built(params.biases)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct list of sequences."""
        places = self.places(rows)
        for sequences, index in places.items():
            at = upload(index, logits.device)[:, None]
            some = rows if len(places) == 1 else rows.select(index)
            ids, added = sequences.added(_last_tokens(some, sequences.reach))
            old = logits[at, ids].double()
            new = (old + added).clamp_(LOWEST, HIGHEST).masked_fill_(added == -math.inf, -math.inf)
            logits[at, ids] = torch.where(old.isinf(), old, new).float()
        return logits

    def _built(self, biases: _Biases) -> Sequences:
        found: dict[tuple[int, ...], float] = {}
        for key, value in biases:
            tokens = self._tokens(key)
            if tokens in found:
                raise TokenError(f"sequence_bias names {key!r} twice, as tokens {list(tokens)}. Leave one.")
            found[tokens] = value
        return Sequences(found, self.env.device)

    def _tokens(self, key: SequenceKey) -> tuple[int, ...]:
        """Return the ids of a key: an id, several ids, or a text. TokenError if a text has none."""
        if isinstance(key, str):
            if self.env.vocabulary is None:
                raise TokenError(f"sequence_bias names the text {key!r}, but has no tokenizer. Give ids.")
            key = tuple(self.env.vocabulary.encode(key, special=False))
        tokens = (key,) if isinstance(key, int) else key
        if not tokens:
            raise TokenError("sequence_bias names a sequence without tokens. Remove it.")
        return checked(tokens, self.env, "sequence_bias")


class Sequences:
    """Sequences as tensors: all ids but the last [N, P], right-aligned; biases and last ids [N]."""

    def __init__(self, biases: dict[tuple[int, ...], float], device: torch.device) -> None:
        self.reach = max(map(len, biases)) - 1
        first = [(_ANY,) * (self.reach + 1 - len(tokens)) + tokens[:-1] for tokens in biases]
        self._first = upload(first, device, torch.int64).view(len(biases), self.reach)
        self._bias = upload(list(biases.values()), device, torch.float64)
        last = sorted({tokens[-1] for tokens in biases})
        self._ids = upload(last, device)
        self._place = upload([last.index(tokens[-1]) for tokens in biases], device)

    def added(self, tail: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distinct last ids [U], and the bias of each after tails [A, P] of ids, [A, U]."""
        matches = ((self._first == tail[:, None]) | (self._first == _ANY)).all(2)
        added = torch.zeros(len(tail), len(self._ids), dtype=torch.float64, device=tail.device)
        return self._ids, added.index_add_(1, self._place, torch.where(matches, self._bias, 0))


_ANY = -1  # padding before a shorter sequence; matches any id
_NONE = -2  # padding before the first token of a text; matches no id


def _last_tokens(rows: Rows, count: int) -> Tensor:
    """Return the last `count` tokens that each row sees [R, count]; _NONE before the first."""
    if not count:
        return rows.slots.new_empty(len(rows), 0)
    ids = torch.nn.functional.pad(rows.visible().ids, (1, 0), value=_NONE)
    total = (rows.history.lengths[rows.slots] + rows.offsets)[:, None]
    column = total - count + 1 + torch.arange(count, device=ids.device)
    return ids.gather(1, column.clamp_(min=0))
