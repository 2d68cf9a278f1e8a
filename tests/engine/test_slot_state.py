"""Slots and KV lanes: which one a request takes, what it shares and keeps, sessions, long rope."""

from dataclasses import replace
from functools import cache as cached_function

import pytest
import torch

from gencli import LLM
from gencli.core.events import Error, Finish, Token
from gencli.core.request import Guidance, Limits, Request
from gencli.engine.engine import Engine
from gencli.engine.scheduler import Slots
from gencli.errors import ModelError, UsageError
from gencli.models.hf_runner import HFRunner
from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import SuffixDrafter
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from tests.engine.harness import (
    TOKENIZER,
    Scripted,
    ends_of,
    engine,
    events_of,
    generate,
    ids_of,
    request,
    texts,
)
from tests.engine.sequences import sequence
from tests.models.fresh import FreshRunner
from tests.models.tiny_models import SWITCH, VOCAB, long_rope


def slots(count=3, **options):
    return Slots(count, **{"can_rollback": True, "stays_warm": True, **options})


def take(idle, prompt, *, rope=0, at_least=0, **rest):
    return idle.take(sequence(prompt, computed=0, **rest), rope=rope, at_least=at_least)


def used(idle, prompt, *, slot=0, output=(), session=""):
    """Take a slot and give it back: the lanes that are to be emptied."""
    take(idle, prompt, session=session)
    return idle.put(sequence(prompt, output=output, slot=slot, session=session))


def test_a_lane_with_fewer_cached_tokens_than_another_offers_is_left_warm():
    idle = slots()
    used(idle, (1, 2, 3))
    assert take(idle, (1, 2, 9), at_least=3) == (1, 0)
    assert idle.warm.nearest((1, 2)).lane == 0


def test_without_an_empty_slot_the_oldest_warm_one_is_taken():
    idle = slots(2)
    for slot, prompt in enumerate([(1, 1), (2, 2)]):
        used(idle, prompt, slot=slot)
    used(idle, (2, 2), slot=1)  # again, so it is the youngest
    assert take(idle, (9, 9)) == (0, 0)


def test_after_a_full_memory_a_warm_lane_is_taken_before_an_empty_one():
    idle = slots(3)
    idle.limit = 1
    take(idle, (1, 1))
    idle.put(sequence((1, 1), slot=0))
    assert take(idle, (9, 9)) == (0, 0)
    assert take(idle, (8, 8)) == (1, 0)  # a sequence that is admitted beside it takes an empty one


SYSTEM = "You are a careful clerk who answers in one word. "
OTHER = "Translate into French, and say nothing else: "


def rows(count=24, **rest):
    """Two beginnings, in turns, and prompts without one."""
    heads = (SYSTEM, OTHER, "")
    return [
        request(f"{heads[i % 3]}Row {i}" + "!" * (i % 7), key=i, max_tokens=4 + i % 5, **rest)
        for i in range(count)
    ]


def read(requests, **options):
    """How many prompt tokens were fed, and the ends."""
    runner = options.pop("runner", None) or Watched()
    ends = generate(requests, runner=runner, **options)
    return runner.fed - sum(end.completion_tokens - 1 for end in ends.values()), ends


def test_who_waits_for_a_lane_that_ends_early_goes_on():
    requests = [
        request(SYSTEM + "a", key="a", limits=Limits(9, max_time=0.0)),
        *(request(f"{SYSTEM}{letter}", key=letter) for letter in "bcd"),
    ]
    wanted = {key: text for one in requests[1:] for key, text in texts([one]).items()}
    found = texts(requests, step_tokens=7)
    assert {key: found[key] for key in wanted} == wanted


def test_a_model_that_cannot_forget_shares_a_whole_prompt_and_nothing_else():
    requests = [request(SYSTEM, key=i) for i in range(5)]
    fed, ends = read(requests, runner=Onward())
    assert fed == len(SYSTEM) - 1 + 5
    assert {key: end.text for key, end in ends.items()} == texts(requests)
    fed, ends = read(rows(), runner=Onward(), max_batch=4)
    assert fed == sum(end.prompt_tokens for end in ends.values())
    assert {key: end.text for key, end in ends.items()} == texts(rows())


def test_few_tokens_are_not_worth_a_copy():
    fed, _ = read([request(f"Row {i} of 6", key=i) for i in range(6)])
    assert fed == 6 * len("Row 0 of 6")


def test_a_warm_lane_is_taken_where_it_lies():
    class Forked(FakeRunner):
        forks = 0

        def fork(self, source, target):
            self.forks += 1
            super().fork(source, target)

    runner = Forked()
    on = engine(runner=runner, max_batch=3)
    cached = [generate([request(f"{SYSTEM}{i}", key=i)], on=on)[str(i), 0].cached_tokens for i in range(3)]
    assert cached == [0, len(SYSTEM), len(SYSTEM)]
    assert runner.forks == 0


def order_of(requests, **options):
    """Ids in the order in which they end."""
    return [key for key, _ in generate(requests, **options)]


def brief(text, key, most=2):
    return request(text, key=key, max_tokens=most, chain="ignore_eos=true")


def test_rows_that_share_with_the_lanes_and_the_longest_come_first():
    requests = [brief(f"{(SYSTEM, OTHER)[i % 2]}{i}", i) for i in range(8)]
    assert order_of(requests, max_batch=1) == ["0", "2", "4", "6", "1", "3", "5", "7"]
    requests = [brief(f"{length}", length, length) for length in (2, 9, 5, 7)]
    assert order_of(requests, max_batch=1) == ["9", "7", "5", "2"]
    requests = [brief(chr(97 + i) * length, i) for i, length in enumerate([5, 40, 6, 41, 5, 40])]
    assert order_of(requests, max_batch=3)[:3] == ["0", "4", "2"]  # that begin together are of one length


def test_keys_and_values_are_shared_within_a_salt_only():
    for rest in ({}, {"session": "s"}, {"guidance": Guidance(1.5, (1,) * 20)}):
        runner = Watched()
        on = engine(runner=runner, drafter=SuffixDrafter())
        ends, fed = [], []
        for salt in ("", "a", "a", "b", "", "a"):
            runner.fed = 0
            (end,) = generate([request(SYSTEM, max_tokens=3, salt=salt, **rest)], on=on).values()
            ends.append(end)
            fed.append(runner.fed)
        cold, warm = len(SYSTEM), len(SYSTEM) - 1
        kept = [0, 0, warm, 0, 0, 0] if rest.get("session") else [0, 0, warm, 0, warm, warm]
        assert [end.cached_tokens for end in ends] == kept, rest
        assert {end.text for end in ends} == {ends[0].text}, rest
        assert [count == fed[0] for count in fed] == [not cached for cached in kept], rest
        assert fed[0] >= cold, rest


TEXT = "Once upon a time there was a fox who lived in a forest with a big old oak tree."


def test_a_prefix_is_shared_by_ids_and_not_by_text():
    llm = LLM("tiny-draft", dtype="float32")
    tokenizer = llm.tokenizer

    def cached(ids):
        (out,) = llm.generate_from_ids([ids], max_tokens=1)
        return out.samples[0].cached_tokens

    whole = tokenizer.encode(TEXT)
    letters = [token for letter in TEXT for token in tokenizer.encode(letter, special=False)]
    spelt = [whole[0], *letters]  # the same text
    assert tokenizer.decode(spelt) == tokenizer.decode(whole)
    common = next(n for n, pair in enumerate(zip(whole, spelt, strict=False)) if pair[0] != pair[1])
    end = tokenizer.eos_ids[0]
    shown = tokenizer.decode([end], skip_special=False)
    as_text = [token for letter in shown for token in tokenizer.encode(letter, special=False)]
    assert cached(whole) == 0
    assert cached([*whole, end, *whole]) == len(whole)
    assert cached([*whole, *as_text, *whole]) == len(whole)  # not the end token's place, whose text it has
    assert cached(spelt) <= common
    # The ids of a text, and the same ids given, whose text is another: it has the first token too.
    fresh = LLM("tiny-draft", dtype="float32")
    fresh.generate(TEXT, max_tokens=1)
    (given,) = fresh.generate_from_ids([[*whole, 9]], max_tokens=1)
    assert given.prompt != TEXT
    assert given.samples[0].cached_tokens == len(whole)


HELLO = "Hello there. "


def turn(text, number=0, **rest):
    return request(text, key=number, session="chat", max_tokens=9, **rest)


class Watched(FakeRunner):
    """Counts the tokens that are fed."""

    fed = 0

    def forward(self, plan):
        self.fed += plan.num_tokens
        return super().forward(plan)


class Onward(Watched):
    """A model that cannot forget tokens it has read."""

    @property
    def spec(self):
        return replace(super().spec, can_rollback=False)

    def truncate(self, lane, length):
        if length < self.length(lane):
            raise ModelError("Cannot forget.")
        super().truncate(lane, length)


def only(ends):
    (end,) = ends.values()
    return end


def test_the_next_turn_reads_only_what_is_new():
    runner = Watched()
    on = engine(runner=runner)
    first = only(generate([turn(HELLO)], on=on))
    assert (first.prompt_tokens, first.cached_tokens) == (13, 0)
    runner.fed = 0
    longer = turn("Hello there. And more", 1)
    second = only(generate([longer], on=on))
    assert (second.prompt_tokens, second.cached_tokens) == (21, 13)
    assert runner.fed == 8 + second.completion_tokens - 1
    assert second.text == texts([longer])["1", 0]


def test_what_differs_is_forgotten_and_the_text_is_that_of_a_new_engine():
    for then, cached in (("Help", 3), (HELLO, 12), ("Hello", 4), ("Other", 0)):
        for kind in (Watched, Onward):
            on = engine(runner=kind())
            generate([turn(HELLO)], on=on)
            end = only(generate([turn(then, 1)], on=on))
            assert end.cached_tokens == (0 if kind is Onward else cached), (then, kind)
            assert end.text == texts([turn(then, 1)])["1", 0], (then, kind)
    on = engine(runner=Onward())  # which goes on from all it has read
    first = generate([turn(HELLO, chain="suppress=[257] | allowed=" + str(list(range(97, 123))))], on=on)
    end = only(generate([turn(HELLO + only(first).text + "!", 1)], on=on))
    assert end.cached_tokens == len(HELLO) + 8  # the last token of an answer is never fed


def test_rejected_drafts_are_not_kept():
    known = generate([turn(HELLO)], runner=Watched())
    output = tuple(TOKENIZER.encode(only(known).text))
    on = engine(drafter=Scripted({tuple(TOKENIZER.encode(HELLO)): output}))
    assert only(generate([turn(HELLO)], on=on)).text == only(known).text
    longer = turn(HELLO + only(known).text + "?", 1)
    end = only(generate([longer], on=on))
    assert end.cached_tokens >= len(HELLO)
    assert end.text == texts([longer])["1", 0]


def test_parked_lanes_make_room_the_oldest_first():
    on = engine(max_batch=2)
    for name in ("old", "new"):
        generate([request(HELLO, key=name, session=name)], on=on)
    generate([request("Someone else", key="x")], on=on)
    again = [request(HELLO + "!", key=name, session=name) for name in ("new", "old")]
    cached = [only(generate([one], on=on)).cached_tokens for one in again]
    assert cached == [13, 0]


def test_two_requests_of_a_session_at_once_keep_one_lane():
    on = engine(max_batch=2)
    both = [turn(HELLO, 0), turn("Hello you", 1)]
    assert texts(both, on=on) == texts(both)
    crowd = [request(f"Text {i}", key=i) for i in range(4)]
    assert texts(crowd, on=on) == texts(crowd)


def test_a_session_takes_one_sample():
    with pytest.raises(UsageError, match="session"):
        engine().submit(turn(HELLO, n=2))


COUNT = 10
LENGTHS = (30, SWITCH - 3, SWITCH, SWITCH + 1, 70, 90)
_NOISE = torch.Generator().manual_seed(7)
# All begin alike, and go on by repeating themselves, so that drafters have something to say.
_HEAD, _WORD = (torch.randint(3, VOCAB, (size,), generator=_NOISE).tolist() for size in (20, 7))
PROMPTS = [tuple([*_HEAD, length, *_WORD * 15][:length]) for length in LENGTHS]
torch.set_num_threads(1)


@cached_function
def model():
    return long_rope("phi3")


def requests(**rest):
    chain = Chain.parse("temperature=0.7")
    return [
        Request(str(number), prompt, chain=chain, seed=number, limits=Limits(COUNT), **rest)
        for number, prompt in enumerate(PROMPTS)
    ]


def run(runner, asked, *, max_batch=8, **options):
    """Ids by request and sample."""
    events = events_of(asked, on=Engine(runner, ByteTokenizer(), max_batch=max_batch, **options))
    assert not [event for event in events if isinstance(event, Error)]
    return dict.fromkeys(ends_of(events), ()) | ids_of(events)


def runner(max_lanes=16):
    return HFRunner(model(), max_lanes=max_lanes)


def test_turns_of_a_session_cross_the_switch():
    chain = Chain.parse("temperature=0")
    for one in (runner(), FreshRunner(model())):
        on, texts, prompt = Engine(one, ByteTokenizer(), max_batch=2), [], PROMPTS[0]
        for turn in range(5):
            on.submit(Request(str(turn), prompt, chain=chain, limits=Limits(5), session="a"))
            ids = [i for event in on.run() if isinstance(event, Token) for i in event.ids]
            texts.append(ids)
            prompt = (*prompt, *ids, 7, 8, 9)
        if isinstance(one, HFRunner):
            found = texts
    assert len(prompt) > SWITCH + 10
    assert found == texts


def test_a_beginning_is_copied_on_one_side_of_the_switch_only():
    head = (*_HEAD, *_WORD * 3)
    asked = [Request(str(n), (*head, 5, *_WORD * n), limits=Limits(2)) for n in (0, 2, 0, 2)]
    engine = Engine(runner(), ByteTokenizer(), max_batch=4)
    for number, one in enumerate(asked):
        engine.submit(Request(str(number), one.prompt_ids, limits=Limits(2)))
    ends = {event.request: event.cached_tokens for event in engine.run() if isinstance(event, Finish)}
    assert [ends[str(number)] > 0 for number in range(4)] == [False, False, True, True]
