"""`explain_rows`: rerun the chains of rows, and leave out each stage in turn, with the same noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from processors.catalog import Draw, Phase
from processors.chain import Chain
from processors.explain.measures import Snapshot, changed, cut
from processors.explain.races import race
from processors.explain.reruns import Rerun
from processors.explain.view import Forgone, Mask, Place, Race, RowView, StageView
from processors.pipeline import Pipeline, StageCall
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["explain_rows"]

_IDLE = {
    Phase.CONSTRAIN: "masks no token here",
    Phase.ADJUST: "changes no token here",
    Phase.SCALE: "these values change nothing",
    Phase.TRUNCATE: "nothing below the threshold",
    Phase.GATE: "nothing to exclude",
}


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
    """Explain tokens [A] of rows, drawn or not, with the model's logits [A, V] after guidance.

    The rows have to be prepared by the pipeline, and their tokens not yet committed. `draws`: draw method of
    each row. `count`: number of ids in lists. With n stages that change the logits it costs at most n (n - 1)
    / 2 more stages and n draws.
    """
    done = Rerun(pipeline, sampler, logits, rows)
    walks = [_Walk(done.logits[0][at], token, count) for at, token in enumerate(tokens.tolist())]
    for number in range(len(done.calls)):
        _step(pipeline, done, rows, number, walks)
    races = [walk.race(draws[at], rows, at) for at, walk in enumerate(walks)]
    # A draft accepted by a lossy policy, or a token that the caller asks about, may differ from the draw's.
    drawn = [walk.place.p > 0 and (races[at].margin or 0) >= 0 for at, walk in enumerate(walks)]
    if all(drawn):
        done.tokens = tokens.tolist()
    else:
        done.draw()
    deciding, winning, others = *_without_each(done, rows, walks), _uncut(pipeline, done)
    done.restore()
    found = []
    for at, walk in enumerate(walks):
        found.append(
            RowView(
                token=walk.token,
                raw=walk.raw,
                stages=_with_left_out(pipeline, rows, at, walk),
                final=walk.place,
                surprise=-math.log2(walk.raw.p) if walk.raw.p > 0 else math.inf,
                race=races[at],
                decided_by=tuple(name for name, _ in deciding[at]) if drawn[at] else (),
                instead=tuple(other for _, other in deciding[at]) if drawn[at] else (),
                wins_without=tuple(winning[at]),
                mask=_mask(walk.stages, pipeline),
                forgone=_forgone(done, at, walk, others[at]) if drawn[at] else None,
            )
        )
    return found


class _Walk:
    """One row on its way through the chain: views of the stages so far, and the row after them."""

    def __init__(self, logits: Tensor, token: int, count: int) -> None:
        self.token, self._count = token, count
        self.first = self.row = Snapshot(logits)
        self.raw = self.place = self.row.place(token, count)
        self.stages: list[StageView] = []

    def step(self, logits: Tensor, name: str, params: str, phase: Phase) -> StageView:
        """Add a stage and the logits [V] after it; return its view."""
        before, old = self.row, self.place
        after = Snapshot(logits, before)
        if after.is_same(before):
            view = StageView(name, params, False, (old.alive, old.alive), 1.0, old)
        else:
            removed, kept = cut(before, after, self._count)
            moved = changed(before, after, self._count) if phase == Phase.ADJUST else ()
            self.row, self.place = after, after.place(self.token, self._count)
            alive = old.alive, self.place.alive
            view = StageView(name, params, True, alive, kept, self.place, removed, moved)
        self.stages.append(view)
        return view

    def race(self, draw: Draw, rows: Rows, at: int) -> Race:
        """Return the race of the draw after the last stage."""
        return race(draw, self.row, self.token, rows.seeds[at : at + 1], rows.positions[at : at + 1])


def _step(pipeline: Pipeline, done: Rerun, rows: Rows, number: int, walks: Sequence[_Walk]) -> None:
    """Add the view of a stage to each row where it is on."""
    call, at = done.calls[number], _places_of(done.calls[number], len(rows))
    phase = pipeline.registry.phase(call.stage)
    olds, views = [walks[place].place for place in at], list[StageView]()
    for place in at:
        params = str(Chain(((call.stage, pipeline.values(rows.host_slots[place], call)),)))
        views.append(walks[place].step(done.logits[number + 1][place], call.stage, params, phase))
    stage, some = pipeline.stage(*call.key), rows.select(at)
    notes = stage.notes(some, [_most(view) for view in views]) or [""] * len(at)
    idle = () if all(view.acted for view in views) else stage.idle(some)
    for i, (place, old, view) in enumerate(zip(at, olds, views, strict=True)):
        note, why_not = notes[i], ""
        if not view.acted:
            why_not = (idle[i] if idle else "") or ("one token is left" if old.alive == 1 else _IDLE[phase])
        elif not note:
            note = _said(phase, old, view.after)
        walks[place].stages[-1] = replace(view, note=note, why_not=why_not)


def _said(phase: Phase, before: Place, after: Place) -> str:
    """Return the default note of a stage by its phase; "" for none."""
    if phase == Phase.SCALE:
        return f"entropy {before.entropy:.2f} -> {after.entropy:.2f} nats"
    masks = phase == Phase.CONSTRAIN and after.alive < before.alive
    return f"masked {before.alive - after.alive}, {after.alive} left" if masks else ""


def _places_of(call: StageCall, count: int) -> Sequence[int]:
    return range(count) if call.places is None else call.places


def _most(view: StageView) -> int:
    """Return the id whose logit the stage changed most, or the likeliest id that it masked; -1 for none."""
    ids = [entry[0] for entry in view.changed] or [entry[0] for entry in view.removed]
    return ids[0] if ids else -1


def _with_left_out(pipeline: Pipeline, rows: Rows, at: int, walk: _Walk) -> tuple[StageView, ...]:
    """Return the stages of a row, including those switched off by a condition."""
    found = list(walk.stages)
    left_out = pipeline.left_out(rows.host_slots[at], rows.host_drafts[at])
    for inserted, (place, (name, params), reason) in enumerate(left_out):
        here = walk.stages[place - 1].after if place else walk.raw
        text, alive = str(Chain(((name, params),))), (here.alive, here.alive)
        found.insert(place + inserted, StageView(name, text, False, alive, 1.0, here, why_not=reason))
    return tuple(found)


def _mask(stages: Sequence[StageView], pipeline: Pipeline) -> Mask:
    """Return which stages of the phase CONSTRAIN masked ids, and how many ids they masked together."""
    counts = {
        view.name: view.alive[0] - view.alive[1]
        for view in stages
        if view.acted and pipeline.registry.phase(view.name) == Phase.CONSTRAIN
    }
    return Mask(tuple(name for name, count in counts.items() if count), sum(counts.values()))


def _without_each(
    done: Rerun, rows: Rows, walks: Sequence[_Walk]
) -> tuple[list[list[tuple[str, int | None]]], list[list[str]]]:
    """Return for each row the stages without which its draw gives another token, and that token."""
    deciding = [list[tuple[str, int | None]]() for _ in range(len(rows))]
    winning = [list[str]() for _ in range(len(rows))]
    for number, call in enumerate(done.calls):
        others = done.without(number)
        for place in _places_of(call, len(rows)):
            if others[place] != done.tokens[place]:
                other = others[place]
                deciding[place].append((call.stage, other if other >= 0 else None))
            if others[place] == walks[place].token != done.tokens[place]:
                winning[place].append(call.stage)
    return deciding, winning


def _uncut(pipeline: Pipeline, done: Rerun) -> list[int]:
    """Return the token that each row gets without stages of the phases TRUNCATE and GATE."""
    phases = [pipeline.registry.phase(call.stage) for call in done.calls]
    return done.without(*[number for number, phase in enumerate(phases) if phase >= Phase.TRUNCATE])


def _forgone(done: Rerun, at: int, walk: _Walk, other: int) -> Forgone | None:
    if other == walk.token or other < 0:
        return None
    for number, call in enumerate(done.calls):
        if done.logits[number + 1][at, other] == -math.inf:
            return Forgone(other, walk.first.p(float(walk.first.logits[other])), call.stage)
    return None
