"""A draft head that equals its target is right always, whatever ends, begins and is preempted beside it."""

from __future__ import annotations

from dataclasses import replace

from gencli.core.request import Drafting
from gencli.speculative.head_drafter import HeadDrafter
from tests.engine.harness import ends_of, events_of, ids_of
from tests.speculative.copying_heads import copied, copying


def test_a_head_that_equals_its_target_is_right_always(tmp_path):
    runner, head = copying(tmp_path)
    plain = ids_of(events_of(copied(), runner=runner))
    wanted = [replace(one, drafting=Drafting("", 4)) for one in copied()]
    for options in ({"max_batch": 1}, {"max_batch": 3, "step_tokens": 24}):
        drafter = HeadDrafter(head, runner.spec, max_lanes=8)
        events = events_of(wanted, runner=runner, drafter=drafter, **options)
        assert ids_of(events) == plain
        drafted = [end.drafted for end in ends_of(events).values()]
        assert [sum(each.accepted) for each in drafted] == [sum(each.proposed) for each in drafted]
        assert sum(sum(each.accepted) for each in drafted) > 60
