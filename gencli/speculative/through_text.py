"""Draft tokens from a model of another vocabulary, translated through text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from torch import Tensor

from gencli.core.request import Request
from gencli.models.base import ModelRunner
from gencli.speculative.base import DraftAsk, Drafter
from gencli.speculative.draft_kv import DraftLanes
from gencli.speculative.draft_sampler import DraftSampler
from gencli.speculative.translation import Transcript, Translation

__all__ = ["TextModelDrafter"]

_MAX_PASSES = 3  # draft model forward passes per requested draft token


@dataclass(slots=True)
class _Run:
    """The run of one slot: tokens `drawn` by the draft model, and `tokens`, their text in target tokens.

    `most`: target tokens to propose. `enough`: target tokens after which drawing stops; one more than `most`
    where the draft model's tokens are shorter, because the last word may be incomplete. `passes`: maximum
    number of forward passes.
    """

    transcript: Transcript
    most: int
    enough: int
    passes: int
    drawn: list[int] = field(default_factory=list)
    tokens: tuple[int, ...] = ()


class TextModelDrafter(Drafter):
    """Drafts through text, with a model whose vocabulary differs from the target's.

    The draft model decodes greedily in its own vocabulary, without the request's stages, until its text
    spells the requested number of target tokens. The drafts are plain sequences, q(token) = 1, under any
    acceptance policy.
    """

    is_autoregressive = True

    def __init__(self, runner: ModelRunner, translation: Translation, notice: str = "") -> None:
        self._lanes, self._translation = DraftLanes(runner), translation
        self._transcripts: dict[int, Transcript] = {}
        self._prompt: tuple[Request, Transcript] | None = None  # of the last request
        self.notices = (notice,) if notice else ()

    def bind(self, chooser: DraftSampler) -> None:
        self._width = chooser.width

    def admit(self, slot: int, request: Request) -> None:
        """Start a sample. Samples of one request share the translation of their prompt."""
        if self._prompt is None or self._prompt[0] is not request:
            self._prompt = request, _extended(Transcript(self._translation), request.prompt_ids)
        prompt = self._prompt[1]
        self._transcripts[slot] = prompt.fork()
        self._lanes.admit(slot, request)

    def release(self, slot: int) -> None:
        del self._transcripts[slot]
        self._lanes.release(slot)

    def trim(self) -> None:
        self._prompt = None
        self._lanes.trim()

    @torch.inference_mode()
    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        texts = [_extended(self._transcripts[ask.slot], ask.tokens).tokens for ask in asks]
        ready = self._lanes.catch_up(
            [DraftAsk(ask.slot, text, ask.most) for ask, text in zip(asks, texts, strict=True)]
        )
        self.is_reading = self._lanes.is_reading
        for ask in asks:  # later text may change the tokens at the end
            lane = self._lanes[ask.slot]
            lane.num_confirmed = min(lane.num_confirmed, self._transcripts[ask.slot].num_settled)
        runs = self._draft(ready)
        self._lanes.read_on()
        return [runs.get(ask.slot, ()) for ask in asks]

    def _draft(self, asks: Sequence[DraftAsk]) -> dict[int, Sequence[int]]:
        """Draft tokens by slot. Each forward pass adds one draft model token to all runs that continue."""
        runs = {ask.slot: self._begin(ask) for ask in asks}
        to_feed = {ask.slot: self._lanes.missing(ask) for ask in asks}
        while to_feed:
            slots = list(to_feed)
            choices = self._greedy(self._lanes.extend(to_feed))
            to_feed = {}
            for slot, (token, probability) in zip(slots, choices, strict=True):
                if probability >= self._lanes[slot].min_p and self._add(runs[slot], token):
                    to_feed[slot] = (token,)
        return {slot: run.tokens[: run.most] for slot, run in runs.items()}

    def _begin(self, ask: DraftAsk) -> _Run:
        transcript = self._transcripts[ask.slot]
        enough = ask.most + (len(ask.tokens) > transcript.num_read)
        passes = min(_MAX_PASSES * ask.most, self._lanes.spec.context - len(ask.tokens))
        return _Run(transcript, ask.most, enough, passes)

    def _add(self, run: _Run, token: int) -> bool:
        """Add a token to the run. Return whether to draw another."""
        run.drawn.append(token)
        end = run.transcript
        tokens = self._translation.proposal(end.anchor, end.pending, run.drawn)
        if tokens is None:
            return False
        run.tokens = tuple(takewhile(lambda token: token < self._width, tokens))
        is_over = token in self._translation.stops or len(tokens) >= run.enough
        return not is_over and len(run.drawn) < run.passes

    def _greedy(self, logits: Tensor) -> list[tuple[int, float]]:
        """The most probable token of each row of logits [Q, V], and its probability."""
        probabilities = logits[:, : self._translation.draft.vocab_size].float().softmax(dim=-1)
        best, tokens = probabilities.max(dim=-1)
        pairs = torch.stack([tokens.float(), best], dim=1).tolist()  # one device synchronisation
        return [(int(token), probability) for token, probability in pairs]


def _extended(transcript: Transcript, tokens: Sequence[int]) -> Transcript:
    """Append the tokens that the transcript lacks; return it."""
    for token in tokens[transcript.num_read :]:
        transcript.push(token)
    return transcript
