"""Who decided a token and who was forgone, against what the engine chooses without the stage."""

import math
import random
from dataclasses import replace

import pytest

from gencli.models.other_runners import FakeRunner
from processors.catalog import BUILTIN, Phase
from processors.errors import ProcessorsError
from tests.engine.harness import Token, engine, events_of, ids_of, request
from tests.slow.engine.test_random_chains import random_chain

PHASES = {spec.name: spec.phase for spec in BUILTIN}


TOKENS = 250  # for each seed


def runner(lanes=1):
    return FakeRunner(vocab_size=300, max_lanes=lanes)


def without(one, plans):
    """The ids of copies of a request, each without some stages at one position; they run side by side."""
    on = engine(runner=runner(len(plans)), max_batch=len(plans))
    plain = on.pipeline._run

    def run(call, logits, rows):
        after, positions = plain(call, logits.clone(), rows), rows.positions.tolist()
        for place in range(len(rows)) if call.places is None else call.places:
            stages, position = plans[rows.host_slots[place]]
            if call.stage in stages and positions[place] == position:
                after[place] = logits[place]
        return after

    setattr(on.pipeline, "_run", run)  # noqa: B010 - as processors.pipeline does
    found = [[] for _ in plans]
    for number in range(len(plans)):
        on.submit(replace(one, id=str(number)))
    for event in on.run():
        if isinstance(event, Token):
            number = int(event.request)
            found[number].extend(event.ids)
            if len(found[number]) > plans[number][1]:
                on.cancel(event.request)  # nobody reads further
    return found


def traced(rng):
    """A request with a random chain, and the explanations of its tokens."""
    while True:
        one = request(
            "the cat sat", key=rng.randrange(1 << 30), chain=random_chain(rng), max_tokens=rng.randint(3, 12)
        )
        one = replace(one, jump="off", draw=rng.choice(("gumbel", "multinomial", "greedy")))
        names = {name for name, _ in one.chain.active()}
        if any(getattr(params, "rewind", False) for _, params in one.chain):
            continue  # what is taken back was chosen in another step
        try:
            events = events_of([replace(one, trace=4)], runner=runner())
        except ProcessorsError:
            continue
        views = [view for event in events if isinstance(event, Token) for view in event.views]
        if views and names:
            return one, [*ids_of(events)[one.id, 0]], views


def check(seed):
    rng, count, decided, forgone = random.Random(seed), 0, 0, 0
    while count < TOKENS:
        one, ids, views = traced(rng)
        assert [view.token for view in views] == ids, seed
        cuts = frozenset(name for name, _ in one.chain if PHASES[name] >= Phase.TRUNCATE)
        plans = [
            (stages, at)
            for at, view in enumerate(views)
            for stages in (cuts, *({stage.name} for stage in view.stages))
        ]
        others = iter(without(one, plans))
        for at, view in enumerate(views):
            check_sums(view)
            uncut, *alone = [next(others)[at : at + 1] for _ in range(1 + len(view.stages))]
            for stage, other in zip(view.stages, alone, strict=True):
                case = str(one.chain), at, stage.name
                assert (stage.name in view.decided_by) == (other != [view.token]), case
            if view.forgone is not None:
                assert [view.forgone.id] == uncut != [view.token], seed
                assert view.forgone.removed_by in {stage.name for stage in view.stages if stage.acted}, seed
            decided, forgone = decided + len(view.decided_by), forgone + (view.forgone is not None)
        count += len(views)
    assert decided > TOKENS / 5, seed
    assert forgone > TOKENS / 20, seed


def test_a_stage_decided_a_token_if_the_engine_chooses_another_without_it():
    check(0)


def check_sums(view):
    """What is kept and removed, and what is listed and left out, is one together."""
    alive = view.raw.alive
    for stage in view.stages:
        assert math.fsum(p for _, p in stage.after.top) + stage.after.others == pytest.approx(1, abs=1e-9)
        assert stage.mass_kept + math.fsum(p for _, p in stage.removed) <= 1 + 1e-9
        if stage.alive[0] - stage.alive[1] <= 4:
            assert stage.mass_kept + math.fsum(p for _, p in stage.removed) == pytest.approx(1, abs=1e-9)
        assert stage.alive[0] == alive
        alive = stage.after.alive
    assert view.final == (view.stages[-1].after if view.stages else view.raw)
