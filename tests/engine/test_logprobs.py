"""Log-probabilities of output tokens equal a plain float64 reference in every way to generate."""

import math
from dataclasses import replace

import pytest
import torch

from gencli.core.events import Token
from gencli.core.request import Beams, Drafting, Feed, Guidance, Limits, StepPlan
from gencli.engine.logprobs import best_ids
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from processors.catalog import GrammarParams
from processors.chain import Chain
from processors.request_values import Verification
from tests.engine.harness import TOKENIZER, Scripted, engine, events_of, request

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
