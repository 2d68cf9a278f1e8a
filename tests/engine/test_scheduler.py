"""Which sequences run, and what each of them feeds in a step."""

from dataclasses import replace

from gencli.core.request import Beams, Drafting, Feed, Request
from gencli.engine.beam_search import Search
from gencli.engine.scheduler import Samples, Scheduler
from processors.request_values import Verification
from tests.engine.sequences import sequence


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
        one.computed(len(feed.tokens) - len(feed.drafts))
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


def test_running_texts_decode_while_a_prompt_is_read():
    queue = scheduler((1, 2), range(50), step_tokens=8, share_prefixes=False)
    queue.admit()
    step(queue)
    feeds = {feed.lane: feed for feed in step(queue)}
    assert feeds[0] == Feed(0, 2, (0,), 1)
    assert len(feeds[1].tokens) == 7


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


def test_a_text_that_grows_over_a_switch_is_read_anew():
    queue = scheduler((1, 2, 3), rope_switches=(4,))
    queue.admit()
    step(queue)
    (one,) = queue.running
    assert not queue.rewind(one)
    one.output.append(0)
    assert queue.rewind(one)
    assert (one.rope, one.num_computed_tokens) == (1, 0)
    assert not queue.rewind(one)


def test_a_group_runs_when_all_its_slots_are_free_and_fewer_than_64_overtake_it():
    queue = scheduler((1, 2), (1, 2), (1, 2), max_batch=3)
    queue.admit()
    root = Search(sequence((3, 4), computed=0, beams=Beams(3)), max_tokens=9, num_ends=1).members[0]
    queue.add(Samples(root.request, lambda sample: root, submitted=0.0))
    for number in range(100):
        later = sequence((5, number), computed=0)
        queue.add(Samples(later.request, lambda sample, later=later: later, submitted=0.0))
    overtook = 0
    while root not in queue.running:
        queue.remove(queue.running[0])
        overtook += len([one for one in queue.admit() if one is not root])
    assert overtook == 63
    assert (queue.running, root.group.slots, queue.num_used) == ([root], (0, 1, 2), 3)


def test_members_of_a_group_choose_tokens_in_the_same_step():
    queue = scheduler(max_batch=2, step_tokens=4)
    search = Search(sequence((1, 2), computed=0, beams=Beams(2)), max_tokens=9, num_ends=1)
    queue.add(Samples(search.request, lambda sample: search.members[0], submitted=0.0))
    (root,) = queue.admit()
    step(queue)
    twin = root.fork()
    twin.move(1)
    search.members = [root, twin]
    queue.replace(search)
    for member in search.members:
        member.recompute(0)
    lanes = []
    while not lanes or not lanes[-1]:
        lanes.append([feed.lane for feed in step(queue) if feed.num_logits])
    assert lanes == [[], [], [0, 1]]
