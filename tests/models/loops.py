"""Loops over a runner: the smallest engines that can be wrong in one way only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from gencli.core.request import Feed, StepPlan
from gencli.models.model_runner import ModelRunner


@dataclass
class Job:
    """One text: what its lane holds, what is yet to be fed, what came out."""

    lane: int
    pending: list[int]
    admitted: int = 0
    held: int = 0
    text: list[int] = field(default_factory=list)


def decode(runner: ModelRunner, jobs: Sequence[Job], *, count: int, chunk: int = 10**6) -> list[list[int]]:
    """Run every job to `count` tokens; a job joins at step `admitted`; lanes are released in the end."""
    step = 0
    while any(len(job.text) < count for job in jobs):
        active = [job for job in jobs if job.admitted <= step and len(job.text) < count]
        feeds = [
            Feed(job.lane, job.held, tuple(job.pending[:chunk]), len(job.pending) <= chunk) for job in active
        ]
        logits = runner.forward(StepPlan(tuple(feeds)))
        rows = iter(logits.argmax(-1).tolist())
        for job, feed in zip(active, feeds, strict=True):
            job.held += len(feed.tokens)
            job.pending = job.pending[len(feed.tokens) :]
            if feed.num_logits:
                job.pending = [next(rows)]
                job.text.append(job.pending[0])
        step += 1
    for job in jobs:
        runner.release(job.lane)
    return [job.text for job in jobs]


def decode_with_drafts(
    runner: ModelRunner, jobs: Sequence[Job], texts: Sequence[list[int]], *, num_drafts: int
) -> list[list[int]]:
    """As `decode`, with drafts of which 0, 1, ... `num_drafts` are right in turn, by lane and step."""
    count, step, vocab = len(texts[0]), 0, runner.spec.vocab_size
    decode_prompts = [Feed(job.lane, 0, tuple(job.pending)) for job in jobs]
    first = runner.forward(StepPlan(tuple(decode_prompts))).argmax(-1).tolist()
    for job, token in zip(jobs, first, strict=True):
        job.held, job.pending, job.text = len(job.pending), [token], [token]
    while active := [job for job in jobs if len(job.text) < count]:
        drafts = []
        for job in active:
            right = (step + job.lane) % (num_drafts + 1)
            ahead = texts[jobs.index(job)][len(job.text) :][:num_drafts]
            drafts.append([token if i < right else (token + 1) % vocab for i, token in enumerate(ahead)])
        feeds = [
            Feed(job.lane, job.held, (job.pending[0], *draft), 1 + len(draft))
            for job, draft in zip(active, drafts, strict=True)
        ]
        rows = iter(runner.forward(StepPlan(tuple(feeds))).argmax(-1).tolist())
        for job, draft in zip(active, drafts, strict=True):
            chosen = [next(rows) for _ in range(1 + len(draft))]
            accepted = next((i for i, token in enumerate(draft) if token != chosen[i]), len(draft))
            job.text += chosen[: accepted + 1]
            job.held += accepted + 1
            job.pending = [chosen[accepted]]
            runner.truncate(job.lane, job.held)
        step += 1
    return [job.text[:count] for job in jobs]


def after_rollback(
    runner: ModelRunner,
    fresh: ModelRunner,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Sequence[int]],
    *,
    num_kept: int,
) -> tuple[Tensor, Tensor]:
    """Logits of seven places of each text behind four drafts, of which so many stood; and of a prefill."""
    lanes, starts, vocab = range(len(prompts)), [len(prompt) for prompt in prompts], runner.spec.vocab_size
    runner.forward(StepPlan(tuple(Feed(lane, 0, tuple(prompts[lane])) for lane in lanes)))
    drafts = [(*text[:num_kept], *((token + 1) % vocab for token in text[num_kept:4])) for text in texts]
    runner.forward(StepPlan(tuple(Feed(lane, starts[lane], drafts[lane], 4) for lane in lanes)))
    for lane in lanes:
        runner.truncate(lane, starts[lane] + num_kept)
    rest = [tuple(text[num_kept : num_kept + 7]) for text in texts]
    again = [Feed(lane, starts[lane] + num_kept, rest[lane], 7) for lane in lanes]
    whole = [Feed(lane, 0, (*prompts[lane], *texts[lane][: num_kept + 7]), 7) for lane in lanes]
    return runner.forward(StepPlan(tuple(again))), fresh.forward(StepPlan(tuple(whole)))
