"""Drafts from suffix counts: the most frequent continuation, in the text and in earlier outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter

__all__ = ["DEPTH", "Guess", "SuffixCounts", "SuffixDrafter"]

_NODES = 250_000  # most nodes of a tree; a full one takes about 60 MB
_MIN_ACCEPTANCE = 0.2  # estimated acceptance of a whole run, below which it ends


@dataclass(slots=True)
class _Text:
    """Counts of a slot's text: the tree, the nodes of the text's suffixes, and the counted tokens.

    `whole`: the live text of the last ask, which may be longer than `tokens`. `is_alone`: other outputs are
    not used for its drafts. `is_private`: its output is not used for those of others.
    """

    num_prompt: int
    min_p: float
    is_alone: bool
    is_private: bool
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
        min_p, is_private = request.drafting.min_p, bool(request.salt)
        is_alone, counts = request.drafts_decide or is_private, SuffixCounts(self._nodes)
        self._texts[slot] = _Text(len(request.prompt_ids), min_p, is_alone, is_private, counts)

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        return [self._run(ask) for ask in asks]

    def release(self, slot: int) -> None:
        """Count the finished output for later texts."""
        text = self._texts.pop(slot)
        if text.is_private:
            return
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


DEPTH = 10  # longest counted n-gram, in tokens


@dataclass(frozen=True, slots=True)
class Guess:
    """A possible next token and its estimated probability."""

    token: int
    probability: float


class SuffixCounts:
    """Number of occurrences of each n-gram of up to DEPTH tokens, as a tree that grows token by token.

    A node is an n-gram; node 0 is the empty one. Each node has the number of its continuations and the most
    frequent one. A full tree, of `most` nodes, adds no new n-grams.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._child: dict[tuple[int, int], int] = {}  # child node by node and token
        self._count, self._followed, self._best = [0], [0], [-1]

    def __len__(self) -> int:
        return len(self._count)

    @property
    def is_full(self) -> bool:
        """Whether new n-grams are no longer added."""
        return len(self) >= self._most

    def grow(self, ends: Sequence[int], token: int) -> list[int]:
        """Count a token after a text. `ends`: nodes of the text's suffixes, the shortest first.

        Return the nodes of the longer text's suffixes. An empty text has [0].
        """
        grown = [0]
        for node in ends:
            child = self._child.get((node, token))
            if child is None:
                if self.is_full:
                    break  # longer n-grams with this ending are unknown too
                child = self._child[node, token] = len(self._count)
                for column, value in ((self._count, 0), (self._followed, 0), (self._best, -1)):
                    column.append(value)
            self._count[child] += 1
            self._followed[node] += 1
            best = self._best[node]
            if best < 0 or self._count[child] >= self._count[self._child[node, best]]:
                self._best[node] = token  # the latest of equal counts
            grown.append(child)
        return grown[:DEPTH]

    def ends(self, text: Sequence[int]) -> list[int]:
        """Nodes of the known suffixes of a text, the shortest first."""
        nodes = [0]
        for token in text[-DEPTH + 1 :]:
            nodes = self.step(nodes, token)
        return nodes

    def step(self, ends: Sequence[int], token: int) -> list[int]:
        """As `grow`, without counting: unknown n-grams are left out."""
        children = (self._child.get((node, token)) for node in ends)
        return [0, *(child for child in children if child is not None)][:DEPTH]

    def guesses(self, ends: Sequence[int]) -> Iterator[Guess]:
        """Yield the most frequent continuation, token by token, of the longest suffix with continuations.

        Probability: count / (number of continuations + 1/d), for a suffix of d tokens. A continuation seen
        once has 1/2 after one token and 8/9 after eight.
        """
        while True:
            depth = next((d for d in range(len(ends) - 1, 0, -1) if self._followed[ends[d]]), 0)
            if not depth:
                return
            node = ends[depth]
            token = self._best[node]
            count = self._count[self._child[node, token]]
            yield Guess(token, count / (self._followed[node] + 1 / depth))
            ends = self.step(ends, token)
