"""What follows most often behind the last tokens: in the text itself, and in earlier outputs of the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter
from gencli.speculative.suffix_counts import Guess, SuffixCounts

__all__ = ["SuffixDrafter"]

_NODES = 250_000  # of a tree, some 60 MB when it is full
_LEAST = 0.2  # a run that is less likely to stand than this is not drafted


@dataclass(slots=True)
class _Text:
    """What is counted of a slot's text: the tree, the ends of its last runs, and the tokens in it.

    `whole` is the text as it was asked about last, which may have grown since. A text that `is_alone` is
    not drafted from others.
    """

    num_prompt: int
    least: float
    is_alone: bool
    counts: SuffixCounts
    ends: list[int] = field(default_factory=lambda: [0])
    tokens: list[int] = field(default_factory=list)
    whole: Sequence[int] = ()


class SuffixDrafter(Drafter):
    """Counts runs of tokens in each text, and in the outputs that have ended; the longest known run decides.

    Memory is bounded: of outputs there are two trees, and when the younger is full the older is dropped.
    """

    def __init__(self, *, nodes: int = _NODES) -> None:
        self._nodes = nodes
        self._texts: dict[int, _Text] = {}
        self._young, self._old = SuffixCounts(nodes), SuffixCounts(nodes)

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter."""
        least, is_alone = request.drafting.min_p, request.drafts_decide
        self._texts[slot] = _Text(len(request.prompt_ids), least, is_alone, SuffixCounts(self._nodes))

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        """See Drafter."""
        return [self._run(ask) for ask in asks]

    def release(self, slot: int) -> None:
        """The output joins those that have ended."""
        text = self._texts.pop(slot)
        if self._young.is_full:
            self._young, self._old = SuffixCounts(self._nodes), self._young
        ends = [0]
        for token in text.whole[text.num_prompt :]:
            ends = self._young.grow(ends, token)

    def trim(self) -> None:
        """See Drafter."""
        self._young, self._old = SuffixCounts(self._nodes), SuffixCounts(self._nodes)

    def _run(self, ask: DraftAsk) -> list[int]:
        text = self._texts[ask.slot]
        text.whole = ask.tokens
        for token in ask.tokens[len(text.tokens) :]:
            text.tokens.append(token)
            text.ends = text.counts.grow(text.ends, token)
        sources = [(text.counts, text.ends)]
        if not text.is_alone:
            sources += [(counts, counts.ends(text.tokens)) for counts in (self._young, self._old)]
        runs = (_likely(counts.guesses(ends), ask.most, text.least) for counts, ends in sources)
        return max(runs, key=lambda run: run[0])[1]


def _likely(guesses: Iterable[Guess], most: int, least: float) -> tuple[float, list[int]]:
    """How many of the guessed tokens will stand, on average, and the tokens."""
    expected, chance, run = 0.0, 1.0, list[int]()
    for guess in guesses:
        chance *= guess.probability
        if chance < _LEAST or guess.probability < least or len(run) == most:
            break
        run.append(guess.token)
        expected += chance
    return expected, run
