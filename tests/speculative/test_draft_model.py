"""Drafts of a model: its lanes, its draws, its stream and its launches."""

import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from gencli.core.request import Drafting
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner, SideStreamRunner, run_on_side_stream
from gencli.runtime.model_loading import load_tokenizer
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import NgramDrafter
from gencli.text.tokenizer import ByteTokenizer, first_difference
from tests.engine.harness import Scripted, Watched, generate, request
from tests.speculative.cases import WIDTH, drafting, outcomes


def feeds_of(runner):
    return [plan.feeds for plan in runner.plans]


def rows(num, *, tokens=4, prompt="abc", chain="ignore_eos=true", **rest):
    made = [request(prompt, key=i, chain=chain, max_tokens=40, **rest) for i in range(num)]
    return drafting(made, "", tokens)


class Limited(ModelDrafter):
    """Asks for no more than the request's number of drafts."""

    def propose(self, asks):
        return super().propose([replace(ask, most=min(ask.most, 4)) for ask in asks])


def test_a_long_prompt_is_read_in_chunks_before_it_drafts_and_once_for_all_samples():
    for count, words, n in ((2, 120, 1), (1, 40, 4)):
        runner, options = (
            Watched(WIDTH, context=4096),
            {"runner": FakeRunner(WIDTH, context=4096), "max_batch": 4},
        )
        made = rows(count, prompt="a long text " * words, n=n)
        outcomes(made, drafter=Limited(runner), **options)
        sizes = [sum(len(feed.tokens) for feed in feeds) for feeds in feeds_of(runner)]
        if n == 1:
            assert max(sizes) <= 512
            assert sizes[:2] == [512, 512]
            assert all(feed.num_logits == 0 for feed in feeds_of(runner)[0])
        else:
            assert sum(sizes) < 2 * 480 + 4 * 100


def test_noise_is_shared_so_that_a_draft_of_the_same_distribution_is_always_right():
    chain = "ignore_eos=true | frequency=0.7 | temperature=1.5 | top_p=0.9"
    found, stood = outcomes(rows(4, chain=chain), drafter=Limited(FakeRunner(WIDTH)), max_batch=4)
    assert stood >= 0.75 * sum(len(ids) for ids, _ in found.values())
    near = FakeRunner(WIDTH, scale=0.5)
    near.table = near.table + 0.2 * torch.randn(near.table.shape, generator=torch.Generator().manual_seed(1))
    target = FakeRunner(WIDTH, scale=0.5)  # flat: independent draws would agree about once in 200
    found, stood = outcomes(rows(8), drafter=Limited(near), runner=target, max_batch=8)
    assert stood > 0.4 * sum(len(ids) for ids, _ in found.values())


def test_an_improbable_token_ends_the_draft():
    def num_proposed(least):
        made = [replace(one, drafting=Drafting("", 4, least)) for one in rows(1)]
        return sum(generate(made, drafter=Limited(FakeRunner()))["0", 0].drafted.proposed)

    assert num_proposed(0.0) > num_proposed(0.05) > num_proposed(1.0) == 0


def test_vocabularies_are_compared_by_content():
    tiny, draft, plain = load_tokenizer("tiny"), load_tokenizer("tiny-draft"), ByteTokenizer()
    assert first_difference(tiny, draft) is None
    assert first_difference(tiny, plain) == (0, "<|bos|>", "\x00")
    shorter = ByteTokenizer()
    shorter.token_bytes = shorter.token_bytes[:200]
    assert first_difference(plain, shorter) is None
    other = ByteTokenizer()
    other.token_bytes = (*other.token_bytes[:97], b"b", *other.token_bytes[98:])
    assert first_difference(plain, other)[0] == 97


def test_what_cannot_draft_is_refused_by_name():
    runner = FakeRunner()
    runner._spec = replace(runner.spec, name="mamba", can_rollback=False)
    one = request("abc", drafting=Drafting("ngram"))
    drafter = AdaptiveDrafter(NgramDrafter(), name="ngram", clock=time.perf_counter)
    with pytest.raises(UsageError, match=r"mamba takes no drafts \(ngram\)"):
        generate([one], runner=runner, drafter=drafter)
    plain = generate([replace(one, drafting=Drafting("none"))], runner=runner)
    assert plain["abc", 0].drafted is None
    with pytest.raises(UsageError, match="'other' is not among those of this run"):
        generate([request("abc", drafting=Drafting("other"))])


def test_scripted_drafts_are_counted_by_position():
    one = request("abc", key="k", max_tokens=30, chain="ignore_eos=true")
    ids = outcomes([one], runner=FakeRunner())[0]["k", 0][0]
    drafted = generate([one], drafter=Scripted({one.prompt_ids: ids}))["k", 0].drafted
    assert drafted.proposed[0] >= drafted.accepted[0] >= drafted.accepted[-1]
    assert drafted.forwards + sum(drafted.accepted) >= 30


class Noted(FakeRunner):
    """Records its calls."""

    def __init__(self, name, notes):
        super().__init__(WIDTH, context=4096)
        self.name, self.notes = name, notes

    def _note(self, what):
        self.notes.append((self.name, what))

    def forward(self, plan):
        self._note("choose" if plan.num_rows else "read")
        return super().forward(plan)

    def truncate(self, lane, length):
        self._note("truncate")
        super().truncate(lane, length)

    def fork(self, source, target):
        self._note("fork")
        super().fork(source, target)

    def release(self, lane):
        self._note("release")
        super().release(lane)

    def free_cache(self):
        self._note("free_cache")
        super().free_cache()


class NotedQueue:
    """A stream that runs each call at once, and records it."""

    def __init__(self, notes):
        self.notes = notes

    @contextmanager
    def begin(self):
        self.notes.append(("queue", "begin"))
        yield
        self.notes.append(("queue", "end"))

    def publish(self, result):
        assert len(result)
        self.notes.append(("queue", "publish"))


def run():
    """Run four samples of a long prompt beside a text with drafts; the recorded calls in order."""
    notes = []
    long = request("a long text " * 60, key="long", chain="ignore_eos=true", n=3)
    requests = drafting([request("abc", key="short", chain="ignore_eos=true"), long], "", 4)
    drafter = ModelDrafter(SideStreamRunner(Noted("draft", notes), NotedQueue(notes)))
    found, stood = outcomes(requests, drafter=drafter, runner=Noted("target", notes), max_batch=4)
    assert stood
    assert found == outcomes(requests, runner=FakeRunner(WIDTH, context=4096), max_batch=4)[0]
    drafter.trim()
    return notes


def test_all_work_on_the_lanes_of_the_draft_is_in_its_queue_and_only_logits_are_waited_for():
    notes, is_open, seen = run(), False, set()
    for name, what in notes:
        if name == "queue":
            is_open = {"begin": True, "end": False}.get(what, is_open)
        else:
            assert is_open == (name == "draft"), what
            seen |= {what} if is_open else set()
    assert seen == {"choose", "read", "truncate", "fork", "release", "free_cache"}

    def behind(what, notes, distance):
        """The calls after those in which the draft model did this."""
        return {
            after for note, after in zip(notes, notes[distance:], strict=False) if note == ("draft", what)
        }

    assert behind("choose", notes, 2) == {("queue", "publish")}
    assert ("queue", "publish") not in behind("read", notes, 2)
    calls = [note for note in notes if note[0] != "queue"]
    assert behind("read", calls, 1) <= {("target", what) for what in ("choose", "read", "fork", "truncate")}


def test_a_device_without_streams_keeps_the_runner():
    runner = FakeRunner()
    assert run_on_side_stream(runner) is runner
