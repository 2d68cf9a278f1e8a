"""The stages `length_decay` and `length_boost`: end-of-text logits that change with the output's length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from processors.base import Admission, Env
from processors.catalog import Phase
from processors.catalog.endings import LengthBoostParams, LengthDecayParams
from processors.errors import TokenError
from processors.params import Params
from processors.rows import Rows
from processors.stages.lists import IdStage, Lists
from processors.stages.tokens import checked, edit
from processors.upload import upload

__all__ = ["LengthBoost", "LengthDecay"]

P = TypeVar("P", bound=Params)
_MOST = 1e200  # largest factor; its product with any float32 logit is finite in float64


class _Ending(IdStage[P]):
    """Base of stages that change the end-of-text logits.

    TokenError at admission for an id outside the vocabulary.
    """

    phase = Phase.ADJUST
    keeps_faults = True

    def listed(self, params: P, request: Admission) -> Iterable[int]:
        """Return the end-of-text ids."""
        return checked(self.env.eos_ids, self.env, self.name)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        ids, filled = self.ids.gather(rows)
        old = logits.gather(1, ids).double()
        return edit(logits, ids, old, torch.where(filled, self._moved(old, rows), old))

    @abstractmethod
    def _moved(self, old: Tensor, rows: Rows) -> Tensor:
        """Return the new logits [A, N] float64 of the end-of-text ids."""


class LengthDecay(_Ending[LengthDecayParams]):
    """x = x + |x| (factor^(n - start) - 1) for end-of-text ids once the output has n > start tokens."""

    name = "length_decay"
    Params = LengthDecayParams

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._decays = Lists(torch.float64, env.device)

    def admit(self, slot: int, params: LengthDecayParams, request: Admission) -> None:
        """Store the start and the factor."""
        super().admit(slot, params, request)
        self._decays.write(slot, params.decay or (0, 1.0))

    def fork(self, source: int, target: int) -> None:
        """Copy the start and the factor."""
        super().fork(source, target)
        self._decays.copy(source, target)

    def _moved(self, old: Tensor, rows: Rows) -> Tensor:
        start, factor = self._decays.gather(rows)[0].T[:, :, None]
        steps = (rows.positions[:, None] - start).clamp_(min=0)
        return old + old.abs() * (torch.pow(factor, steps).clamp_(max=_MOST) - 1)


class LengthBoost(_Ending[LengthBoostParams]):
    """x = x + boost * (n / 10)^power for end-of-text ids after n output tokens.

    With `after`, acts only where the bytes of prompt and output end with one of these texts. TokenError at
    admission: `after` without a tokenizer.
    """

    name = "length_boost"
    Params = LengthBoostParams

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._texts: dict[int, tuple[bytes, ...]] = {}
        self._tails: dict[int, bytes] = {}  # last bytes of each slot, as many as its longest text has

    def admit(self, slot: int, params: LengthBoostParams, request: Admission) -> None:
        """Store the texts, and the last bytes of the prompt."""
        super().admit(slot, params, request)
        if params.after and self.env.vocabulary is None:
            raise TokenError("length_boost has texts in the field after, but no tokenizer to read them.")
        self._texts[slot] = tuple(text.encode(errors="surrogatepass") for text in params.after)
        self._tails[slot] = self._longer(slot, b"", request.prompt if params.after else ())

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the last bytes by the tokens."""
        if self._texts[slot]:
            self._tails[slot] = self._longer(slot, self._tails[slot], tokens)

    def release(self, slot: int) -> None:
        """Drop the slot."""
        self._texts.pop(slot, None)
        self._tails.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        """Copy texts and last bytes."""
        super().fork(source, target)
        self._texts[target], self._tails[target] = self._texts[source], self._tails[source]

    def _moved(self, old: Tensor, rows: Rows) -> Tensor:
        length = rows.positions[:, None].double() / 10
        power = self.columns.exact("power", rows)[:, None]
        boost = self.columns.exact("boost", rows)[:, None] * (length**power).clamp_(max=_MOST)
        texts = self.columns.known("after", rows)
        return old + (boost if texts == {()} else torch.where(self._are_ends(rows, old), boost, 0))

    def _are_ends(self, rows: Rows, like: Tensor) -> Tensor:
        found = [
            not self._texts[slot] or self._longer(slot, self._tails[slot], drafts).endswith(self._texts[slot])
            for slot, drafts in zip(rows.host_slots, rows.host_drafts, strict=True)
        ]
        return upload(found, like.device, torch.bool)[:, None]

    def _longer(self, slot: int, tail: bytes, tokens: Sequence[int]) -> bytes:
        """Return the last bytes of `tail` followed by these tokens."""
        if not tokens or self.env.vocabulary is None:
            return tail
        known, most = self.env.vocabulary.token_bytes, max(map(len, self._texts[slot]), default=0)
        return (tail + b"".join(known[token] for token in tokens if token < len(known)))[-most:]
