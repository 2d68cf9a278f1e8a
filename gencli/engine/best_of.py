"""The best of several texts: samples of requests with `best_of`, and the texts of beam searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace

import torch

from gencli.core.events import (
    Candidate,
    Error,
    Event,
    Finish,
    PromptScores,
    Reading,
    Token,
    by_sample,
    joined,
)
from gencli.core.request import Request
from gencli.engine.sequence import Sequence
from gencli.engine.step import Step, StepHook
from processors.graphs import upload


@dataclass(slots=True)
class _Pool:
    """Samples of one request: number wanted, number drawn, and tokens and final events so far."""

    wanted: int
    size: int
    tokens: dict[int, list[Token]] = field(default_factory=dict)
    ends: list[Finish | Error] = field(default_factory=list)


class BestOf(StepHook):
    """Chooses among samples of requests with `best_of`; holds events back until all samples have ended.

    `pools`: the samples of these requests, by request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pools: dict[str, _Pool] = {}

    def wants(self, sequence: Sequence) -> bool:
        return bool(sequence.request.best_of)

    def before(self, step: Step) -> None:
        step.counts_drafts |= any(sequence.request.best_of for sequence, _ in step.sampled)

    def on_tokens(self, step: Step) -> None:
        """Read the log-probability of each token under the model's own logits, in float64."""
        wanted = [bool(sequence.request.best_of) for sequence, _ in step.sampled]
        if not any(wanted):
            return
        tokens = step.tokens[:, None] if step.counts is None else step.tokens
        counts = enumerate(step.rows.counts)  # token j of a sequence belongs to its row j
        owners = [owner for owner, count in counts for _ in range(count)]
        measured = [row for row, owner in enumerate(owners) if wanted[owner]]
        at, owner = upload([measured, [owners[row] for row in measured]], tokens.device)
        offsets = step.rows.offsets[at]
        table = step.own.to(tokens.device)[at].double().log_softmax(-1)
        logprobs = torch.zeros(
            tokens.shape, dtype=torch.float64, device=tokens.device
        )  # 0 for other requests
        logprobs[owner, offsets] = table.gather(1, tokens[owner, offsets, None].clamp(min=0)).squeeze(1)
        step.packed.append((logprobs, lambda lines: step.logprobs.update(enumerate(lines))))

    def watch(self, request: Request) -> None:
        """Register a request, if it has `best_of`."""
        if request.best_of is not None:
            self.pools[request.id] = _Pool(request.n, request.best_of)

    def select(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events; for a `best_of` request only prompt progress, then the best samples."""
        if not self.pools:
            yield from events
            return
        for event in by_sample(events):
            pool = self.pools.get(event.request)
            if pool is None or isinstance(event, PromptScores):
                yield event
            elif isinstance(event, Reading):
                if event.sample < pool.wanted:
                    yield event
            elif isinstance(event, Token):
                pool.tokens.setdefault(event.sample, []).append(event)
            else:
                pool.ends.append(event)
                if len(pool.ends) == pool.size:
                    yield from _chosen(self.pools.pop(event.request))


def _chosen(pool: _Pool) -> list[Event]:
    """Return the events of the best samples; failed ones only if all failed."""
    finishes = [end for end in pool.ends if isinstance(end, Finish)]
    if not finishes:
        return [replace(end, sample=j) for j, end in enumerate(pool.ends[: pool.wanted])]
    finishes.sort(key=lambda end: end.sample)
    scored = [
        (
            length_score(end.logprob, end.completion_tokens, 1.0),
            end.logprob,
            end,
            joined(pool.tokens.get(end.sample) or [Token(end.request, end.sample, "", ())]),
        )
        for end in finishes
    ]
    events = chosen_events(finishes[0].request, pool.wanted, scored)
    # A choice with an interrupted sample is itself interrupted.
    return interrupted(events) if any(end.reason == "interrupted" for end in finishes) else events


# Score, log-probability, Finish event, and the sample's Token events merged into one.
Scored = tuple[float, float, Finish, Token]


def length_score(logprob: float, length: int, penalty: float) -> float:
    """Return logprob / max(length, 1) ** penalty.

    `logprob` is the log-probability of the text, `length` its tokens, EOS included. Only an interrupted text
    has no tokens.
    """
    return float(logprob / max(length, 1) ** penalty)


def best_reachable(logprob: float, length: int, longest: int, penalty: float) -> float:
    """Return an upper bound on the score of any continuation of a text of `length` tokens, up to `longest`.

    The log-probability of a text can only fall as it grows. So the bound keeps it, and takes the length with
    the best score: the longest for a positive penalty, else the shortest.
    """
    return length_score(logprob, longest if penalty > 0 else length + 1, penalty)


def rounded(value: float) -> float:
    """Return the value rounded to four significant digits, for comparison and output of scores.

    Further digits depend, also in float32, on the other sequences of the same forward pass.
    """
    return float(f"{value:.4g}")


def chosen_events(request: str, count: int, scored: Items[Scored]) -> list[Event]:
    """Return the events of the `count` best texts as samples 0, 1, ..., then errors for missing texts.

    Scores are compared with four significant digits; among equal scores the earlier text wins.
    """
    ranked = sorted(scored, key=lambda entry: -rounded(entry[0]))  # stable
    candidates = tuple(
        Candidate(end.text, score, logprob, end.completion_tokens, end.reason)
        for score, logprob, end, _ in ranked
    )
    events: list[Event] = []
    for sample, (score, _, end, tokens) in enumerate(ranked[:count]):
        events.append(replace(tokens, request=request, sample=sample, text=end.text))
        events.append(replace(end, request=request, sample=sample, score=score, candidates=candidates))
    shortage = f"Of {count} texts that are wanted there are only {len(scored)}."
    missing = range(len(scored), count)
    return [*events, *(Error(request, sample, "GenerationError", shortage, "") for sample in missing)]


def interrupted(events: Iterable[Event]) -> list[Event]:
    """Return the events with every finish marked as interrupted, for a choice that was interrupted."""
    return [
        replace(event, reason="interrupted", matched=None) if isinstance(event, Finish) else event
        for event in events
    ]
