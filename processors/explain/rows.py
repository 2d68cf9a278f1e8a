"""`explain_rows`: run the chains of rows once more and take each stage away in turn, with the same noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from processors.catalog import Draw, Phase
from processors.chain import Chain
from processors.explain.measures import changed, cut, places
from processors.explain.races import race
from processors.explain.view import Changed, Forgone, Place, RowView, StageView
from processors.pipeline import Pipeline, StageCall
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["explain_rows"]


class _Pass(NamedTuple):
    """The calls of a chain; logits and places of the tokens before each call and behind the last."""

    calls: tuple[StageCall, ...]
    logits: list[Tensor]
    places: list[list[Place]]


def explain_rows(
    pipeline: Pipeline,
    sampler: Sampler,
    logits: Tensor,
    rows: Rows,
    tokens: Tensor,
    draws: Sequence[Draw],
    *,
    count: int = 5,
) -> list[RowView]:
    """Explain the tokens [A] that the rows got from the model's logits [A, V], with guidance applied.

    Call it with rows for which the pipeline has prepared, before their tokens are committed. `draws`
    are those of each row, `count` is the number of ids in lists. With n stages it costs n (n - 1) / 2
    further stages and n draws.
    """
    done = _passed(pipeline, logits, rows, tokens, count)
    raw, final = done.places[0], done.places[-1]
    views = _stages(pipeline, done, rows, count)
    deciding = _deciding(pipeline, sampler, done, rows, tokens)
    others = _without_cuts(pipeline, sampler, done, rows)
    if pipeline.commits:  # a stage may commit what it computed last
        pipeline.run(done.calls, logits, rows)
    found = []
    for at, token in enumerate(tokens.tolist()):
        seed, position = rows.seeds[at : at + 1], rows.positions[at : at + 1]
        found.append(
            RowView(
                token=token,
                raw=raw[at],
                stages=tuple(views[at]),
                final=final[at],
                surprise=_bits(raw[at].p),
                race=race(draws[at], done.logits[-1][at], token, seed, position),
                decided_by=tuple(deciding[at]),
                forgone=_forgone(done, at, token, others[at]),
            )
        )
    return found


def _bits(p: float) -> float:
    return -math.log2(p) if p > 0 else math.inf


def _passed(pipeline: Pipeline, logits: Tensor, rows: Rows, tokens: Tensor, count: int) -> _Pass:
    calls, kept = pipeline.program(rows), [logits.float()]
    pipeline.run(calls, logits, rows, lambda _, after: kept.append(after.clone()))
    return _Pass(calls, kept, [places(some, tokens, count) for some in kept])


def _places_of(call: StageCall, count: int) -> Sequence[int]:
    return range(count) if call.places is None else call.places


def _stages(pipeline: Pipeline, done: _Pass, rows: Rows, count: int) -> list[list[StageView]]:
    """Return the views of each row's stages, in the order in which they ran."""
    views: list[list[StageView]] = [[] for _ in range(len(rows))]
    for number, call in enumerate(done.calls):
        at = list(_places_of(call, len(rows)))
        before, after = done.logits[number][at], done.logits[number + 1][at]
        acted = (before != after).any(-1).tolist()
        gone, mass = cut(before, after, count)
        notes = pipeline.stage(*call.key).notes(rows.select(at)) or [""] * len(at)
        moved: list[tuple[Changed, ...]] = [()] * len(at)
        phase = pipeline.registry.phase(call.stage)
        if phase == Phase.ADJUST:
            moved = changed(before, after, count)
        for i, place in enumerate(at):
            params = pipeline.values(rows.host_slots[place], call)
            old, new = done.places[number][place], done.places[number + 1][place]
            views[place].append(
                StageView(
                    name=call.stage,
                    params=str(Chain(((call.stage, params),))),
                    acted=acted[i],
                    alive=(old.alive, new.alive),
                    mass_kept=mass[i],
                    after=new,
                    removed=gone[i],
                    changed=moved[i],
                    note=notes[i] or _scaled(old, new, phase),
                )
            )
    return views


def _scaled(before: Place, after: Place, phase: Phase) -> str:
    """Return how a stage of the phase scale changed the entropy."""
    return f"entropy {before.entropy:.2f} -> {after.entropy:.2f} nats" if phase == Phase.SCALE else ""


def _deciding(
    pipeline: Pipeline, sampler: Sampler, done: _Pass, rows: Rows, tokens: Tensor
) -> list[list[str]]:
    """Return for each row the stages without which its draw gives another token."""
    deciding: list[list[str]] = [[] for _ in range(len(rows))]
    for number, call in enumerate(done.calls):
        rest = done.calls[number + 1 :]
        found = sampler(pipeline.run(rest, done.logits[number], rows), rows)
        differs = (found != tokens).tolist()
        for place in _places_of(call, len(rows)):
            if differs[place]:
                deciding[place].append(call.stage)
    return deciding


def _without_cuts(pipeline: Pipeline, sampler: Sampler, done: _Pass, rows: Rows) -> list[int]:
    """Return the token that each row gets without the stages of the phases truncate and gate."""
    calls = [call for call in done.calls if pipeline.registry.phase(call.stage) < Phase.TRUNCATE]
    found: list[int] = sampler(pipeline.run(calls, done.logits[0], rows), rows).tolist()
    return found


def _forgone(done: _Pass, at: int, token: int, other: int) -> Forgone | None:
    if other == token or other < 0:
        return None
    for number, call in enumerate(done.calls):
        if done.logits[number + 1][at, other] == -torch.inf:
            raw = done.logits[0][at].double()
            return Forgone(other, float((raw[other] - raw.logsumexp(0)).exp()), call.stage)
    return None
