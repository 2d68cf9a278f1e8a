"""One step of the generate loop: what is fed, what comes of it, and the hooks of features that act in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from torch import Tensor

from gencli.core.events import Event, TokenLogprobs
from gencli.core.request import Feed, StepPlan
from gencli.engine.sequence import Fork, SampledSequences, Sequence, Taken
from gencli.models.model_runner import Inner
from gencli.speculative.drafter import DraftTree
from processors.base import GrammarStatus
from processors.pipeline import Seen
from processors.rows import Rows
from processors.verification import Proposal

Draw = Callable[[], tuple[Tensor, Tensor]]  # samples and verifies: tokens [Q, K + 1] and counts [Q]
# Log-probabilities of tokens [N] chosen at rows [N] of the step.
Inspect = Callable[[Items[int], Items[int]], list[TokenLogprobs]]


@dataclass(slots=True, eq=False)
class Step:
    """One step: the feeds of `plan` with the sequence of each, and what comes of them.

    `sampled`: the Q sequences whose next token this step chooses, with their drafts, in feed order. Sequence
    i has K_i + 1 rows of logits, one for each draft and one for the token after them; R is their sum. The
    parts of the step are set in the order of the fields.
    """

    plan: StepPlan
    sequences: tuple[Sequence, ...]
    sampled: SampledSequences
    forks: tuple[Fork, ...]
    # Where drafts branch, by slot: until the walk (see DraftWalk) the drafts are all nodes of the tree, and
    # then the tokens of a path, whose nodes are in `paths`.
    trees: dict[int, DraftTree] = field(default_factory=dict)
    paths: dict[int, list[int]] = field(default_factory=dict)
    # What hooks need of the forward pass.
    companions: tuple[Feed, ...] = ()  # feeds beside those of the plan
    layers: tuple[int, ...] = ()  # layers whose logits are needed
    taps: frozenset[int] = frozenset()  # where hidden states are needed (see Inner)
    lanes: frozenset[int] = frozenset()  # lanes of which they are needed
    is_busy: bool = False  # whether a model runs, though the plan may have no feed
    rows: Rows = field(init=False)
    own: Tensor = field(init=False)  # [R, V]: the model's logits
    logits: Tensor = field(init=False)  # [R, V]: after guidance, before stages
    companion_logits: tuple[Tensor, ...] = ()  # of each feed of `companions` [K + 1, V]
    inner: Inner | None = None
    drawn: list[int] | None = None  # [R]: tokens that the walk down trees has chosen already
    # What hooks need of the choice.
    reads: bool = False  # the processed logits
    counts_drafts: bool = False  # `counts`, even where the host could compare the drafts
    seen: Seen | None = None
    # Of the drafts, made only if they are verified by it.
    proposal: Callable[[], Proposal | None] | None = None
    known: Tensor | None = None  # [Q, K + 1]: known tokens, which no draw chooses; -1 elsewhere
    force: Callable[[Draw], tuple[Tensor, Tensor]] | None = None  # replaces the draw where tokens are known
    processed: Tensor | None = None  # [R, V]: after stages, if `reads`
    # [Q, K + 1], and the number of valid ones [Q]. Or [R] and no counts: drafts that equal them are accepted.
    tokens: Tensor = field(init=False)
    counts: Tensor | None = None
    packed: list[tuple[Tensor, Callable[[Any], None]]] = field(default_factory=list)  # read with the tokens
    # On the host.
    ids: list[list[int]] = field(init=False)  # accepted and sampled tokens by sampled sequence; -1: none
    logprobs: dict[int, list[float]] = field(default_factory=dict)  # of `ids`, for `best_of`
    entries: dict[int, list[TokenLogprobs]] = field(default_factory=dict)  # of `ids`, where requested
    inspect: Inspect | None = None
    now: float = 0.0  # seconds of a monotonic clock
    taken: list[tuple[Taken, Exception | None] | None] = field(init=False)  # None for members of groups
    kept: list[tuple[Sequence, Taken]] = field(init=False)  # sequences that continue

    def states(self) -> Iterator[tuple[int, dict[int, Tensor]]]:
        """Yield the index of each feed of `lanes`, and its hidden states [tokens, H] by tap."""
        end = 0
        for index, feed in enumerate(self.plan.feeds):
            if self.inner and feed.lane in self.lanes:
                start, end = end, end + len(feed.tokens)
                yield index, {tap: rows[start:end] for tap, rows in self.inner.taps.items()}

    @property
    def first_rows(self) -> list[int]:
        """Index of the first row of each sampled sequence."""
        counts = self.rows.counts
        return [0, *accumulate(counts)][:-1] if self.rows.drafts.shape[1] else [*range(len(counts))]


# Which tokens of a sequence are certain, and whether none was taken back; from its tokens and their status.
Settle = Callable[[Sequence, Items[int], Items[GrammarStatus], float], tuple[Items[int], bool]]
# Appends the tokens of the sampled sequence at an index; returns those that were appended, and an error.
Append = Callable[[Step, int, Settle | None], tuple[Taken, Exception | None]]


class StepHook:
    """A feature of the generate loop, called while a sample that wants it has a slot.

    Each step calls its methods in the order in which they stand here. By default they do nothing. `launches`:
    whether it has a `meanwhile`.
    """

    launches = False

    def __init__(self) -> None:
        self.slots: set[int] = set()  # of the samples that want it

    def wants(self, sequence: Sequence) -> bool:
        """Whether the sample asks for the feature."""
        return True

    def admit(self, sequence: Sequence) -> None:
        """Set up the state for a sample that wants the feature and has its slot."""

    def release(self, slot: int) -> None:
        """Drop the state of a slot."""

    def trim(self) -> None:
        """Free memory after out-of-memory. No slot is in use."""

    def behind(self) -> Iterable[Sequence]:
        """Return the sequences whose next token cannot be chosen yet."""
        return ()

    def propose(self, sequences: list[Sequence]) -> Mapping[int, tuple[int, ...] | DraftTree]:
        """Return draft tokens by slot, for the sequences whose next token is about to be chosen."""
        return {}

    def before(self, step: Step) -> None:
        """Act before the forward pass."""

    def on_logits(self, step: Step) -> None:
        """Act on the logits, before the stages."""

    def on_tokens(self, step: Step) -> None:
        """Act on the chosen tokens, on the device."""

    def meanwhile(self, step: Step) -> None:
        """Launch work of the device while the host waits for the tokens."""

    def on_host(self, step: Step) -> None:
        """Act on the chosen tokens, on the host."""

    def take(self, step: Step, append: Append) -> None:
        """Append the tokens of sequences for which a plain `append` is wrong, and set their `taken`."""

    def on_taken(self, step: Step) -> None:
        """Act on the tokens that were appended, before their events and before they are committed."""

    def after(self, step: Step) -> Iterable[Event]:
        """Return further events of the step, and add sequences that continue to `kept`."""
        return ()

    def report(self) -> Iterable[Event]:
        """Return the events that are due before and after a step."""
        return ()
