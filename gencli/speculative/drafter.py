"""The drafter interface, and drafters that look up what a text did before: by its last n-gram, and by
suffix counts. A drafter only proposes draft tokens; the target model accepts or rejects them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, ClassVar, overload

from gencli.core.request import Request
from gencli.core.tree_shapes import num_straight

if TYPE_CHECKING:
    from torch import Tensor

    from gencli.speculative.draft_model import DraftSampler


class SampleTokens(Sequence[int]):
    """Prompt and output of a sample as one sequence: a live view, without a copy. Slices are tuples."""

    __slots__ = ("_output", "_prompt")

    def __init__(self, prompt: Sequence[int], output: Sequence[int] = ()) -> None:
        self._prompt, self._output = prompt, output

    def __len__(self) -> int:
        return len(self._prompt) + len(self._output)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        size = len(self._prompt)
        if isinstance(index, int):
            index = index + len(self) if index < 0 else index
            return self._prompt[index] if index < size else self._output[index - size]
        start, stop, step = index.indices(len(self))
        if step != 1:
            return tuple(self[i] for i in range(start, stop, step))
        return (*self._prompt[start:stop], *self._output[max(0, start - size) : max(0, stop - size)])


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """A request for draft tokens in one slot.

    `tokens` are prompt and output, `most` >= 1 is the limit of draft tokens in turn. `nodes` is the limit of
    draft tokens of a DraftTree, whose depth is at most `most`; 0 if no tree can be verified.
    """

    slot: int
    tokens: Sequence[int]
    most: int
    nodes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _TokenRecord(Sequence[int]):
    """A sequence of `tokens`, with what a subclass knows of each."""

    tokens: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return self.tokens[index]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(_TokenRecord):
    """Draft tokens sampled from a distribution q, with q's logits, for rejection sampling.

    A plain sequence of draft tokens means q(token) = 1. For each of the `tokens`: its logits [V] float32 as
    the request's chain left them, and its probability under q.
    """

    logits: tuple[Tensor, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DraftTree(_TokenRecord):
    """Draft tokens as a tree: node i has `tokens[i]` and follows node `parents[i]`, the newest token if -1.

    Parents come before their children, and no two children of a node have the same token. Of the children of
    a node the first one is the most likely: following first children gives the principal chain.
    """

    parents: tuple[int, ...]

    @property
    def principal(self) -> tuple[int, ...]:
        """The tokens of the principal chain."""
        chain, last = list[int](), -1
        for node, parent in enumerate(self.parents):
            if parent == last:  # the first child comes before all others and what is below them
                chain.append(self.tokens[node])
                last = node
        return tuple(chain)


def run_or_tree(tokens: tuple[int, ...], parents: tuple[int, ...]) -> DraftTree | tuple[int, ...]:
    """Return a tree; the tokens alone if each follows the one before."""
    return tokens if num_straight(parents) == len(parents) else DraftTree(tokens, parents)


def num_right(drafts: Sequence[int], tokens: Sequence[int]) -> int:
    """Return how many of the first `tokens` are on one path of the drafts, a tree or a run."""
    parents = drafts.parents if isinstance(drafts, DraftTree) else range(-1, len(drafts) - 1)
    places = {
        (parent, token): place for place, (parent, token) in enumerate(zip(parents, drafts, strict=True))
    }
    place = -1
    for count, token in enumerate(tokens):
        if (place := places.get((place, token), -2)) < -1:
            return count
    return len(tokens)


_OFFERED = 2  # nodes that are looked up for each that can be verified: a grammar may refuse some


class DraftTrie:
    """Draft tokens of runs that share their beginnings, for a tree of `nodes`."""

    def __init__(self, nodes: int) -> None:
        self._nodes, self._max_nodes = nodes, _OFFERED * nodes
        self._places: dict[tuple[int, int], int] = {}  # of a child, by parent and token

    def child(self, parent: int, token: int) -> int:
        """Return the place of a node, added if it is new; -2 if there is no such parent, or no room."""
        if parent < -1:
            return -2
        if len(self._places) < self._max_nodes:
            return self._places.setdefault((parent, token), len(self._places))
        return self._places.get((parent, token), -2)

    def drafts(self) -> DraftTree | tuple[int, ...]:
        """Return the tree, with siblings in the order in which they came; a run if nothing branches."""
        parents, tokens = zip(*self._places, strict=True) if self._places else ((), ())
        drafts = run_or_tree(tokens, parents)
        return drafts if isinstance(drafts, DraftTree) else drafts[: self._nodes]


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Hidden states of tokens `start` to `end` of a slot's text, [end - start, H] for each tap of a drafter.

    `tokens`: prompt and output, of which these are never rejected ones.
    """

    slot: int
    tokens: Sequence[int]
    start: int
    end: int
    states: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """Measurement of one step without prefill: `accepted` of `drafted` draft tokens in `lanes` texts.

    `seconds`: forward pass, sampling and verification by work_clock; drafting is not included.
    """

    lanes: int
    drafted: int
    accepted: int
    seconds: float


class Drafter:
    """Proposes draft tokens. State of a sample is indexed by the sample's slot.

    Between `admit` and `release` a slot belongs to one sample; each sample of a request has its own slot.
    `is_autoregressive`: one forward pass per draft token (a model); otherwise proposing k tokens costs about
    the same for any k.
    `taps`: where it needs hidden states of the target (see Inner); `feed` gets them.
    `has_trees`: whether its proposals may be trees.
    `is_reading`: the last call of `propose` also prefilled a text, a cost that occurs once per text.
    `notices`: lines for the user, shown once on stderr.
    """

    is_autoregressive: bool = False
    has_trees: bool = True
    is_reading: bool = False
    taps: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()
    name: ClassVar[str] = ""  # of a plugin: what `draft` calls it

    def bind(self, chooser: DraftSampler) -> None:
        """Take the sampler that chooses from draft logits as the requests do. Called once, first of all."""

    def handles(self, request: Request) -> bool:
        """Whether it drafts for this request. `admit` is called only for requests that it handles."""
        return True

    def is_autoregressive_for(self, request: Request) -> bool:
        """Whether its drafts for this request cost one forward pass per token."""
        return self.is_autoregressive and self.handles(request)

    def has_trees_for(self, request: Request) -> bool:
        """Whether its proposals for this request may be trees."""
        return self.has_trees and self.handles(request)

    def taps_for(self, request: Request) -> tuple[int, ...]:
        """Where it needs hidden states of the samples of this request."""
        return self.taps if self.taps and self.handles(request) else ()

    def admit(self, slot: int, request: Request) -> None:
        """A sample takes the slot; overwrite the state of the slot's previous sample."""

    def fork(self, source: int, target: int) -> None:
        """The target model's KV lane of slot `target` becomes a copy of that of `source`."""

    def feed(self, parts: Sequence[Features]) -> None:
        """Take the hidden states of a step, of the slots whose requests have `taps_for`.

        The parts of a text come in order. One that starts before the end of the last takes back what follows;
        the first one after `admit` starts behind the prompt tokens that the target found in its cache.
        """

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        """Propose 0 to `most` draft tokens for each ask, in the order of the asks, or a DraftTree.

        Of a tree the first `nodes` that a grammar allows are verified. The target has read all but the
        newest token of a text, and `feed` has had their states. Of a prompt whose first token is chosen in
        this step it may lack any part.

        Where `Request.drafts_decide`, the drafts must depend on the request and its text alone. For requests
        verified by rejection, sampled drafts are returned as Drawn and use noise independent of the target's.
        """
        raise NotImplementedError

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """Record that `accepted` of the `proposed` draft tokens were accepted. Called if `proposed` > 0."""

    def measure(self, step: MeasuredStep) -> None:
        """Record the cost of the step that followed the last `propose`, with or without drafts."""

    def release(self, slot: int) -> None:
        """The sample has left the slot, finished or interrupted."""

    def trim(self) -> None:
        """Free memory after out-of-memory. No slot is in use."""


class OuterDrafter(Drafter):
    """Asks other drafters: passes on to all of them what it does not do itself."""

    def __init__(self, *inner: Drafter) -> None:
        self._inner = inner
        self.is_autoregressive = any(drafter.is_autoregressive for drafter in inner)
        self.has_trees = any(drafter.has_trees for drafter in inner)
        self.notices = tuple(text for drafter in inner for text in drafter.notices)
        self.taps = next((drafter.taps for drafter in inner if drafter.taps), ())  # of one at most

    def bind(self, chooser: DraftSampler) -> None:
        for drafter in self._inner:
            drafter.bind(chooser)

    def handles(self, request: Request) -> bool:
        return all(drafter.handles(request) for drafter in self._inner)

    def admit(self, slot: int, request: Request) -> None:
        for drafter in self._inner:
            drafter.admit(slot, request)

    def fork(self, source: int, target: int) -> None:
        for drafter in self._inner:
            drafter.fork(source, target)

    def feed(self, parts: Sequence[Features]) -> None:
        for drafter in self._inner:
            if drafter.taps:
                drafter.feed(parts)

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        for drafter in self._inner:
            drafter.observe(slot, proposed=proposed, accepted=accepted)

    def measure(self, step: MeasuredStep) -> None:
        for drafter in self._inner:
            drafter.measure(step)

    def release(self, slot: int) -> None:
        for drafter in self._inner:
            drafter.release(slot)

    def trim(self) -> None:
        for drafter in self._inner:
            drafter.trim()


_SIZES = (5, 4, 3, 2)  # n-gram sizes in tokens, the largest first
_MAX_POSITIONS = 8  # latest occurrences kept per n-gram


class _NgramIndex:
    """Positions after each n-gram of a growing text. Each token is indexed once."""

    def __init__(self) -> None:
        self._positions: dict[tuple[int, ...], list[int]] = {}
        self._seen = 0  # number of indexed tokens

    def extend(self, text: Sequence[int]) -> None:
        """Index the new tokens except the last, which nothing follows yet."""
        begin = max(0, self._seen - _SIZES[0] + 1)
        part = tuple(text[begin:])
        for end in range(self._seen + 1, len(text)):
            for size in _SIZES:
                if size <= end:
                    positions = self._positions.setdefault(part[end - begin - size : end - begin], [])
                    positions.append(end)
                    del positions[:-_MAX_POSITIONS]
        self._seen = max(self._seen, len(text) - 1)

    def find(self, text: Sequence[int]) -> list[int]:
        """Positions after earlier occurrences of the longest n-gram that ends the text, the latest last."""
        tail = tuple(text[-_SIZES[0] :])
        positions = (self._positions.get(tail[-size:]) for size in _SIZES if size <= len(tail))
        return next(filter(None, positions), [])


class NgramDrafter(Drafter):
    """Copies what followed the latest earlier occurrence of the text's last 5, 4, 3 or 2 tokens.

    Probability of a token: the share of known occurrences that continue with it.
    """

    def __init__(self) -> None:
        self._indexes: dict[int, _NgramIndex] = {}
        self._min_p: dict[int, float] = {}

    def admit(self, slot: int, request: Request) -> None:
        self._indexes[slot], self._min_p[slot] = _NgramIndex(), request.drafting.min_p

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        return [self._drafts(ask) for ask in asks]

    def release(self, slot: int) -> None:
        del self._indexes[slot], self._min_p[slot]

    def _drafts(self, ask: DraftAsk) -> Sequence[int]:
        index = self._indexes[ask.slot]
        index.extend(ask.tokens)
        positions = index.find(ask.tokens)
        run = self._run(ask, positions)
        return self._tree(ask, positions, run) if ask.nodes and len(positions) > 1 else run

    def _tree(self, ask: DraftAsk, positions: Sequence[int], run: Sequence[int]) -> Sequence[int]:
        """Return the run, and behind it the other continuations, the most frequent and shortest first."""
        counts = Counter[tuple[int, ...]]({(): len(positions)})
        for position in reversed(positions):
            copy = list[int]()
            while len(copy) < ask.most:
                copy.append(_token(ask.tokens, copy, position + len(copy)))
                counts[tuple(copy)] += 1
        trie, places, least = DraftTrie(ask.nodes), dict[tuple[int, ...], int](), self._min_p[ask.slot]
        places[()] = -1
        for end in range(len(run)):
            places[tuple(run[: end + 1])] = trie.child(places[tuple(run[:end])], run[end])
        for path in sorted(counts, key=lambda path: (-counts[path], len(path)))[1:]:
            if path not in places and counts[path] >= least * counts[path[:-1]]:
                places[path] = trie.child(places.get(path[:-1], -2), path[-1])
        return trie.drafts()

    def _run(self, ask: DraftAsk, positions: Sequence[int]) -> list[int]:
        text, run = ask.tokens, list[int]()
        while positions and len(run) < ask.most:
            # Beyond the end of the text, the copy continues with its own tokens.
            token = _token(text, run, positions[-1] + len(run))
            agreeing = [position for position in positions if _token(text, run, position + len(run)) == token]
            if len(agreeing) < self._min_p[ask.slot] * len(positions):
                break
            run.append(token)
            positions = agreeing
        return run


def _token(text: Sequence[int], run: Sequence[int], position: int) -> int:
    return text[position] if position < len(text) else run[position - len(text)]


_NODES = 250_000  # most nodes of a tree; a full one takes about 60 MB
_MIN_ACCEPTANCE = 0.2  # estimated acceptance of a whole run, below which it ends
_MIN_BRANCH = 0.05  # the same of the tokens up to a node of a tree


@dataclass(slots=True)
class _SuffixText:
    """Counts of a slot's text: the tree, the nodes of the text's suffixes, and the counted tokens.

    `whole`: the live text of the last ask, which may be longer than `tokens`.
    """

    request: Request
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
        self._texts: dict[int, _SuffixText] = {}
        self._young, self._old = SuffixCounts(nodes), SuffixCounts(nodes)

    def admit(self, slot: int, request: Request) -> None:
        self._texts[slot] = _SuffixText(request, SuffixCounts(self._nodes))

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        return [self._run(ask) for ask in asks]

    def release(self, slot: int) -> None:
        """Count the finished output for later texts."""
        text = self._texts.pop(slot)
        if text.request.salt:  # its output is not used for the drafts of others
            return
        if self._young.is_full:
            self._young, self._old = SuffixCounts(self._nodes), self._young
        ends = [0]
        for token in text.whole[len(text.request.prompt_ids) :]:
            ends = self._young.grow(ends, token)

    def trim(self) -> None:
        self._young, self._old = SuffixCounts(self._nodes), SuffixCounts(self._nodes)

    def _run(self, ask: DraftAsk) -> Sequence[int]:
        text = self._texts[ask.slot]
        text.whole = ask.tokens
        for token in ask.tokens[len(text.tokens) :]:
            text.tokens.append(token)
            text.ends = text.counts.grow(text.ends, token)
        sources = [(text.counts, text.ends)]
        if not (text.request.drafts_decide or text.request.salt):
            sources += [(counts, counts.ends(text.tokens)) for counts in (self._young, self._old)]
        most_expected, best, min_p = -1.0, list[int](), text.request.drafting.min_p
        for counts, ends in sources:
            run = list[int]()
            expected, probability = 0.0, 1.0  # of the run's tokens, to be accepted: how many, and all
            for guess in counts.guesses(ends):
                probability *= guess.probability
                if probability < _MIN_ACCEPTANCE or guess.probability < min_p or len(run) == ask.most:
                    break
                run.append(guess.token)
                expected += probability
            if expected > most_expected:
                most_expected, best = expected, run
        return self._tree(ask, sources, best) if ask.nodes and best else best

    def _tree(
        self, ask: DraftAsk, sources: Sequence[tuple[SuffixCounts, list[int]]], run: Sequence[int]
    ) -> Sequence[int]:
        """Return the run, and behind it other continuations in all counts, the most probable first."""
        trie, node, least = DraftTrie(ask.nodes), -1, self._texts[ask.slot].request.drafting.min_p
        for token in run:
            node = trie.child(node, token)
        heap, numbers = list[Any](), itertools.count()  # of equally probable nodes the first one comes first

        def rank(chance: float, node: int, depth: int, counts: SuffixCounts, ends: list[int]) -> None:
            for guess in counts.candidates(ends) if depth < ask.most else ():
                total = chance * guess.probability
                if total >= _MIN_BRANCH and guess.probability >= least:
                    heappush(heap, (-total, next(numbers), node, guess.token, depth + 1, counts, ends))

        for counts, ends in sources:
            rank(1.0, -1, 0, counts, ends)
        while heap:
            chance, _, parent, token, depth, counts, ends = heappop(heap)
            if (node := trie.child(parent, token)) >= 0:
                rank(-chance, node, depth, counts, counts.step(ends, token))
        return trie.drafts()


DEPTH = 10  # longest counted n-gram, in tokens


@dataclass(frozen=True, slots=True)
class Guess:
    """A possible next token and its estimated probability."""

    token: int
    probability: float


class SuffixCounts:
    """Number of occurrences of each n-gram of up to DEPTH tokens, as a tree that grows token by token.

    A node is an n-gram; node 0 is the empty one. Each node has the number of its continuations and the most
    frequent one. A full tree, of `max_nodes` nodes, adds no new n-grams.
    """

    def __init__(self, max_nodes: int) -> None:
        self._max_nodes = max_nodes
        self._child: dict[tuple[int, int], int] = {}  # child node by node and token
        self._count, self._followed, self._best = [0], [0], [-1]

    def __len__(self) -> int:
        return len(self._count)

    @property
    def is_full(self) -> bool:
        """Whether new n-grams are no longer added."""
        return len(self) >= self._max_nodes

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
        while guess := next(self.candidates(ends), None):
            yield guess
            ends = self.step(ends, guess.token)

    def candidates(self, ends: Sequence[int]) -> Iterator[Guess]:
        """Yield the most frequent continuation of each suffix, the longest first, and each token once.

        Probability: as in `guesses`, times what the longer suffixes leave.
        """
        left, seen = 1.0, set[int]()
        for depth in range(len(ends) - 1, 0, -1):
            node = ends[depth]
            token = self._best[node]
            if token >= 0 and token not in seen:
                count = self._count[self._child[node, token]]
                share = count / (self._followed[node] + 1 / depth)
                yield Guess(token, left * share)
                left *= 1 - share
                seen.add(token)
