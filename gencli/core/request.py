"""The inputs of generation: one frozen Request per prompt for the engine; the model input of one step, as
plain host values that are rebuilt every step; and an index of token sequences that finds the longest
shared prefix by bisection over a sorted list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gencli.core.tree_shapes import AUTO_TREE, MAX_NODES, TreeShape
from processors.catalog import Draw
from processors.chain import Chain
from processors.request_values import MATCH, Verification

Jump = Literal["auto", "off"]
EarlyLayers = Literal["low", "high"] | tuple[int, ...]
FIXED_DRAFTS = 4  # draft tokens per step if their number changes the text and the request sets none


@dataclass(frozen=True, slots=True)
class Stops:
    """Stop conditions besides the end-of-text ids: token ids, stop strings, regular expressions, loops."""

    ids: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    include: bool = False
    loop: int = 0  # consecutive repetitions of a pattern that end the text; 0 is off


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one output: tokens, and seconds since the request was submitted.

    `max_tokens` is 0 for a request that only scores its prompt.
    """

    max_tokens: int = 512
    max_time: float | None = None

    def is_over(self, seconds: float) -> bool:
        """Whether `max_time` has passed after `seconds`."""
        return self.max_time is not None and seconds >= self.max_time


@dataclass(frozen=True, slots=True)
class Beams:
    """Parameters of a beam search with `width` beams.

    score = sum of log-probabilities / length ** length_penalty. The search ends when no beam can beat the
    worst of `width` finished texts; with `early_stopping`, as soon as `width` texts are finished.
    """

    width: int
    length_penalty: float = 1.0
    early_stopping: bool = False


@dataclass(frozen=True, slots=True)
class Contrastive:
    """Parameters of contrastive search (formula: processors.sampler).

    Each step takes the best-scored of the `k` most likely tokens. `alpha` in 0..1 is the weight of the
    penalty on similarity to earlier tokens; 0 takes the most likely token.
    """

    alpha: float
    k: int


NO_DRAFTER = "none"
EARLY_EXIT = "early-exit"
MTP = "mtp"  # the layers for multi-token prediction in the files of the model itself
BUILT_IN_DRAFTERS = ("ngram", "suffix", "auto", EARLY_EXIT, MTP)  # they need no model of their own


@dataclass(frozen=True, slots=True)
class Drafting:
    """Speculative decoding of a request.

    `drafter`: name of a drafter, NO_DRAFTER, or "" for the engine's default. `tokens`: maximum number of
    draft tokens per step; None = adaptive. `min_p`: drafting stops at a draft token less probable than this.
    `verification`: the acceptance policy. `tree`: the shape of trees of draft tokens; None = chains.
    """

    drafter: str = ""
    tokens: int | None = None
    min_p: float = 0.0
    verification: Verification = MATCH
    tree: TreeShape | None = None

    @property
    def nodes(self) -> int:
        """The maximum number of draft tokens of a tree; 0: chains only."""
        if self.tree is None:
            return 0
        return MAX_NODES if self.tree == AUTO_TREE else self.tree.nodes


@dataclass(frozen=True, slots=True)
class Guidance:
    """Classifier-free guidance or contrastive decoding (formula: processors.sampler).

    The companion is the unconditional sequence: the model itself after the prompt `negative` (None: after the
    prompt's last token), or the model named `amateur` after the full prompt. `scale` >= 0; 1 changes nothing.
    `cutoff` in 0..1: tokens with a probability below `cutoff` times the largest are masked.
    """

    scale: float = 1.0
    negative: tuple[int, ...] | None = None
    cutoff: float = 0.0
    amateur: str = ""

    @property
    def is_on(self) -> bool:
        """Whether guidance changes the logits, and so needs a companion."""
        return self.scale != 1 or self.cutoff > 0

    def companion_prompt(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """Return the companion's prompt, for a request with this prompt."""
        if self.amateur:
            return prompt
        return prompt[-1:] if self.negative is None else self.negative


@dataclass(frozen=True, slots=True)
class LayerContrast:
    """DoLa: the last layer contrasted with an early one (formula: processors.sampler.contrast_layers).

    `layers`: candidate layers. `low` or `high`: every second layer of the lower or upper half of the model
    (see gencli.engine.guidance); or layer numbers, 0 for the embedding. `cutoff`: as in Guidance.
    """

    layers: EarlyLayers
    cutoff: float = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and everything that decides its output.

    `seed`: derived from the run's seed and the row key; sample j of `n` draws with derive(seed, j). `draw`:
    the sampler's method. `session`: its requests run one after the other and reuse one KV lane. `beams`: the
    samples are the best `n` texts of a beam search; nothing is drawn. `best_of`: the samples are the best `n`
    of `best_of` drawn ones. `contrastive`: tokens are chosen by contrastive search; nothing is drawn.
    `logprobs`: number K of alternatives beside the log-probability of each output token, `prompt_logprobs` of
    each prompt token from position `score_from` on; None is off. `given`: fixed ids of the output, whatever
    the chain would choose, to compute their log-probabilities (see gencli.engine.known_tokens). Stops do not
    end such an output; `max_tokens` is only passed to the stages as the limit. `prefix`: ids with which each
    output begins; the rest is drawn as if they had been drawn. `trace`: number of ids in the lists of each
    token's explanation (explain_rows); None: no explanations. `keep_logits`: with `trace`, the number
    of largest logits that each explanation keeps. `dola`: parameters of DoLa, for a request without guidance.
    `priority`: waiting requests with a lower value begin first. `salt`: keys and values are shared with
    requests of the same salt only. Neither changes a text. `marker`: for those who read the output: it is
    reasoning up to this text; "" if it is none, as after a prompt that ends with it.
    """

    id: str
    prompt_ids: tuple[int, ...]
    chain: Chain = field(default_factory=Chain)
    seed: int = 0
    draw: Draw = "gumbel"
    n: int = 1
    stops: Stops = field(default_factory=Stops)
    limits: Limits = field(default_factory=Limits)
    session: str = ""
    jump: Jump = "auto"
    finish_open: bool = False
    beams: Beams | None = None
    best_of: int | None = None
    contrastive: Contrastive | None = None
    drafting: Drafting = field(default_factory=Drafting)
    guidance: Guidance = field(default_factory=Guidance)
    dola: LayerContrast | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    trace: int | None = None
    keep_logits: int = 0
    score_from: int = 1
    given: tuple[int, ...] | None = None
    prefix: tuple[int, ...] = ()
    priority: int = 0
    salt: str = ""
    marker: str = ""

    @property
    def verification(self) -> Verification:
        """Acceptance policy of the drafts; for a greedy draw `match` replaces one that is drawn."""
        wanted = self.drafting.verification
        return MATCH if self.draw == "greedy" and wanted.is_drawn else wanted

    @property
    def drafts_decide(self) -> bool:
        """Whether the text depends on the drafts, as it does under every policy that is not exact."""
        return not self.verification.is_exact

    @property
    def num_lanes(self) -> int:
        """Number of lanes of the model per token: 2 if the model also runs the companion, else 1."""
        return 2 if self.guidance.is_on and not self.guidance.amateur else 1

    @property
    def num_drafts(self) -> int | None:
        """Draft tokens per step; None = adaptive, never with `drafts_decide`, as timing changes no text."""
        return FIXED_DRAFTS if self.drafting.tokens is None and self.drafts_decide else self.drafting.tokens


def rope_factors(length: int, switches: tuple[int, ...]) -> int:
    """Return the index of the rotary factors for `length` tokens: the number of `switches` below `length`."""
    return bisect_left(switches, length)


def depths_of(parents: Sequence[int]) -> tuple[int, ...]:
    """Return the depth of each node of a tree: 1 for those without a parent (-1). Parents come first."""
    depths = list[int]()
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 1)
    return tuple(depths)


class Feed(NamedTuple):
    """Tokens for one KV lane.

    `start`: number of tokens in the lane so far, which is the position of the first fed token. `num_logits`:
    the model returns logits for the last `num_logits` fed positions: 0 for a prompt chunk other than the
    last, 1 for plain decoding, K + 1 for K draft tokens. `text_length`: length of the whole text, for chunks
    with `num_logits` 0. Without it a long-rope model may compute the chunk twice (see ModelSpec).
    `num_scored`: the first `num_scored` of these logits belong to scored prompt positions, where no token is
    chosen. `parents`: if the last tokens of the lane, these included, are a tree, the parents of its nodes in
    the order of the lane: an index among them, or -1 for the token before the first node. A node sees the
    lane before the tree and its ancestors, and its position is one more than its parent's.
    """

    lane: int
    start: int
    tokens: tuple[int, ...]
    num_logits: int = 1
    text_length: int = 0
    num_scored: int = 0
    parents: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    @property
    def positions(self) -> tuple[int, ...]:
        """The position of each token, which in a tree is not its place in the lane."""
        root = self.end - len(self.parents)
        depths = depths_of(self.parents)[max(0, self.start - root) :]
        return (*range(self.start, root), *[root - 1 + depth for depth in depths])

    @property
    def drafts(self) -> tuple[int, ...]:
        """The draft tokens: the last `num_logits` tokens without the first of them."""
        count = self.num_logits - self.num_scored - 1
        return self.tokens[len(self.tokens) - count :] if count > 0 else ()


@dataclass(frozen=True, slots=True)
class StepPlan:
    """All feeds of one step, at most one per lane. `num_scored`: sum over the feeds."""

    feeds: tuple[Feed, ...]
    num_scored: int = 0

    @property
    def num_rows(self) -> int:
        """Number R of logit rows [R, V] of the step: the sum of `num_logits`, in feed order."""
        return sum([feed.num_logits for feed in self.feeds])

    @property
    def num_tokens(self) -> int:
        """Number of tokens fed over all lanes."""
        return sum([len(feed.tokens) for feed in self.feeds])


_MIN_COPY = 16  # tokens; a shorter shared prefix is not copied

Tokens = tuple[int, ...]
Kind = tuple[int, str]  # rotary factors (see rope_factors) and salt; texts of different kinds share no prefix
_PLAIN: Kind = (0, "")


@dataclass(frozen=True, slots=True)
class Match:
    """The lane with the longest shared prefix, and the prefix's length in tokens; lane -1 for length 0."""

    lane: int = -1
    length: int = 0


class Prefixes:
    """Texts by lane, sorted. The longest shared prefix with a new text is that with a sorted neighbour."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Kind, Tokens]] = {}
        self._sorted: list[tuple[Kind, Tokens, int]] = []

    def __contains__(self, lane: int) -> bool:
        return lane in self._texts

    def __getitem__(self, lane: int) -> Tokens:
        return self._texts[lane][1]

    def add(self, lane: int, text: Tokens, kind: Kind = _PLAIN) -> None:
        """Add a lane with the text that it holds or is about to hold."""
        self._texts[lane] = kind, text
        insort(self._sorted, (kind, text, lane))

    def remove(self, lane: int) -> None:
        """Remove a lane; no error if it is absent."""
        entry = self._texts.pop(lane, None)
        if entry is not None:
            del self._sorted[bisect_left(self._sorted, (*entry, lane))]

    def clear(self) -> None:
        self._texts.clear()
        self._sorted.clear()

    def nearest(self, text: Tokens, kind: Kind = _PLAIN) -> Match:
        """Return the lane that shares the longest prefix with a text."""
        position = bisect_left(self._sorted, (kind, text, -1))
        around = [entry for entry in self._sorted[max(0, position - 1) : position + 1] if entry[0] == kind]
        matches = (Match(lane, shared_length(text, other)) for _, other, lane in around)
        best = max(matches, key=lambda match: match.length, default=Match())
        return best if best.length else Match()


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two texts, both tuples or both lists.

    Bisects over slice comparisons, which are faster in Python than a loop over tokens.
    """
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] are equal, a[:high] are not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def is_worth_copying(length: int, wanted: int) -> bool:
    """Whether a shared prefix of `length` is worth a copy between lanes: 16 tokens, or all wanted ones."""
    return length >= _MIN_COPY or length == wanted
