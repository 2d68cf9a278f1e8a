"""Scores of prompts equal a plain float64 reference, whatever is cached, sliced, beside them or behind."""

import pytest
import torch

from gencli.core.events import Error, Finish, PromptScores
from gencli.core.request import Feed, Limits, StepPlan
from gencli.engine.logprobs import slice_rows
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from tests.engine.harness import TOKENIZER, engine, events_of, request
from tests.engine.test_guidance import Remembering
from tests.transfers import counted_transfers

LONG = "the quick brown fox jumps over the lazy dog " * 5


def scored(text, key=None, **options):
    """A request that scores its prompt and generates nothing."""
    rest = {"prompt_logprobs": 2, "limits": Limits(max_tokens=0)} | options
    return request(text, key=key or text, **rest)


def run(requests, **options):
    """Scores and all events by request."""
    events = events_of(requests, **options)
    assert not [event for event in events if isinstance(event, Error)]
    return {event.request: event.scores for event in events if isinstance(event, PromptScores)}, events


def reference(text, runner=None):
    """Log-probabilities [T - 1, V] float64 of a plain pass over the prompt."""
    runner, ids = runner or Remembering(), tuple(TOKENIZER.encode(text))
    logits = runner.forward(StepPlan((Feed(0, 0, ids, len(ids)),)))
    return logits[:-1].double().log_softmax(-1)


def assert_scored(scores, text, start=1):
    ids, plain = TOKENIZER.encode(text), reference(text)
    assert len(scores) == len(ids)
    assert all(one is None for one in scores[:start])
    for position in range(start, len(ids)):
        entry, row = scores[position], plain[position - 1]
        assert entry.chosen.id == ids[position]
        assert entry.chosen.logprob == pytest.approx(float(row[ids[position]]), abs=1e-5)
        assert entry.chosen.processed == entry.chosen.logprob
        assert entry.rank == 1 + int((row > row[ids[position]]).sum())
        assert [one.id for one in entry.top] == row.topk(2).indices.tolist()


def test_a_step_computes_no_more_logits_than_a_slice_has(monkeypatch):
    sizes = []

    class Counting(Remembering):
        def forward(self, plan):
            sizes.append(plan.num_rows)
            return super().forward(plan)

    monkeypatch.setattr("gencli.engine.engine.slice_rows", lambda _: 16)
    found, _ = run([scored(LONG), scored(LONG[10:])], runner=Counting())
    assert max(sizes) == 16
    assert_scored(found[LONG], LONG)
    assert slice_rows(150_000) * 150_000 * 4 <= 2**26
    assert (slice_rows(10), slice_rows(10**9)) == (512, 16)


def test_a_warm_cache_and_any_order_give_the_same_scores():
    texts = [LONG, LONG[:150] + "x", LONG[:80]]
    for order in (texts, texts[::-1]):
        on = engine(runner=Remembering(), max_batch=4)
        list(run([request(LONG, key="warm")], on=on))
        found, _ = run([scored(text) for text in order], on=on)
        for text in texts:
            assert_scored(found[text], text)


def test_what_precedes_the_first_score_may_come_from_the_cache():
    on, start = engine(runner=Remembering(), max_batch=2), len(TOKENIZER.encode(LONG)) - 10
    run([request(LONG, key="warm", max_tokens=1)], on=on)
    text = LONG + " end"
    found, events = run([scored(text, score_from=start)], on=on)
    assert_scored(found[text], text, start)
    (end,) = [event for event in events if isinstance(event, Finish)]
    assert end.cached_tokens == start - 1
    runner, size = Remembering(), len(TOKENIZER.encode(LONG))
    texts = [LONG + end for end in (" yes", " no", " perhaps")]
    found, _ = run([scored(text, score_from=size) for text in texts], runner=runner)
    for text in texts:
        assert_scored(found[text], text, size)
    assert runner.num_fed < 1.5 * size  # choices with one context read it once


def test_scores_leave_the_device_in_the_transfer_of_their_step():
    on = engine(runner=Remembering(), max_batch=3, step_tokens=30)
    for one in (request("a", logprobs=1), scored(LONG), request("b", prompt_logprobs=1)):
        on.submit(one)
    while on.has_work:
        with counted_transfers() as counts:
            on.step()
        assert sum(counts.values()) <= 1


def test_full_memory_restarts_a_scoring_prompt():
    class Full(Remembering):
        def forward(self, plan):
            if self.steps == 3:
                self.steps += 1
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return super().forward(plan)

    found, _ = run([scored(LONG), scored(LONG[5:])], runner=Full(), step_tokens=30)
    assert_scored(found[LONG], LONG)
    assert_scored(found[LONG[5:]], LONG[5:])


def test_a_prompt_of_one_token_and_one_as_long_as_the_context_can_be_scored():
    found, events = run([scored("x")], tokenizer=TOKENIZER)
    assert found["x"][0] is None
    assert isinstance(events[-1], Finish)
    text = "abcdefghijklmnopq"[: 13 - len(TOKENIZER.encode(""))]
    found, _ = run([scored(text)], runner=FakeRunner(context=12))
    assert len(found[text]) == 13
    for wrong, said in (
        (scored(text + "r"), "has 14 tokens"),
        (scored("ab", n=2), "`max_tokens` is 0"),
        (scored("ab", score_from=0), "score_from is 0"),
    ):
        with pytest.raises(UsageError, match=said):
            engine(runner=FakeRunner(context=12)).submit(wrong)


class Broken(FakeRunner):
    """Logits as from a number format that cannot hold them."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, plan):
        logits = super().forward(plan)
        logits[:, 3] = self.value
        return logits


def test_logits_that_are_no_numbers_are_an_error():
    for value in (torch.nan, torch.inf):
        events = events_of([scored("hi there")], runner=Broken(value))
        assert [type(event) for event in events] == [Error], value
        assert "NaN or +inf among the logits for token 2 of the prompt" in events[0].message
