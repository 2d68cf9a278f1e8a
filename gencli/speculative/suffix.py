"""Drafts from suffix counts: the most frequent continuation, in the text and in earlier outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter
from gencli.speculative.suffix_counts import Guess, SuffixCounts

__all__ = ["SuffixDrafter"]

_NODES = 250_000  # most nodes of a tree; a full one takes about 60 MB
_MIN_ACCEPTANCE = 0.2  # estimated acceptance of a whole run, below which it ends


@dataclass(slots=True)
class _Text:
    """Counts of a slot's text: the tree, the nodes of the text's suffixes, and the counted tokens.

    `whole`: the live text of the last ask, which may be longer than `tokens`. `is_alone`: other outputs are
    not used for its drafts.
    """

    num_prompt: int
    min_p: float
    is_alone: bool
    counts: SuffixCounts
    ends: list[int] = field(default_factory=lambda: [0])
    tokens: list[int] = field(default_factory=list)
    whole: Sequence[int] = ()


class SuffixDrafter(Drafter):
    """Proposes the most frequent continuation of the longest known suffix of the text.

    Counts come from the text itself and from finished outputs. Memory is bounded: finished outputs fill two
    trees, and when the younger is full the older is dropped.
    """

    def __init__(self, *, nodes: int = _NODES) -> None:
        self._nodes = nodes
        self._texts: dict[int, _Text] = {}
        self._young, self._old = SuffixCounts(nodes), SuffixCounts(nodes)

    def admit(self, slot: int, request: Request) -> None:
        min_p, is_alone = request.drafting.min_p, request.drafts_decide
        self._texts[slot] = _Text(len(request.prompt_ids), min_p, is_alone, SuffixCounts(self._nodes))

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        return [self._run(ask) for ask in asks]

    def release(self, slot: int) -> None:
        """Count the finished output for later texts."""
        text = self._texts.pop(slot)
        if self._young.is_full:
            self._young, self._old = SuffixCounts(self._nodes), self._young
        ends = [0]
        for token in text.whole[text.num_prompt :]:
            ends = self._young.grow(ends, token)

    def trim(self) -> None:
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
        runs = (_best_run(counts.guesses(ends), ask.most, text.min_p) for counts, ends in sources)
        return max(runs, key=lambda run: run[0])[1]


def _best_run(guesses: Iterable[Guess], most: int, min_p: float) -> tuple[float, list[int]]:
    """The draft tokens, and the expected number of them that are accepted."""
    expected, probability, run = 0.0, 1.0, list[int]()
    for guess in guesses:
        probability *= guess.probability
        if probability < _MIN_ACCEPTANCE or guess.probability < min_p or len(run) == most:
            break
        run.append(guess.token)
        expected += probability
    return expected, run
