"""The engine's thread: events in order, merged for slow readers; cancelled, refused and failed requests."""

import asyncio

import pytest

from gencli.core.events import Error, Finish, Reading, Token
from gencli.core.request import Limits, Request
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from gencli.runtime.compiled_grammars import RetryingEngine
from gencli.runtime.wiring import bare_engine
from gencli.server.engine_thread import EngineDied, EngineOrder, EngineThread, Mailbox, merge
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain

LONG = 900


def order(name, n=1, tokens=20, prompt=(1,), chain=""):
    return EngineOrder(Request(name, prompt, seed=3, n=n, limits=Limits(tokens), chain=Chain.parse(chain)))


def make_engine(**options):
    return bare_engine(FakeRunner(), ByteTokenizer(), **options)


async def all_of(mailbox):
    events = []
    while not mailbox.is_over:
        events += await mailbox.take()
    return events


def in_loop(scenario, engine=None):
    """Run `scenario(thread)` in an event loop, with a thread on the fake model."""

    async def run():
        thread = EngineThread(RetryingEngine(engine or make_engine()), print)
        try:
            return await asyncio.wait_for(scenario(thread), 60)
        finally:
            thread.stop()
            assert await asyncio.to_thread(thread.join, 10)

    return asyncio.run(run())


def test_events_are_those_of_the_engine_alone():
    plain = make_engine()
    plain.submit(order("a", n=2).request)
    expected = {(end.sample, end.text) for end in plain.run() if isinstance(end, Finish)}

    async def scenario(thread):
        both = thread.open([order("a", n=2), order("b")])
        events = await all_of(both)
        assert thread.num_open == 0
        return {(end.sample, end.text) for end in events if isinstance(end, Finish) and end.request == "a"}

    assert in_loop(scenario) == expected


def test_a_slow_reader_gets_all_tokens_in_few_events():
    async def scenario(thread):
        slow, quick = thread.open([order("slow", tokens=60)]), thread.open([order("quick", tokens=60)])
        await all_of(quick)
        await asyncio.sleep(0)  # what the last step handed over
        while slow.num_open:
            await asyncio.sleep(0.01)
        token, end = await slow.take()
        assert (token.text, len(token.ids)) == (end.text, 60)

    in_loop(scenario)


def test_tokens_of_short_steps_are_handed_over_with_what_ends_them():
    async def scenario():
        thread = EngineThread(RetryingEngine(make_engine()), print, pause=60)
        try:
            await all_of(thread.open([order("first", tokens=1)]))  # the pause begins
            mailbox = thread.open([order("a", tokens=40)])
            return await mailbox.take()
        finally:
            thread.stop()

    events = asyncio.run(scenario())
    assert [type(event) for event in events] == [Token, Finish]
    assert len(events[0].ids) == 40


def test_merging_keeps_the_order_of_each_sample():
    events = [Token("a", 0, "x", (1,)), Reading("b", 0, 1, 9), Token("a", 1, "y", (2,)),
              Reading("b", 0, 5, 9), Token("a", 0, "z", (3,)), Error("a", 1, "E", "m", "y")]  # fmt: skip
    assert merge(events) == [Reading("b", 0, 5, 9), Token("a", 0, "xz", (1, 3)), Token("a", 1, "y", (2,)),
                             Error("a", 1, "E", "m", "y")]  # fmt: skip


def test_a_cancelled_request_ends_within_a_step_and_the_others_keep_their_text():
    async def scenario(thread):
        steps = []
        thread.on_event = lambda event: steps.append(event.request)
        other = [order("other")]
        gone = [order("gone", tokens=LONG, chain="ignore_eos=true")]
        kept = thread.open(other)
        await thread.open(gone).take()
        thread.close(gone)
        thread.close(gone)  # twice does no harm
        text = (await all_of(kept))[-1].text
        while thread.num_open:
            await asyncio.sleep(0.001)
        assert steps.count("gone") < LONG / 2
        return text

    async def alone(thread):
        return (await all_of(thread.open([order("other")])))[-1].text

    assert in_loop(scenario) == in_loop(alone)


def test_a_refused_request_is_an_error_of_its_own():
    async def scenario(thread):
        refused, fine = thread.open([order("bad", prompt=())]), thread.open([order("good")])
        with pytest.raises(UsageError, match="The prompt is empty"):
            await refused.take()
        assert isinstance((await all_of(fine))[-1], Finish)

    in_loop(scenario)


class Broken:
    """An engine whose second step fails."""

    has_work, steps, notices = False, 0, ()

    def submit(self, request, structure=None):
        self.has_work = True

    def cancel(self, request_id):
        pass

    def step(self):
        self.steps += 1
        if self.steps == 2:
            raise RuntimeError("the device is gone")
        return [Token("a", 0, "x", (1,))]


def test_a_step_that_fails_ends_every_request_with_an_error():
    async def scenario():
        thread = EngineThread(Broken(), print)
        mailbox = thread.open([order("a")])
        assert [event.text for event in await mailbox.take()] == ["x"]
        with pytest.raises(EngineDied, match="the device is gone"):
            await mailbox.take()
        with pytest.raises(EngineDied, match="the device is gone"):
            thread.open([order("b")])

    asyncio.run(scenario())


def test_an_idle_thread_takes_no_step():
    class Idle(Broken):
        def step(self):
            self.has_work = False
            self.steps += 1
            return [Error("a", 0, "E", "m", "")]

    async def scenario():
        engine = Idle()
        thread = EngineThread(engine, print)
        await asyncio.sleep(0.05)
        assert engine.steps == 0
        await all_of(thread.open([order("a")]))
        await asyncio.sleep(0.05)
        assert engine.steps == 1
        thread.stop()

    asyncio.run(scenario())


def test_stopping_ends_open_requests():
    async def scenario(thread):
        mailbox = thread.open([order("a", tokens=LONG)])
        await mailbox.take()
        thread.stop()
        with pytest.raises(EngineDied, match="shut down"):
            await all_of(mailbox)

    in_loop(scenario)


def test_a_mailbox_gives_its_events_before_its_error():
    async def scenario():
        mailbox = Mailbox(1)
        mailbox.put(Token("a", 0, "x", (1,)))
        mailbox.fail(UsageError("no"))
        assert [event.text for event in await mailbox.take()] == ["x"]
        with pytest.raises(UsageError):
            await mailbox.take()

    asyncio.run(scenario())
