"""Outputs that begin with given tokens, and prefixes that requests share."""

import random
from dataclasses import replace

import pytest

from gencli.core.events import Error
from gencli.core.request import Beams, Drafting, Limits, Match, Prefixes, Stops, shared_length
from gencli.errors import UsageError
from processors.chain import Chain
from processors.request_values import Verification
from processors.stages.grammar_stage import GrammarParams
from tests.engine.harness import Scripted, Watched, engine, events_of, generate, ids_of, request, texts
from tests.engine.test_guidance import Remembering

GRAMMAR = Chain((("grammar", GrammarParams(text="(abc|d){3,}e", kind="regex")),))
LETTERS = f"allowed=[{','.join(str(byte) for byte in b'abcdef ')}]"


def told(one, **options):
    """The output's ids and its last event."""
    events = events_of([one], **{"runner": Remembering()} | options)
    return ids_of(events).get((one.id, 0), ()), events[-1]


def test_a_stop_string_may_begin_in_the_prefix():
    for stop in (Stops(strings=("fe d",)), Stops(strings=("fe d",), include=True)):
        one = replace(request("x", chain=LETTERS, max_tokens=30), stops=stop)
        ids = tuple(b"ab fe")
        scripted = f'{LETTERS} | bias={{"32":99}}'
        found, end = told(replace(one, prefix=ids, chain=Chain.parse(scripted)))
        assert found[:6] == (*ids, 32), stop
        tail = request("x", chain=f'{LETTERS} | bias={{"100":99}}', max_tokens=30)
        _, end = told(replace(tail, prefix=tuple(b"ab fe "), stops=stop))
        assert (end.reason, end.text) == ("stop", "ab fe d" if stop.include else "ab "), stop


def test_drafts_that_decide_the_text_run_behind_a_prefix():
    lossy = Drafting(verification=Verification("rejection"))
    one = request("Hello", chain="temperature=1.2", max_tokens=30, drafting=lossy)
    ids, _ = told(one)
    part = replace(one, prefix=ids[:20])
    drafter = Scripted({one.prompt_ids: ids})
    found, end = told(part, drafter=drafter, step_tokens=6)
    assert found[:20] == ids[:20]
    assert end.completion_tokens == len(found) == 30


def test_samples_share_the_prefix_which_runs_again_after_the_memory_was_full():
    one = request("Hello", chain="temperature=1.5", n=3, max_tokens=16)
    found = texts([replace(one, prefix=tuple(b"abc"))])
    assert len(set(found.values())) == 3
    assert all(text.startswith("abc") for text in found.values())
    many = [request(name, chain="frequency=1", max_tokens=20, prefix=tuple(b"abcdefgh")) for name in "wxyz"]
    alone = {(one.id, 0): told(one)[1].text for one in many}
    assert texts(many, runner=Remembering(memory_lanes=2), max_batch=4) == alone


def test_a_whole_prefix_is_read_at_once():
    runner = Watched()
    generate([request("Hello", prefix=(97,) * 50, max_tokens=53)], runner=runner)
    assert [plan.num_rows for plan in runner.plans] == [50, 1, 1, 1]


def test_a_prefix_that_cannot_be_or_ends_before_its_end_is_an_error():
    stops = Stops(strings=("stop",))
    for options, said in (
        ({"chain": GRAMMAR, "prefix": b"abX"}, "Token 3 of the 3 that the output begins with is impossible"),
        ({"chain": GRAMMAR, "prefix": b"abcddea"}, "The output ends behind 6 of the 7"),
        ({"stops": stops, "prefix": b"a stop b"}, "ends behind 6 of the 8"),
    ):
        end = generate([request("Hello", **options | {"prefix": tuple(options["prefix"])})])["Hello", 0]
        assert isinstance(end, Error), said
        assert said in end.message
    end = generate([request("Hello", stops=stops, prefix=tuple(b"a stop"))])["Hello", 0]
    assert (end.text, end.reason, end.completion_tokens) == ("a ", "stop", 6)


def test_what_no_output_can_begin_with_is_refused():
    for options, said in (
        ({"beams": Beams(2)}, "`beams`"),
        ({"given": (97,)}, "given output"),
        ({"limits": Limits(max_tokens=2)}, "3 tokens, but 2 fit"),
        ({"prefix": (97, 999)}, "999 is outside"),
        ({"prefix": (-1,)}, "-1 is outside"),
    ):
        with pytest.raises(UsageError, match=said):
            engine().submit(request("Hello", **({"prefix": (97, 98, 99)} | options)))


def test_log_probabilities_and_explanations_are_those_of_the_whole_output():
    one = request("Hello", chain="top_k=5 | temperature=1.3", max_tokens=12, logprobs=1, trace=2)
    first = events_of([one], runner=Remembering())
    second = events_of([replace(one, prefix=ids_of(first)[one.id, 0][:7])], runner=Remembering())
    for key in ("ids", "logprobs", "views"):
        whole = [
            [str(each) for event in told for each in getattr(event, key, ())] for told in (first, second)
        ]
        assert whole[0] == whole[1] != []


def plain_length(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def draw_text(draw):
    """Few letters, so that much is shared."""
    return tuple(draw.choices((0, 1), k=draw.randint(0, 9)))


def test_shared_length_is_what_a_look_at_each_token_gives():
    draw = random.Random(0)
    for _ in range(500):
        a, b = draw_text(draw), draw_text(draw)
        assert shared_length(a, b) == plain_length(a, b), (a, b)


def test_the_nearest_lane_shares_as_much_as_any():
    for seed in range(5):
        draw, index, texts = random.Random(seed), Prefixes(), {}
        kinds = [(rope, salt) for rope in (0, 1) for salt in ("", "s")]
        for step in range(200):
            lane = draw.randrange(8)
            index.remove(lane)
            texts.pop(lane, None)
            if step % 3:
                texts[lane] = draw_text(draw), draw.choice(kinds)
                index.add(lane, *texts[lane])
            wanted, kind = draw_text(draw), draw.choice(kinds)
            match = index.nearest(wanted, kind)
            most = max((plain_length(wanted, text) for text, own in texts.values() if own == kind), default=0)
            assert match.length == most, seed
            assert match == Match() or (plain_length(wanted, texts[match.lane][0]) == most), seed


def test_a_long_prefix_is_not_compared_token_by_token():
    class Counted(int):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return int(self) == int(other)

        __hash__ = int.__hash__

    text = tuple(Counted(i) for i in range(4096))
    assert shared_length(text, (*text[:4000], -1)) == 4000
    assert Counted.compared < 200  # identical tokens are equal without a look
