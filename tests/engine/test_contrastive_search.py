"""Contrastive search is the search written plainly, whatever stands beside it."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from gencli.core.events import Error, Finish, Token
from gencli.core.request import Beams, Contrastive, Drafting, Guidance, LayerContrast, Limits
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from tests.engine.contrastive_cases import request, tokens
from tests.engine.harness import engine, generate
from tests.engine.harness import request as plain_request

LETTERS = "allowed=[97,98,99,100,101,32,257]"


def end_of(one, **options):
    return generate([one], **options)[one.id, 0]


def test_a_text_does_not_repeat_what_it_has():
    """States of the fake model are equal for equal tokens and nearly orthogonal for others."""
    found = tokens([request("abc", alpha=1.0, k=8, chain="ignore_eos=true", max_tokens=20)])["abc"]
    assert len({*b"abc", *found}) == 3 + len(found)


def test_each_token_is_told_once_and_when_it_is_chosen():
    on, one = engine(), request(chain="ignore_eos=true", max_tokens=6)
    on.submit(one)
    told = [[event for event in on.step() if isinstance(event, Token | Finish)] for _ in range(7)]
    assert [len(events) for events in told] == [0, 1, 1, 1, 1, 1, 2]
    ids = [token for events in told for event in events if isinstance(event, Token) for token in event.ids]
    assert [ids] == [*tokens([one]).values()]


def test_a_search_that_is_cancelled_ends_with_what_was_chosen():
    for steps in (0, 1, 5):
        rows = [request("gone", chain="ignore_eos=true"), plain_request("stays", chain=LETTERS)]
        whole, on = tokens(rows[:1])["gone"], engine()
        for row in rows:
            on.submit(row)
        events = [event for _ in range(steps) for event in on.step()]
        on.cancel("gone")
        events += on.run()
        told = [one.ids for one in events if isinstance(one, Token) and one.request == "gone"]
        ids = [token for part in told for token in part]
        ends = {one.request: one for one in events if isinstance(one, Finish)}
        assert ids == whole[: max(0, steps - 1)], steps
        assert (ends["gone"].reason, ends["gone"].completion_tokens) == ("interrupted", len(ids)), steps
        assert ends["stays"].text == end_of(rows[1]).text, steps


def test_memory_that_is_full_starts_searches_again():
    rows = [request("a", chain=LETTERS, k=3), request("b", chain=LETTERS, k=3), plain_request("c")]
    small = FakeRunner(258, eos_ids=(257,), memory_lanes=5)
    on = engine(runner=small, max_batch=8)
    assert tokens(rows, on=on) == tokens(rows, runner=FakeRunner(258, eos_ids=(257,)))
    assert "7 sequences at once" in on.notices[0]


def test_a_grammar_decides_the_candidates_and_an_open_document_is_completed():
    for rest, reason in (({"max_tokens": 40}, "grammar"), ({"max_tokens": 5, "finish_open": True}, "closed")):
        one = request("a", **rest)
        chain = one.chain.with_stage("grammar", kind="regex", text="[abc]{3} (done|over)")
        end = end_of(replace(one, chain=chain))
        assert re.fullmatch("[abc]{3} (done|over)", end.text)
        assert (end.reason, end.decoded_tokens) == (reason, min(end.completion_tokens, rest["max_tokens"]))


def test_logprobs_are_those_of_the_tokens_that_are_chosen():
    one, runner = request(chain=LETTERS, logprobs=2, max_tokens=8), FakeRunner()
    on = engine(runner=runner)
    on.submit(one)
    events = [event for event in on.run() if isinstance(event, Token)]
    ids = [token for event in events for token in event.ids]
    entries = [entry for event in events for entry in event.logprobs]
    raw = runner.table.log_softmax(-1)
    before = [one.prompt_ids[-1], *ids]
    assert [entry.chosen.id for entry in entries] == ids
    assert [entry.chosen.logprob for entry in entries] == pytest.approx(
        [raw[old, new].item() for old, new in pairwise(before)]
    )
    assert all(len(entry.top) == 2 for entry in entries)


def test_the_context_and_the_time_limit_end_a_search():
    end = end_of(request("abc", chain="ignore_eos=true", max_tokens=100), runner=FakeRunner(context=16))
    assert (end.completion_tokens, end.reason, end.matched) == (13, "length", "context")
    assert end_of(request(limits=Limits(24, 0.0))).matched == "max_time"


def test_a_faulty_model_and_a_row_without_a_possible_token_are_errors():
    runner = FakeRunner()
    runner.table[:, 5] = torch.nan
    end, stuck = end_of(request(), runner=runner), end_of(request(chain="allowed=[97]|suppress=[97]"))
    assert isinstance(end, Error)
    assert "NaN" in end.message or "finite" in end.message
    assert isinstance(stuck, Error)
    assert "No token is left" in stuck.message


class Stateless(FakeRunner):
    """A model of which only logits are known."""

    @property
    def spec(self):
        return replace(super().spec, name="m", hidden=0)


def test_options_that_a_search_lacks_and_a_model_without_states_are_refused():
    with pytest.raises(UsageError, match="m gives no hidden states"):
        engine(runner=Stateless()).submit(request())
    for option, message in (
        ({"contrastive": Contrastive(1.5, 4)}, "alpha 1.5"),
        ({"contrastive": Contrastive(0.5, 0)}, "k 0"),
        ({"contrastive": Contrastive(0.5, 9)}, "`max_batch` lets only 8"),
        ({"n": 2}, "`n` above 1"),
        ({"beams": Beams(2)}, "`beams`"),
        ({"best_of": 3}, "`best_of`"),
        ({"guidance": Guidance(2.0)}, "guidance"),
        ({"dola": LayerContrast("low")}, "`dola`"),
        ({"drafting": Drafting("ngram")}, "`draft`"),
        ({"trace": 3}, "`trace`"),
        ({"given": (97,)}, "not chosen"),
        ({"limits": Limits(0), "prompt_logprobs": 1}, "nothing is generated"),
    ):
        with pytest.raises(UsageError, match=message):
            engine().submit(replace(request(), **option))
