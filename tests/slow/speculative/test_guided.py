"""Drafts beside guidance and contrast: p is what the formula and the chain make of both models' logits."""

import math
from dataclasses import replace
from itertools import product

import torch

from gencli.core.request import Drafting, Feed, Guidance, StepPlan
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import Drafter
from processors.catalog import GrammarParams
from processors.chain import Chain
from processors.draw_twins import gumbel_max
from processors.request_values import Verification
from processors.rng import derive
from processors.sampler import fold
from tests.engine.harness import request
from tests.engine.test_guidance import Remembering
from tests.processors.rejection_grid import Gap
from tests.speculative.cases import outcomes
from tests.speculative.distribution import ALLOWED, chances, counted

GUIDANCES = {
    "negative": Guidance(1.7, tuple(b"cold ")),
    "last token": Guidance(0.4),
    "contrast": Guidance(1.5, amateur="weak"),
    "cutoff": Guidance(1.5, cutoff=0.004, amateur="weak"),  # masks letters, and what a grammar has to have
}


LETTERS = f"{ALLOWED} | ignore_eos=true"


PENALISED = f"{LETTERS} | frequency=0.6 | repetition=1.3 | temperature=2.0 | top_p=0.9"


REGEX = GrammarParams("([ab][cd]?a|d{1,3}c)+", "regex")


IN_GRAMMAR = Chain(
    (("grammar", REGEX), *Chain.parse("frequency=0.6 | presence=0.2 | temperature=1.5").stages)
)


POLICIES = ("match", "rejection", "lossy-typical", "lossy-threshold")


def model(seed=0, *, lanes=64, **options):
    """A flat one, so that a cutoff leaves some letters."""
    return Remembering(seed, scale=1.0, max_lanes=lanes, **options)


def run(requests, *, lanes=64, **options):
    """Tokens and ends, and how many drafts stood; the draft model is the target without guidance."""
    drafter = AdaptiveDrafter(ModelDrafter(model(lanes=lanes + 1)), clock=lambda: 0.0)
    options = {"drafter": drafter} | options
    return outcomes(
        requests,
        runner=model(lanes=2 * lanes + 2, **options.pop("memory", {})),
        amateurs={"weak": model(5, lanes=lanes + 1)},
        **options,
    )


def guided(policy, *, kind="negative", tokens=3, threshold=0.2, text="Hello abc", **rest):
    drafting = Drafting("", tokens, 0.0, Verification(policy, threshold))
    return request(text, guidance=GUIDANCES[kind], drafting=drafting, **rest)


def folded(one, output):
    """The guided logits [V] behind some output, from two models that read it all at once."""
    guidance = one.guidance
    prompts = one.prompt_ids, guidance.companion_prompt(one.prompt_ids)
    runners = model(), model(5 if guidance.amateur else 0)
    c, u = (
        runner.forward(StepPlan((Feed(0, 0, (*prompt, *output)),)))
        for runner, prompt in zip(runners, prompts, strict=True)
    )
    return fold(c, u, torch.tensor([guidance.scale]), torch.tensor([guidance.cutoff]))[0]


def check_greedy(kind, chain):
    one = guided("rejection", kind=kind, chain=chain, draw="greedy", max_tokens=40)
    found, stood = run([one])
    assert found == run([one], drafter=None)[0], (kind, chain)
    assert stood > 0 or (kind == "cutoff" and chain is IN_GRAMMAR), (kind, chain)


def test_greedy_texts_are_the_guided_ones_without_drafts():
    for case in (("negative", PENALISED), ("last token", LETTERS), ("contrast", IN_GRAMMAR)):
        check_greedy(*case)


class Alphabet(Drafter):
    """Guesses that a text goes on in the order of the alphabet."""

    def propose(self, asks):
        return [alphabet(ask.tokens, min(ask.most, 3)) for ask in asks]


def alphabet(tokens, most):
    return tuple(97 + (tokens[-1] - 97 + i) % 4 for i in range(1, most + 1))


def by_definition(one, stands, *, steps=30):
    """Tokens from the definition of a policy: a draft stands if it is drawn, or if `stands` says so of p."""
    output, seed = [], derive(one.seed, 0)
    letters = torch.arange(258)
    letters = (letters >= 97) & (letters <= 100)
    while len(output) < steps:
        drafts = alphabet((*one.prompt_ids, *output), min(3, steps - len(output) - 1))
        for draft in (*drafts, None):
            logits = folded(one, output).masked_fill(~letters, -math.inf)
            drawn = gumbel_max(logits.tolist(), seed, len(output))
            is_kept = draft is not None and (draft == drawn or stands(logits.double().softmax(-1), draft))
            output.append(draft if is_kept else drawn)
            if not is_kept:
                break
    return tuple(output)


STANDS = {
    "lossy-threshold": lambda p, draft: p[draft] >= 0.2,
    "lossy-typical": lambda p, draft: p[draft] > min(0.09, 0.3 * math.exp(-torch.special.entr(p).sum())),
    "match": lambda p, draft: False,
}


def check_lossy(kind, policy):
    one = guided(policy, kind=kind, chain=LETTERS, max_tokens=30)
    found, stood = run([one], drafter=Alphabet())
    assert found[one.id, 0][0] == by_definition(one, STANDS[policy]), (kind, policy)
    is_match = by_definition(one, STANDS[policy]) == by_definition(one, STANDS["match"])
    assert is_match == (policy == "match"), (kind, policy)
    assert stood > 0, (kind, policy)


def test_lossy_policies_ask_for_the_guided_probability():
    for case in zip(GUIDANCES, STANDS, strict=False):
        check_lossy(*case)


def crowd():
    """Each policy beside each guidance and chain, some with several samples; and some without guidance."""
    for i, (policy, chain) in enumerate(product(POLICIES, (LETTERS, PENALISED, IN_GRAMMAR))):
        for kind in ("negative", "contrast", "cutoff"):
            rest = {"key": f"{i} {kind}", "n": 1 + i % 2, "tokens": 1 + i % 4, "max_tokens": 16}
            yield guided(policy, kind=kind, chain=chain, **rest)
        yield replace(guided(policy, chain=chain, key=f"{i}", n=2, max_tokens=16), guidance=Guidance())


def test_those_that_match_keep_the_text_without_drafts_beside_others():
    requests = list(crowd())[::3]
    found, _ = run(requests, max_batch=32)
    expected, _ = run([one for one in requests if not one.drafts_decide], drafter=None)
    assert len(expected) > 4
    assert {key: found[key] for key in expected} == expected


def test_samples_are_those_of_requests_with_their_seeds():
    several = guided("rejection", chain=PENALISED, n=3)
    found, _ = run([several])
    assert len({ids for ids, _ in found.values()}) == 3
    assert run([several], max_batch=1)[0] == found


LANES = 50


CUTS = "frequency=0.8 | temperature=1.5 | top_p=0.95"


SHORT = GrammarParams("a[ab]c|b[cd]a|[cd]{2}[ab]", "regex")


SUPPORTS = {"letters": (Chain.parse(LETTERS).stages, 3), "grammar": ((("grammar", SHORT),), 200)}


def own(one, output):
    """The target's logits without guidance."""
    return model().forward(StepPlan((Feed(0, 0, (*one.prompt_ids, *output)),)))[0]


def check_distribution(kind, support):
    stages, most = SUPPORTS[support]
    chain = Chain((*stages, *Chain.parse(CUTS).stages))
    one = guided("rejection", kind=kind, chain=chain, max_tokens=most, n=1000)
    counts, stood = counted(
        one,
        runner=model(lanes=2 * LANES + 2),
        amateurs={"weak": model(5, lanes=LANES + 1)},
        drafter=ModelDrafter(model(lanes=LANES + 1)),
        max_batch=LANES,
    )
    assert not Gap.of(counts, chances(one, lambda output: folded(one, output))).is_wide, (kind, support)
    assert Gap.of(counts, chances(one, lambda output: own(one, output))).is_wide, (kind, support)
    assert stood > 0, (kind, support)


def test_texts_have_the_distribution_of_the_guided_target():
    check_distribution("cutoff", "letters")


def check_company(requests):
    expected, stood = run(requests, max_batch=64)
    assert stood > 2.1 * len(requests)
    assert run(requests[::-1], max_batch=5, step_tokens=16)[0] == expected
    for part in (requests[::5], requests[7:8]):
        found, _ = run(part, max_batch=2)
        assert found == {key: expected[key] for key in found}
    found, _ = run(requests[1::3], max_batch=16, memory={"memory_lanes": 9})
    assert found == {key: expected[key] for key in found}


def test_neighbours_batches_order_and_a_full_memory_change_no_text():
    check_company(list(crowd())[::3])
