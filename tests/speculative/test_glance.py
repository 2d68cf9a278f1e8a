"""What a draft model reads of long texts before it is known to be of use. The clock is reckoned."""

from string import ascii_lowercase

import pytest
import torch

from gencli.core.request import Drafting
from gencli.engine.engine import Engine
from gencli.models.fake import FakeRunner
from gencli.speculative.adaptive import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.tail_first import TailFirstDrafter
from tests.engine.harness import TOKENIZER, Token, request
from tests.speculative.timed import Ticking, TimedRunner
from tests.speculative.turned import turned

PROMPT = "a long text " * 100
SIZE = len(TOKENIZER.encode(PROMPT))


class Draft(FakeRunner):
    """A model of which a pass takes `cost`, and each token more a tenth of that; it notes what it is fed."""

    def __init__(self, clock, *, cost):
        super().__init__(context=8192)
        self._clock, self._cost, self.fed = clock, cost, []

    def forward(self, plan):
        self._clock.move(self._cost * (0.9 + 0.1 * plan.num_tokens / len(plan.feeds)))
        self.fed.append(plan.num_tokens)
        return super().forward(plan)


class Wrong(ModelDrafter):
    """Is never right."""

    def propose(self, asks):
        return [[(token + 1) % 256 for token in run] for run in super().propose(asks)]


def run(kind=None, *, rounds=1, rows=1, tokens=None, cost=0.3, max_tokens=128, chain="ignore_eos=true"):
    """Texts, what the clock says at the end, and the draft."""
    clock = Ticking()
    draft = Draft(clock, cost=cost)
    drafter = kind and AdaptiveDrafter(TailFirstDrafter(kind(draft)), clock=clock)
    on = Engine(
        TimedRunner(clock, row=0.05, context=8192),
        TOKENIZER,
        drafter=drafter,
        clock=clock,
        max_batch=rows,
        share_prefixes=False,
    )
    texts = {}
    for key in range(rounds * rows):
        drafting = Drafting(tokens=tokens)
        on.submit(request(PROMPT, key=key, chain=chain, max_tokens=max_tokens, drafting=drafting))
    for event in on.run():
        if isinstance(event, Token):
            texts[event.request] = texts.get(event.request, ()) + event.ids
    return texts, clock.now, draft


@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize("cost", [0.1, 0.5])
def test_useless_drafts_cost_3_percent_at_most_long_prompts_included(cost, rounds):
    plain_texts, plain, _ = run(rounds=rounds)
    texts, seconds, draft = run(Wrong, rounds=rounds, cost=cost)
    assert texts == plain_texts
    assert plain / seconds >= 0.97
    assert sum(draft.fed) < 0.1 * SIZE


def in_letters(draft):
    """Drafts through text, in small letters alone."""
    others = torch.tensor([token for token in range(258) if chr(token) not in ascii_lowercase])
    draft.table = draft.table.index_fill(1, others, -20.0)
    return turned(draft)


@pytest.mark.parametrize("kind", [ModelDrafter, in_letters])
def test_a_prompt_is_read_once_drafts_have_stood(kind):
    chain = f"allowed={list(ascii_lowercase.encode())} | ignore_eos=true | temperature=0"
    plain_texts, plain, _ = run(chain=chain)
    texts, seconds, draft = run(kind, cost=0.1, chain=chain)
    assert texts == plain_texts
    assert plain / seconds > 1.3
    assert draft.fed[0] == 16
    assert SIZE < sum(draft.fed) < SIZE + 600
    assert max(draft.fed) <= 512


def test_what_has_stood_in_one_text_holds_for_the_next():
    _, _, draft = run(ModelDrafter, rounds=2)
    later = draft.fed[len(draft.fed) // 2 :]
    assert 16 in draft.fed
    assert 16 not in later


def test_texts_with_a_fixed_number_of_drafts_are_read_at_once():
    _, _, draft = run(Wrong, tokens=3)
    assert draft.fed[:3] == [512, 512, SIZE - 1024 + 1]


def test_a_text_that_was_left_for_long_is_glanced_at_again():
    _, _, draft = run(Wrong, max_tokens=1500)
    assert draft.fed.count(16) > 1
    assert max(draft.fed) == 16
