"""Policies of verification change no text, or keep the distribution of the target."""

from dataclasses import replace

from gencli.core.request import FIXED_DRAFTS, Drafting
from gencli.models.other_runners import FakeRunner
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.combined_drafters import AutoDrafter, FallbackDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import NgramDrafter, SuffixDrafter
from processors.request_values import Verification
from tests.engine.harness import engine, generate, request
from tests.speculative.cases import WIDTH, everything, half_right, outcomes
from tests.speculative.turned import turned

OTHERS = ("rejection", "lossy-typical", "lossy-threshold")
DRAFTERS = {
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
    "auto": lambda: AutoDrafter([SuffixDrafter(), NgramDrafter()]),
    "model": lambda: ModelDrafter(half_right()),
    "text": lambda: turned(half_right()),
}


def drafters(*, step=0.001):
    """All of them by name, on a clock of its own."""
    ticks = iter(range(10**7))
    made = {name: make() for name, make in DRAFTERS.items()}
    return FallbackDrafter(
        [AdaptiveDrafter(one, name=name, clock=lambda: next(ticks) * step) for name, one in made.items()]
    )


def mixed(policies=OTHERS, *, tokens=None, least=0.0):
    """Requests of every kind, each with another drafter and policy, and some that match."""
    names, kinds = list(DRAFTERS), ["match", *policies]
    for i, one in enumerate(everything()):
        verification = Verification(kinds[i // len(names) % len(kinds)], 0.2)
        yield replace(one, drafting=Drafting(names[i % len(names)], tokens, least, verification))


def test_a_long_prompt_is_read_at_once_where_drafts_decide():
    drafting = Drafting("model", 3, 0.0, Verification("rejection"))
    one = request("a long text with some words, " * 40, key="one", max_tokens=30, drafting=drafting)
    others = [replace(one, id=str(i), prompt_ids=one.prompt_ids[i:]) for i in range(4)]
    alone, together = (
        outcomes(rows, runner=FakeRunner(WIDTH, context=2048), drafter=drafters(), max_batch=5)[0]
        for rows in ([one], [*others, one])
    )
    assert together["one", 0] == alone["one", 0]


def test_texts_are_counted_as_any():
    for policy in OTHERS:
        drafting = Drafting("model", None, 0.0, Verification(policy, 0.05))
        one = request("abcabc", key="k", chain="ignore_eos=true", max_tokens=40, drafting=drafting)
        drafted = generate([one], drafter=drafters(), runner=FakeRunner(WIDTH))["k", 0].drafted
        assert len(drafted.proposed) == FIXED_DRAFTS, policy
        assert drafted.forwards + sum(drafted.accepted) >= 40, policy
        assert drafted.forwards < 40, policy


def test_what_changes_texts_is_said_once():
    on = engine(drafter=drafters(), runner=FakeRunner(WIDTH))
    for one in mixed():
        on.submit(one)
    said = [text for text in on.notices if "`verify`" in text]
    assert len(said) == len(set(said)) == 5
    assert sum("the text is another one" in text for text in said) == 2
    assert sum("4 at a time" in text for text in said) == 3
