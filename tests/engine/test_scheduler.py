"""The scheduler: what each step feeds, its limit of tokens, the queue, and a full memory."""

import time
from dataclasses import replace

import pytest

from gencli.core.events import Error, Finish, Token
from gencli.core.request import Drafting, Guidance, Limits, Request
from gencli.engine.scheduler import Samples, Scheduler, fitting
from gencli.models.other_runners import FakeRunner
from gencli.runtime.wiring import bare_engine
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.drafter import SuffixDrafter
from gencli.text.tokenizer import ByteTokenizer
from processors.request_values import Verification
from tests.engine.harness import Watched, ends_of, engine, events_of, generate, request, texts
from tests.engine.sequences import sequence
from tests.speculative.cases import LETTERS, WIDTH, outcomes


def scheduler(*prompts, max_batch=4, step_tokens=64, n=1, drafting=None, **options):
    """A scheduler whose queue has a request for each prompt."""
    queue = Scheduler(max_batch=max_batch, step_tokens=step_tokens, **options)
    for prompt in prompts:
        one = Request("r", tuple(prompt), n=n, drafting=drafting or Drafting())
        make = lambda sample, one=one: replace(  # noqa: E731
            sequence(one.prompt_ids, computed=0, n=one.n, drafting=one.drafting), sample=sample
        )
        queue.add(Samples(one, make, submitted=0.0))
    return queue


def step(queue, propose=lambda sequences: {}, is_waiting=lambda one: False):
    """Plan a step and feed it: sampled sequences get a token."""
    planned = queue.plan(propose, [one for one in queue.running if is_waiting(one)])
    for one, feed in zip(planned.sequences, planned.plan.feeds, strict=True):
        one.num_computed_tokens += len(feed.tokens) - len(feed.drafts)
        if feed.num_logits:
            one.output.append(0)
    return planned.plan.feeds


def test_as_many_run_as_there_are_slots_and_samples_in_their_order():
    queue = scheduler((1, 2), (3, 4), (5, 6), max_batch=2)
    assert [one.slot for one in queue.admit()] == [0, 1]
    assert queue.admit() == []
    assert [one.prompt for one in queue.waiting] == [(5, 6)]
    queue.remove(queue.running[0])
    assert [one.prompt for one in queue.admit()] == [(5, 6)]
    queue = scheduler((1, 2), n=3, max_batch=2)
    assert [one.sample for one in queue.admit()] == [0, 1]
    assert queue.has_work
    assert [one.sample for one in queue.everything()] == [0, 1, 2]


def test_a_prompt_is_fed_in_chunks_and_its_last_token_asks_for_logits():
    queue = scheduler(range(10), max_batch=1, step_tokens=4)
    queue.admit()
    fed = [feed for _ in range(3) for feed in step(queue)]
    told = [(feed.start, feed.tokens, feed.num_logits) for feed in fed]
    assert told == [(0, (0, 1, 2, 3), 0), (4, (4, 5, 6, 7), 0), (8, (8, 9), 1)]
    assert {feed.text_length for feed in fed[:2]} == {10}


def test_drafts_are_cut_to_what_the_step_leaves_or_take_turns_where_they_decide_the_text():
    def propose(sampled):
        return {one.slot: (7,) * 5 for one in sampled}

    queue = scheduler((1, 2), (3, 4), step_tokens=8)
    queue.admit()
    step(queue)
    assert [feed.drafts for feed in step(queue, propose)] == [(7,) * 3] * 2
    drafting = Drafting("d", 5, 0.0, Verification("rejection"))
    queue = scheduler((1, 2), (3, 4), step_tokens=8, drafting=drafting)
    queue.admit()
    step(queue)
    turns = [[(feed.lane, len(feed.drafts)) for feed in step(queue, propose)] for _ in range(3)]
    assert sorted(turns[:2]) == [[(0, 5)], [(1, 5)]]
    assert turns[2] == turns[0]


def test_a_waiting_sequence_does_not_feed_its_last_token():
    queue = scheduler((1, 2, 3))
    queue.admit()
    assert [feed.tokens for feed in step(queue, is_waiting=lambda one: True)] == [(1, 2)]
    assert step(queue, is_waiting=lambda one: True) == ()
    assert [feed.tokens for feed in step(queue)] == [(3,)]


def test_after_a_full_memory_all_wait_in_their_order_and_half_as_many_run():
    queue = scheduler((1, 2), (3, 4), (5, 6), (7, 8))
    queue.admit()
    preempted, freed, num_idle = queue.preempt_all()
    assert num_idle == 0
    assert (queue.limit, queue.running) == (2, [])
    assert [one.prompt for one in preempted] == [one.prompt for one in queue.waiting]
    assert sorted(freed) == [0, 1, 2, 3]
    for one in preempted:
        one.place(-1)
    assert [one.prompt for one in queue.admit()] == [(1, 2), (3, 4)]
    queue = scheduler((1, 2), (3, 4), (5, 6), max_batch=2)
    queue.admit()
    queue.preempt_all()  # those that ran come before those that waited
    assert [one.prompt for one in queue.waiting] == [(1, 2), (3, 4), (5, 6)]


def order(window):
    """The order in which texts of growing length end, one at a time."""
    engine = bare_engine(FakeRunner(), ByteTokenizer(), max_batch=1, window=window)
    for number in range(6):
        engine.submit(Request(str(number), (number + 1,), limits=Limits(2 + number)))
    return [event.request for event in engine.run() if isinstance(event, Finish)]


def test_fewer_than_the_window_overtake_the_first():
    assert order(1) == ["0", "1", "2", "3", "4", "5"]
    assert order(3).index("0") <= 2
    assert order(64)[0] == "5"  # the longest first, so that none runs alone at the end


def urgent(priorities, *, later=(), window=64, n=1):
    """The order in which requests of these priorities end, one at a time; `later` come after a step."""
    engine = bare_engine(FakeRunner(), ByteTokenizer(), max_batch=1, window=window)
    limits = Limits(3)
    for number, priority in enumerate(priorities):
        engine.submit(Request(str(number), (number + 1,), limits=limits, priority=priority, n=n))
    events = engine.step()
    for number, priority in enumerate(later, start=len(priorities)):
        engine.submit(Request(str(number), (number + 1,), limits=limits, priority=priority))
    events += engine.run()
    return [event.request for event in events if isinstance(event, Finish)]


def test_a_lower_priority_value_begins_first_and_ties_in_order_of_arrival():
    assert urgent([0, 5, 0, -3, 5], window=1) == ["3", "0", "2", "1", "4"]


def test_an_urgent_request_overtakes_all_that_wait():
    assert urgent([1] * 4, later=[0, -1, 2]) == ["0", "5", "4", "1", "2", "3", "6"]
    assert urgent([1, 1], n=3, later=[0], window=1) == ["0", "2", "0", "0", "1", "1", "1"]


def test_more_than_the_window_may_be_urgent():
    last = urgent([0] * 3 + [-1] * 40, later=[-2] * 20, window=2)
    assert sorted(map(int, last[1:21])) == [*range(43, 63)]
    assert last[-3:] == ["0", "1", "2"]


ROWS = 6


def requests(policies, *, drafts=5, guided=False):
    for i in range(3 * ROWS):
        drafting = Drafting("", drafts, 0.0, Verification(policies[i % len(policies)]))
        text = "abcabcdabc" * (1 + 9 * (i % 3))
        one = request(text, key=i, chain=f"{LETTERS} | ignore_eos=true", max_tokens=40, jump="off")
        yield replace(one, drafting=drafting, guidance=Guidance(1.5 if guided and i % 2 else 1.0))


def run(rows, **options):
    """Outcomes, how many drafts stood, and the steps."""
    runner = Watched(WIDTH, context=4096)
    drafter = AdaptiveDrafter(SuffixDrafter(), clock=time.perf_counter)
    found, stood = outcomes(rows, runner=runner, drafter=drafter, **options)
    return found, stood, [(plan.num_tokens, len(plan.feeds)) for plan in runner.plans]


def test_prompts_are_read_beside_drafts():
    long = request("abcd" * 200, key="long", chain=LETTERS, max_tokens=2)
    rows = [*list(requests(["match"]))[: ROWS - 1], long]
    _, _, steps = run(rows, max_batch=ROWS, step_tokens=32)
    assert sum(tokens > 12 for tokens, _ in steps) >= 800 // 32


def test_of_drafts_that_do_not_fit_the_longest_are_cut():
    runs = {0: (1, 2, 3, 4), 1: (5,), 2: (6, 7, 8)}
    assert fitting(runs, {0: 1, 1: 1, 2: 1}, 5) == {0: (1, 2), 1: (5,), 2: (6, 7)}
    assert fitting(runs, {0: 1, 1: 1, 2: 2}, 5) == {0: (1,), 1: (5,), 2: (6,)}
    assert fitting(runs, {0: 1, 1: 1, 2: 1}, -3) == {0: (), 1: (), 2: ()}
    assert fitting({}, {}, 5) == {}


REQUESTS = [request(f"Row {n}", max_tokens=5 + n, chain='ban=["a"] | temperature=0.9') for n in range(9)]


class Sudden(FakeRunner):
    """Has memory until a step that is told."""

    def __init__(self, *steps):
        super().__init__()
        self.steps, self.count, self.num_frees = steps, 0, 0

    def forward(self, plan):
        self.count += 1
        if self.count in self.steps:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(plan)

    def free_cache(self):
        self.num_frees += 1


def test_no_piece_of_text_is_told_twice():
    for n in (1, 3):
        rows, told = [request(f"Row {i}", n=n) for i in range(4)], {}
        events = events_of(rows, runner=Sudden(4, 9), max_batch=8)
        for event in events:
            if isinstance(event, Token):
                key = event.request, event.sample
                told[key] = told.get(key, "") + event.text
        ends = {key: end.text for key, end in ends_of(events).items()}
        assert told == ends, n
        assert len(ends) == 4 * n, n


def test_a_limit_that_was_found_is_kept():
    on = engine(runner=FakeRunner(memory_lanes=3), max_batch=8)
    generate(REQUESTS, on=on)
    generate([request(f"More {n}") for n in range(9)], on=on)
    said = "The memory is full with {} sequences at once; from now on {} run."
    assert on.notices == [said.format(8, 4), said.format(4, 2)]


def test_what_does_not_fit_alone_fails_alone():
    (end, *rest) = generate(REQUESTS[:3], runner=Sudden(1, 2), max_batch=2).values()
    assert isinstance(end, Error)
    assert "memory is full" in end.message
    assert all(isinstance(one, Finish) for one in rest)


def test_the_lanes_of_ended_texts_make_room_for_one_that_runs_alone_and_a_session_goes_on():
    runner = Sudden()
    on = engine(runner=runner, max_batch=2)
    generate([REQUESTS[0]], on=on)
    runner.steps = (runner.count + 2,)
    (end,) = generate([request("Another")], on=on).values()
    assert end.text == texts([request("Another")])["Another", 0]
    assert not on.notices
    turns = [request("Hello.", key=0, session="chat"), request("Hello. And", key=1, session="chat")]
    on = engine(runner=Sudden(3), max_batch=2)
    generate([turns[0], request("Beside")], on=on)
    assert generate([turns[1]], on=on)["1", 0].text == texts([turns[1]])["1", 0]


def test_other_errors_are_not_taken_for_it():
    class Broken(FakeRunner):
        def forward(self, plan):
            raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        generate(REQUESTS, runner=Broken())
