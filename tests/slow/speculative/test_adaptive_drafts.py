"""How many draft tokens a step gets, by what they cost and how often they are accepted."""

from itertools import pairwise, product
from string import ascii_lowercase

import torch

from gencli.core.events import Token
from gencli.core.request import Drafting
from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.speculative.adaptive_drafts import AdaptiveDrafter, TailFirstDrafter, speedup
from gencli.speculative.draft_model import ModelDrafter
from tests.engine.harness import TOKENIZER, events_of, ids_of, request
from tests.engine.test_drafts import record
from tests.speculative.test_adaptive_drafts import PROMPT as WORDS
from tests.speculative.test_adaptive_drafts import gain, timed
from tests.speculative.timed import Ticking, TimedDrafter, TimedRunner
from tests.speculative.turned import turned


def test_useless_drafts_cost_3_percent_at_most_and_are_tried_again_after_longer_and_longer_rests():
    for rows, cost in ((1, 0.01), (4, 0.1), (1, 0.3), (4, 1.0)):
        ratio, inner = gain(128, right=0.0, cost=cost, rows=rows)
        assert ratio >= 0.97, (rows, cost)
        asked = sorted({length - len(WORDS) for length, _ in inner.asked})
        rests = [after - before for before, after in pairwise(asked) if after - before > 1]
        assert all(rest > least for rest, least in zip(rests, (24, 48), strict=False)), (rows, cost)
        assert len(asked) <= 16, (rows, cost)


def test_good_drafts_come_near_to_the_best_length():
    for right, cost, least in ((0.6, 0.1, 0.85), (0.95, 0.3, 0.85)):
        best = max(speedup(right, length, draft=cost * length, verify=0.05 * length) for length in range(17))
        ratio, _ = gain(300, right=right, cost=cost)
        assert ratio >= least * best, (right, cost, least)


def test_drafts_that_become_good_are_taken_up_again():
    plain_ids, _, _ = timed(600)
    clock = Ticking()
    inner = TimedDrafter([WORDS + plain_ids["0", 0]], clock, right=0.0, cost=0.05)
    on = Engine(TimedRunner(clock), TOKENIZER, drafter=AdaptiveDrafter(inner, clock=clock), clock=clock)
    on.submit(request("abc", key=0, chain="ignore_eos=true", max_tokens=600))
    tokens = 0
    for event in on.run():
        tokens += len(event.ids) if isinstance(event, Token) else 0
        inner.right = float(tokens > 100)
    assert max(most for length, most in inner.asked if length > 300) >= 8


def texts(row, *, jump="auto"):
    """The ids of four records one after the other, and the tokens that were fed in all."""
    clock, fed = Ticking(), 0

    class Noting(TimedRunner):
        def forward(self, plan):
            nonlocal fed
            fed += plan.num_tokens
            return super().forward(plan)

    on = Engine(Noting(clock, row=row), TOKENIZER, max_batch=1, clock=clock)
    return ids_of(events_of([record(str(key), seed=key, jump=jump) for key in range(4)], on=on)), fed


def test_guesses_are_made_while_they_cost_little():
    plain, least = texts(0.0, jump="off")
    cheap, most = texts(0.0)
    dear, fewer = texts(0.95)
    assert cheap == dear == plain
    assert most - least > 2 * (fewer - least)


PROMPT = "a long text " * 100
SIZE = len(TOKENIZER.encode(PROMPT))


class Draft(FakeRunner):
    """A model whose forward pass takes `cost`, and `cost` / 10 per further token; records the tokens fed."""

    def __init__(self, clock, *, cost):
        super().__init__(context=8192)
        self._clock, self._cost, self.fed = clock, cost, []

    def forward(self, plan):
        self._clock.move(self._cost * (0.9 + 0.1 * plan.num_tokens / len(plan.feeds)))
        self.fed.append(plan.num_tokens)
        return super().forward(plan)


class Wrong(ModelDrafter):
    """Proposes wrong draft tokens only."""

    def propose(self, asks):
        return [[(token + 1) % 256 for token in run] for run in super().propose(asks)]


def run(kind=None, *, rounds=1, rows=1, tokens=None, cost=0.3, max_tokens=128, chain="ignore_eos=true"):
    """The texts, the time at the end, and the draft model."""
    clock = Ticking()
    draft = Draft(clock, cost=cost)
    drafter = kind and AdaptiveDrafter(TailFirstDrafter(kind(draft)), clock=clock)
    options = {"drafter": drafter, "clock": clock, "max_batch": rows, "share_prefixes": False}
    on = Engine(TimedRunner(clock, row=0.05, context=8192), TOKENIZER, **options)
    asked = {"chain": chain, "max_tokens": max_tokens, "drafting": Drafting(tokens=tokens)}
    ids = ids_of(events_of([request(PROMPT, key=key, **asked) for key in range(rounds * rows)], on=on))
    return ids, clock.now, draft


def in_letters(draft):
    """A drafter through text whose draft model has small letters only."""
    others = torch.tensor([token for token in range(258) if chr(token) not in ascii_lowercase])
    draft.table = draft.table.index_fill(1, others, -20.0)
    return turned(draft)


def test_a_prompt_is_read_once_drafts_have_stood():
    for kind in (ModelDrafter, in_letters):
        chain = f"allowed={list(ascii_lowercase.encode())} | ignore_eos=true | temperature=0"
        plain_texts, plain, _ = run(chain=chain)
        texts, seconds, draft = run(kind, cost=0.1, chain=chain)
        assert texts == plain_texts, kind
        assert plain / seconds > 1.3, kind
        assert draft.fed[0] == 16, kind
        assert SIZE < sum(draft.fed) < SIZE + 600, kind
        assert max(draft.fed) <= 512, kind


def test_useless_drafts_cost_3_percent_at_most_long_prompts_included():
    for rounds, cost in ((1, 0.1), (4, 0.5)):
        plain_texts, plain, _ = run(rounds=rounds)
        texts, seconds, draft = run(Wrong, rounds=rounds, cost=cost)
        assert texts == plain_texts, (rounds, cost)
        assert plain / seconds >= 0.97, (rounds, cost)
        assert sum(draft.fed) < 0.1 * SIZE, (rounds, cost)


def test_what_has_stood_in_one_text_holds_for_the_next():
    _, _, draft = run(ModelDrafter, rounds=2)
    assert 16 in draft.fed
    assert 16 not in draft.fed[len(draft.fed) // 2 :]
    _, _, draft = run(Wrong, tokens=3)  # with a fixed number of drafts a text is read at once
    assert draft.fed[:3] == [512, 512, SIZE - 1024 + 1]


def test_a_text_that_was_left_for_long_is_drafted_from_its_tail_again():
    _, _, draft = run(Wrong, max_tokens=1500)
    assert draft.fed.count(16) > 1
    assert max(draft.fed) == 16
