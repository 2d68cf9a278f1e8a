"""A model of another vocabulary guesses: it reads the text, and its own is spelled in the target's tokens."""

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
from gencli.speculative.transcript import Transcript
from gencli.speculative.translation import Translation

__all__ = ["TextModelDrafter"]

_PASSES = 3  # for each token that is wanted, at the most


@dataclass(slots=True)
class _Run:
    """What is drawn for a slot in so many passes at the most, and what that is in the target's tokens.

    At most `most` of these are proposed, and `enough` are drawn: one more where the draft's tokens are the
    shorter ones, as it would stop inside a word.
    """

    transcript: Transcript
    most: int
    enough: int
    passes: int
    drawn: list[int] = field(default_factory=list)
    tokens: tuple[int, ...] = ()


class TextModelDrafter(Drafter):
    """Drafts through text, with a model that has another vocabulary than the target.

    It draws what is most likely in its own vocabulary, of which the request's stages know nothing, until its
    text has the tokens that are wanted. So drafts are certain, and not drawn with noise, whatever verifies
    them.
    """

    passes = True

    def __init__(self, runner: ModelRunner, translation: Translation, notice: str = "") -> None:
        self._lanes, self._translation = DraftLanes(runner), translation
        self._transcripts: dict[int, Transcript] = {}
        self._prompt: tuple[Request, Transcript] | None = None  # the last that was spelled
        self.notices = (notice,) if notice else ()

    def bind(self, chooser: DraftSampler) -> None:
        """See Drafter."""
        self._width = chooser.width

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter. Samples of one request share what their prompt was spelled as."""
        if self._prompt is None or self._prompt[0] is not request:
            self._prompt = request, _follow(Transcript(self._translation), request.prompt_ids)
        prompt = self._prompt[1]
        self._transcripts[slot] = prompt.fork()
        self._lanes.admit(slot, request, len(prompt.tokens))

    def release(self, slot: int) -> None:
        """See Drafter."""
        del self._transcripts[slot]
        self._lanes.release(slot)

    def trim(self) -> None:
        """See Drafter."""
        self._prompt = None
        self._lanes.trim()

    @torch.inference_mode()
    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        """See Drafter."""
        texts = [_follow(self._transcripts[ask.slot], ask.tokens).tokens for ask in asks]
        ready = self._lanes.catch_up(
            [DraftAsk(ask.slot, text, ask.most) for ask, text in zip(asks, texts, strict=True)]
        )
        self.is_reading = self._lanes.is_reading
        for ask in asks:  # what follows may change how the end of a text is spelled
            lane = self._lanes[ask.slot]
            lane.sure = min(lane.sure, self._transcripts[ask.slot].num_settled)
        runs = self._draft(ready)
        self._lanes.read_on()
        return [runs.get(ask.slot, ()) for ask in asks]

    def _draft(self, asks: Sequence[DraftAsk]) -> dict[int, Sequence[int]]:
        """Proposals by slot: a pass for the first draft of all, one for the second of those that go on..."""
        runs = {ask.slot: self._begin(ask) for ask in asks}
        fresh = {ask.slot: self._lanes.missing(ask) for ask in asks}
        while fresh:
            slots = list(fresh)
            choices = self._greedy(self._lanes.extend(fresh))
            fresh = {}
            for slot, (token, probability) in zip(slots, choices, strict=True):
                if probability >= self._lanes[slot].least and self._goes_on(runs[slot], token):
                    fresh[slot] = (token,)
        return {slot: run.tokens[: run.most] for slot, run in runs.items()}

    def _begin(self, ask: DraftAsk) -> _Run:
        transcript = self._transcripts[ask.slot]
        enough = ask.most + (len(ask.tokens) > transcript.num_read)
        passes = min(_PASSES * ask.most, self._lanes.spec.context - len(ask.tokens))
        return _Run(transcript, ask.most, enough, passes)

    def _goes_on(self, run: _Run, token: int) -> bool:
        """Add a token; whether another is to be drawn."""
        run.drawn.append(token)
        end = run.transcript
        tokens = self._translation.proposal(end.anchor, end.pending, run.drawn)
        if tokens is None:
            return False
        run.tokens = tuple(takewhile(lambda token: token < self._width, tokens))
        is_over = token in self._translation.stops or len(tokens) >= run.enough
        return not is_over and len(run.drawn) < run.passes

    def _greedy(self, logits: Tensor) -> list[tuple[int, float]]:
        """For each row [V] the token that is most likely, and how likely."""
        chances = logits[:, : self._translation.draft.vocab_size].float().softmax(dim=-1)
        best, tokens = chances.max(dim=-1)
        pairs = torch.stack([tokens.float(), best], dim=1).tolist()  # one wait for the device
        return [(int(token), chance) for token, chance in pairs]


def _follow(transcript: Transcript, tokens: Sequence[int]) -> Transcript:
    """Read on to the end of the tokens."""
    for token in tokens[transcript.num_read :]:
        transcript.push(token)
    return transcript
