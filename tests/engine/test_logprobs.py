"""Log-probabilities of outputs, prompts and given texts, and explanations of tokens."""

import math
from dataclasses import replace

import pytest
import torch

from gencli.core.events import Error, Finish, PromptScores, Token
from gencli.core.request import Beams, Drafting, Feed, Guidance, Limits, StepPlan
from gencli.engine.logprobs import best_ids, slice_rows
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from processors.chain import Chain
from processors.request_values import Verification
from processors.stages.grammar_stage import GrammarParams
from tests.engine.harness import TOKENIZER, Scripted, Watched, engine, events_of, generate, request
from tests.engine.test_guidance import Remembering
from tests.transfers import counted_transfers

CHAIN = 'ban=["a"] | temperature=0.8 | top_k=20'


def tokens_of(requests, **options):
    """Ids and their entries by (request, sample)."""
    found = {}
    for event in events_of(requests, **options):
        assert not hasattr(event, "message"), event
        if isinstance(event, Token):
            ids, entries = found.setdefault((event.request, event.sample), ([], []))
            ids += event.ids
            entries += event.logprobs
    return found


def reference(prompt, ids):
    """Log-probabilities [N, V] float64 of the fake model before each of the ids."""
    runner, text = FakeRunner(), [*TOKENIZER.encode(prompt), *ids]
    return torch.stack(
        [
            runner.forward(StepPlan((Feed(0, end, (text[end],)),)))[0].double().log_softmax(-1)
            for end in range(len(text) - 1)
        ]
    )[-len(ids) :]


def assert_close(one, other):
    assert [e.chosen.id for e in one] == [e.chosen.id for e in other]
    for mine, theirs in zip(one, other, strict=True):
        assert mine.chosen.logprob == pytest.approx(theirs.chosen.logprob, abs=1e-5)
        assert mine.chosen.processed == pytest.approx(theirs.chosen.processed, abs=1e-5)
        assert [a.id for a in mine.top] == [a.id for a in theirs.top]


def test_raw_numbers_are_those_of_the_model_alone():
    ((ids, entries),) = tokens_of([request("Hello", chain=CHAIN, logprobs=4)]).values()
    plain = reference("Hello", ids)
    assert len(ids) == len(entries) > 5
    for token, entry, row in zip(ids, entries, plain, strict=True):
        assert entry.chosen.id == token
        assert entry.chosen.logprob == pytest.approx(float(row[token]), abs=1e-5)
        assert entry.rank == 1 + int((row > row[token]).sum())
        assert [one.id for one in entry.top] == row.topk(4).indices.tolist()
        assert 0 < entry.processed_rank <= 20
    ((_, entries),) = tokens_of([request("Hello", logprobs=3)]).values()  # without stages processed is raw
    assert all(entry.chosen.logprob == entry.chosen.processed for entry in entries)
    assert all([a.id for a in entry.top] == [a.id for a in entry.processed_top] for entry in entries)


def test_processed_probabilities_add_up_to_one_and_what_is_impossible_names_the_stage():
    wanted = request("Hello", chain=CHAIN, logprobs=FakeRunner().spec.vocab_size)
    ((_, entries),) = tokens_of([wanted]).values()
    for entry in entries:
        assert sum(math.exp(one.logprob) for one in entry.top) == pytest.approx(1, abs=1e-5)
        assert sum(math.exp(one.processed) for one in entry.processed_top) == pytest.approx(1, abs=1e-5)
        assert len(entry.processed_top) == 20
    bans = {one.id: one.banned_by for one in entries[0].top}
    assert bans[ord("a")] == "ban"
    assert set(bans.values()) == {"", "ban", "top_k"}
    assert all((one.processed == -math.inf) == bool(one.banned_by) for one in entries[0].top)


def test_asking_changes_no_token_and_costs_nobody_else_an_entry():
    keys = [f"row {number}" for number in range(6)]
    quiet = tokens_of([request(key, chain=CHAIN) for key in keys])
    mixed = tokens_of(
        [request(key, chain=CHAIN, logprobs=i if i % 2 else None) for i, key in enumerate(keys)]
    )
    assert {key: ids for key, (ids, _) in quiet.items()} == {key: ids for key, (ids, _) in mixed.items()}
    for number, key in enumerate(keys):
        ids, entries = mixed[key, 0]
        assert len(entries) == (len(ids) if number % 2 else 0)
        assert all(len(entry.top) == number for entry in entries)


def test_drafts_change_no_number_and_one_that_a_lossy_policy_accepts_may_be_impossible():
    wanted = request("Hello", chain="temperature=0.8", logprobs=2, max_tokens=8)
    ((ids, entries),) = tokens_of([wanted]).values()
    drafter = Scripted({wanted.prompt_ids: tuple(ids)})
    ((others, found),) = tokens_of([wanted], drafter=drafter).values()
    assert drafter.proposed
    assert others == ids
    assert_close(found, entries)
    lossy = Drafting(tokens=4, verification=Verification("lossy-threshold", 1e-9))
    wanted = replace(wanted, chain=Chain.parse("top_k=1"), drafting=lossy)
    ((_, entries),) = tokens_of([wanted], drafter=drafter).values()
    assert {entry.chosen.banned_by for entry in entries} <= {"", "top_k"}
    assert all((entry.chosen.processed == -math.inf) == bool(entry.chosen.banned_by) for entry in entries)


def test_forced_tokens_have_a_logprob_under_the_model():
    grammar = GrammarParams(text="abc(d|e)", kind="regex")
    chain = Chain((("grammar", grammar),))
    for jump in ("auto", "off"):
        ((ids, entries),) = tokens_of([request("Hello", chain=chain, logprobs=1, jump=jump)]).values()
        assert bytes(ids[:3]) == b"abc"
        plain = reference("Hello", ids)
        for entry, row, token in zip(entries[:3], plain, ids, strict=False):
            assert entry.chosen.processed == 0.0
            assert entry.chosen.logprob == pytest.approx(float(row[token]), abs=1e-5)


def test_guidance_is_no_part_of_the_raw_numbers():
    guidance = Guidance(2.0, tuple(b"cold"), cutoff=0.2)
    ((ids, entries),) = tokens_of([request("Hello", guidance=guidance, logprobs=250)]).values()
    plain = reference("Hello", ids)
    for token, entry, row in zip(ids, entries, plain, strict=True):
        assert entry.chosen.logprob == pytest.approx(float(row[token]), abs=1e-5)
    assert {one.banned_by for entry in entries for one in entry.top} == {"", "guidance"}


def test_chosen_texts_have_the_numbers_of_their_tokens():
    for how in ({"beams": Beams(3)}, {"best_of": 4}):
        found = tokens_of([request("Hello", max_tokens=9, logprobs=1, n=2, **how)])
        assert len(found) == 2, how
        for ids, entries in found.values():
            assert [entry.chosen.id for entry in entries] == list(ids), how
            for token, entry, row in zip(ids, entries, reference("Hello", ids), strict=True):
                assert entry.chosen.logprob == pytest.approx(float(row[token]), abs=1e-5), how


def test_a_restart_gives_every_token_one_entry():
    class Full(FakeRunner):
        steps = 0

        def forward(self, plan):
            self.steps += 1
            if self.steps == 5:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return super().forward(plan)

    wanted = [request(key, chain="temperature=0.8", logprobs=1) for key in ("one", "two")]
    plain, restarted = tokens_of(wanted), tokens_of(wanted, runner=Full())
    for key, (ids, entries) in plain.items():
        assert restarted[key][0] == ids
        assert_close(restarted[key][1], entries)


def test_of_equal_logits_the_lowest_ids_are_the_best():
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0, 2.0], [0.0] * 6])
    assert best_ids(logits, 4).tolist() == [[1, 3, 2, 4], [0, 1, 2, 3]]
    ((_, entries),) = tokens_of([request("Hello", max_tokens=1, logprobs=3)]).values()
    assert entries[0].top == tuple(sorted(entries[0].top, key=lambda one: (-one.logprob, one.id)))


def test_what_cannot_be_given_is_refused_by_name():
    for options, said in (
        ({"logprobs": 259}, "`logprobs` is 259, but fake:258:0 has 258"),
        ({"logprobs": 1, "finish_open": True}, "`logprobs` and `finish_open`"),
        ({"limits": Limits(max_tokens=0)}, "`max_tokens`"),
    ):
        with pytest.raises(UsageError, match=said):
            engine().submit(request("Hello", **options))


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


def prompt_reference(text, runner=None):
    """Log-probabilities [T - 1, V] float64 of a plain pass over the prompt."""
    runner, ids = runner or Remembering(), tuple(TOKENIZER.encode(text))
    logits = runner.forward(StepPlan((Feed(0, 0, ids, len(ids)),)))
    return logits[:-1].double().log_softmax(-1)


def assert_scored(scores, text, start=1):
    ids, plain = TOKENIZER.encode(text), prompt_reference(text)
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


GRAMMAR = Chain((("grammar", GrammarParams(text="(abc|d)+e", kind="regex")),))


def again(wanted, ids, **options):
    """The tokens and entries of the request with this output given."""
    ((others, entries),) = tokens_of([replace(wanted, given=tuple(ids))], **options).values()
    assert tuple(others) == tuple(ids)
    return entries


def bans(entries):
    return [entry.chosen.banned_by for entry in entries]


def test_one_forward_reads_many_positions_and_no_more_than_a_slice(monkeypatch):
    wanted, runner = request("Hello", logprobs=0, given=(97, 98, 99) * 20, max_tokens=60), Watched()
    tokens_of([wanted], runner=runner)
    assert [plan.num_rows for plan in runner.plans] == [60]
    monkeypatch.setattr("gencli.engine.engine.slice_rows", lambda _: 32)
    runner = Watched()
    tokens_of([replace(wanted, id=name) for name in "abc"], runner=runner)
    assert max(plan.num_rows for plan in runner.plans) <= 16
    assert len(runner.plans) == 12  # five positions of each of three


def test_a_token_that_a_stage_bans_is_banned_and_the_next_one_is_not():
    wanted = request("Hello", chain="top_k=1", logprobs=0)
    ((ids, _),) = tokens_of([wanted]).values()
    other = (ids[0] + 1) % 256
    entries = again(wanted, (ids[0], other, *ids[1:3]))
    assert bans(entries)[:2] == ["", "top_k"]
    assert entries[1].chosen.processed == -math.inf
    assert math.isfinite(entries[1].chosen.logprob)


def test_behind_what_a_grammar_forbids_and_behind_its_end_no_token_is_possible():
    wanted = request("Hello", chain=GRAMMAR, logprobs=1)
    for size in (512, 3):  # in one step, and in several
        broken = again(wanted, b"abXddde", step_tokens=size)
        assert bans(broken) == ["", ""] + ["grammar"] * 5
        assert bans(again(wanted, b"abcdeabc", step_tokens=size)) == [""] * 5 + ["grammar"] * 3
        assert all(math.isfinite(entry.chosen.logprob) for entry in broken)
        assert all(one.banned_by == "grammar" for one in broken[-1].top)


def test_no_stop_ends_it_and_neighbours_change_nothing():
    eos = TOKENIZER.eos_ids[0]
    wanted = request("Hello", chain="frequency=1", logprobs=1, given=(97, eos, 98, eos, 99))
    ((ids, plain),) = tokens_of([wanted]).values()
    assert ids == [97, eos, 98, eos, 99]
    beside = [request(text, chain="temperature=0.9", max_tokens=9) for text in ("one", "two", "three")]
    texts = {key: end.text for key, end in generate(beside).items()}
    mixed = engine(max_batch=4)
    for one in (*beside[:2], wanted, beside[2]):
        mixed.submit(one)
    ends, entries = {}, []
    for event in mixed.run():
        if isinstance(event, Finish | Error):
            ends[event.request, event.sample] = event
        entries += getattr(event, "logprobs", ())
    assert {key: ends[key].text for key in texts} == texts
    assert ends["Hello", 0].reason == "length"
    assert_close(entries, plain)


def test_prompt_and_output_may_fill_the_context_and_no_more():
    on = {"runner": FakeRunner(context=12)}
    size = 13 - len(TOKENIZER.encode("abc"))
    assert len(again(request("abc", logprobs=0), (97,) * size, **on)) == size
    for text, options, said in (
        ("abc", {"given": (97,) * (size + 1)}, "have 14 tokens, but 13 fit"),
        ("abc", {"given": ()}, "no tokens"),
        ("abc", {"n": 2}, "one sample"),
        ("abc", {"beams": Beams(2)}, "one sample"),
        ("abc", {"limits": Limits(max_tokens=2)}, "`max_tokens` is 2"),
    ):
        with pytest.raises(UsageError, match=said):
            engine(runner=FakeRunner(context=12)).submit(request(text, **({"given": (97, 98, 99)} | options)))
