"""Policies of verification change no text, or keep the distribution of the target."""

import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count, product

import torch

from gencli.core.request import Drafting, Feed, Guidance, Limits, Request, StepPlan
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import ModelChoice, load
from gencli.runtime.wiring import make_drafter
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.combined_drafters import AutoDrafter, FallbackDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import Drafter, Drawn, NgramDrafter, SuffixDrafter
from processors.chain import Chain
from processors.request_values import Verification
from processors.rng import derive
from processors.sampler import fold
from processors.stages.grammar_stage import GrammarParams
from tests.engine.harness import request
from tests.engine.test_guidance import Remembering
from tests.processors.reference.draw_twins import gumbel_max
from tests.processors.rejection_grid import Gap
from tests.speculative.cases import WIDTH, drafting, everything, half_right, outcomes
from tests.speculative.distribution import ALLOWED, IDS, TOKENS, chances, counted
from tests.speculative.test_policies import DRAFTERS as POLICY_DRAFTERS
from tests.speculative.test_policies import drafters, mixed
from tests.speculative.turned import turned

THIRD = 3  # each third request of everything; nightly tests have all


def check_policy_company(least, requests):
    expected, stood = outcomes(requests, drafter=drafters(), max_batch=64)
    assert stood > len(requests) / 2, least
    other, _ = outcomes(requests[::-1], drafter=drafters(step=3.0), max_batch=5, step_tokens=16)
    assert other == expected, least
    for part in (requests[::7], requests[3::5]):
        found, _ = outcomes(part, drafter=drafters(), max_batch=2)
        assert found == {key: expected[key] for key in found}, least


def test_neighbours_batches_order_and_clock_change_no_text():
    check_policy_company(0.2, list(mixed(least=0.2))[::7])


def test_a_full_memory_changes_no_text():
    requests = list(mixed())[::7]
    expected, _ = outcomes(requests, drafter=drafters(), max_batch=16)
    runner = FakeRunner(WIDTH, memory_lanes=5)
    assert outcomes(requests, drafter=drafters(), runner=runner, max_batch=16)[0] == expected


def test_requests_that_match_keep_their_text_beside_others():
    requests = list(mixed(tokens=3))[::THIRD]
    found, _ = outcomes(requests, drafter=drafters(), max_batch=32)
    kept = [one for one in requests if not one.drafts_decide]
    keys = [(one.id, sample) for one in kept for sample in range(one.n)]
    assert len(keys) > 10
    assert {key: found[key] for key in keys} == {key: plain(THIRD)[key] for key in keys}


def test_greedy_texts_are_the_same_under_rejection():
    for name in POLICY_DRAFTERS:
        greedy = [one for one in everything()[::THIRD] if one.chain.is_greedy or one.draw == "greedy"]
        drafting = Drafting(name, 3, 0.0, Verification("rejection"))
        found, stood = outcomes([replace(one, drafting=drafting) for one in greedy], drafter=drafters())
        assert found == {key: plain(THIRD)[key] for key in found}, name
        assert stood > 0, name


class Known(Drafter):
    """Proposes what it was told that comes, with every third run wrong at its end."""

    def __init__(self, texts):
        self._texts = texts

    def propose(self, asks):
        return [self._run(tuple(ask.tokens), ask.most) for ask in asks]

    def _run(self, tokens, most):
        for text in self._texts:
            if text[: len(tokens)] == tokens and len(text) > len(tokens):
                run = text[len(tokens) :][:most]
                return run if len(tokens) % 3 else (*run[:-1], (run[-1] + 1) % 250)
        return ()


def known(step=1):
    texts = {key: ids for key, (ids, _) in plain(step).items()}
    return Known([one.prompt_ids + texts[one.id, j] for one in everything()[::step] for j in range(one.n)])


DRAFTERS = {
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
    "auto": lambda: AutoDrafter([SuffixDrafter(), NgramDrafter()]),
    "model": lambda: ModelDrafter(FakeRunner(WIDTH)),
    "half": lambda: ModelDrafter(half_right()),
    "text": lambda: turned(half_right()),
    "known": known,
}


@lru_cache
def plain(step=1):
    """The outcomes of every `step`th request without drafts."""
    return outcomes([replace(one, jump="off") for one in everything()[::step]], max_batch=64)[0]


def named(name):
    return AdaptiveDrafter(DRAFTERS[name](), name=name, clock=time.perf_counter)


def test_the_context_may_end_inside_a_draft():
    for context, name in product((11, 12, 14, 17, 30), ("ngram", "half", "model", "text")):
        one = request("abcabcdabc", key="k", chain="allowed=[97,98,99,100]", max_tokens=200)
        expected, _ = outcomes([one], runner=FakeRunner(WIDTH, context=context))
        options = {"runner": FakeRunner(WIDTH, context=context), "drafter": named(name)}
        found, _ = outcomes(drafting([one], name, 5), **options)
        assert found == expected, (context, name)
        assert [end[1] for _, end in found.values()] == ["length"], (context, name)


def check(name, tokens):
    """Every request with so many drafts at a time."""
    found, stood = outcomes(drafting(everything(), name, tokens), drafter=named(name), max_batch=64)
    assert found == plain(), (name, tokens)
    assert stood > 20, (name, tokens)


def check_beside(name):
    """Every other request without drafts."""
    requests = drafting(everything(), name, 3, every=2)
    found, stood = outcomes(requests, drafter=named(name), max_batch=7, step_tokens=32)
    assert found == plain(), name
    assert stood > 10, name


def check_full_memory(name):
    requests, runner = drafting(everything(), name, 4), FakeRunner(WIDTH, memory_lanes=5)
    assert outcomes(requests, drafter=named(name), runner=runner, max_batch=16)[0] == plain(), name


def check_each_row(step):
    requests = everything()[::step]
    for i, name in enumerate(DRAFTERS):
        requests[i :: len(DRAFTERS)] = drafting(requests[i :: len(DRAFTERS)], name, 1 + i)
    made = DRAFTERS | {"known": lambda: known(step)}
    every = [AdaptiveDrafter(make(), name=name, clock=time.perf_counter) for name, make in made.items()]
    assert outcomes(requests, drafter=FallbackDrafter(every), max_batch=32)[0] == plain(step)


def test_each_row_has_the_drafter_that_it_names():
    check_each_row(THIRD)


def check_clock(step):
    ticks = count()
    drafter = AdaptiveDrafter(DRAFTERS["text"](), name="text", clock=lambda: next(ticks) ** 2 % 97 / 10)
    requests = drafting(everything()[::step], "text", None)
    assert outcomes(requests, drafter=drafter, max_batch=16)[0] == plain(step)


def test_what_the_clock_says_changes_no_text():
    check_clock(THIRD)


CHAINS = ["temperature=0", "temperature=0.8", "repetition=1.2 | temperature=1 | min_p=0.05 | top_p=0.95"]
PROMPTS = ["Once upon a time", "The little dog ran to the red house. The little dog", "Tom said:", "A"]


def check_on_a_model(name, max_tokens=40):
    choice = ModelChoice("tiny", dtype="float32", max_batch=12)
    loaded = load(choice)
    options = {"runner": loaded.runner, "tokenizer": loaded.tokenizer, "max_batch": 12}

    def run(drafter):
        requests = [
            Request(
                str(i),
                tuple(loaded.tokenizer.encode(text)),
                Chain.parse(chain),
                seed=i,
                limits=Limits(max_tokens),
                drafting=Drafting(drafter, 1 + i % 8),
            )
            for i, (text, chain) in enumerate(product(PROMPTS, CHAINS))
        ]
        return outcomes(requests, drafter=make_drafter(drafter, loaded, choice), **options)

    found, stood = run(name)
    assert found == run("none")[0], name
    assert stood > 0, name


def test_on_a_model_no_token_changes():
    for name in ("auto", "early-exit"):
        check_on_a_model(name, max_tokens=16)


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
    check_company(list(crowd())[::5])


SLOTS = 80  # more take longer: each new text is compared with what every lane holds
GRAMMAR = (("grammar", GrammarParams("a[ab]c|b[cd]a|[cd]{2}[ab]", "regex")),)
REJECTION_CUTS = "frequency=1.5 | repetition=1.5 | temperature=0.6 | top_k=3 | top_p=0.95"
REJECTION_CHAINS = {
    "truncated": Chain.parse(f"{ALLOWED} | temperature=0.6 | top_p=0.9"),
    "penalised": Chain.parse(f"{ALLOWED} | frequency=1.5 | repetition=1.5"),
    "in a grammar": Chain(GRAMMAR),
    "mirostat": Chain.parse(f"{ALLOWED} | mirostat:version=2,tau=0.9,eta=2"),
    "adaptive": Chain.parse(f"{ALLOWED} | adaptive_p:target=0.4,decay=0.2"),
    "all": Chain((*GRAMMAR, *Chain.parse(REJECTION_CUTS).stages)),
}
# A text in a grammar is complete after three tokens; far from its limit, nothing looks for a short end.
MOST = dict.fromkeys(REJECTION_CHAINS, TOKENS) | {"in a grammar": 200, "all": 200}


@dataclass(frozen=True)
class Tables:
    """The target's model and the draft's: near to each other, or with nothing in common."""

    target: FakeRunner
    draft: FakeRunner

    @classmethod
    def make(cls, *, are_near=True):
        first, second = (FakeRunner(max_lanes=SLOTS + 1, seed=seed, scale=1.0) for seed in (0, 1))
        if are_near:
            second.table = 0.6 * first.table + 0.8 * second.table
        else:
            even = torch.arange(258) % 2 == 0
            first.table = first.table.masked_fill(even, -math.inf)
            second.table = second.table.masked_fill(~even, -math.inf)
        return cls(first, second)


def test_the_letters_are_all_that_can_come():
    tables = Tables.make()
    for name, chain in REJECTION_CHAINS.items():
        one = request("a", chain=chain, max_tokens=MOST[name])
        due = chances(one, lambda text: tables.target.table[(*IDS[:1], *text)[-1]])
        assert math.isclose(float(due.sum()), 1, rel_tol=1e-6)


SAMPLES = dict.fromkeys(REJECTION_CHAINS, 6000) | {"in a grammar": 1500, "all": 1500}  # grammars take longer


class Raw(ModelDrafter):
    """Says that it drew from its logits as they were before the chain."""

    def __init__(self, runner):
        super().__init__(runner)
        self._table = runner.table

    def propose(self, asks):
        return [self._raw(ask, run) for ask, run in zip(asks, super().propose(asks), strict=True)]

    def _raw(self, ask, run):
        fed = [ask.tokens[-1], *run][: len(run)]
        logits = self._table[torch.tensor(fed, dtype=torch.int64)]
        probable = logits.softmax(-1)[range(len(run)), list(run)].tolist()
        return Drawn(tuple(run), tuple(logits), tuple(probable))


def measured(name, drafter, tables, *, least=0.0, samples=0):
    """The gap between the texts that came and those that were due; and how many drafts stood."""
    drafting = Drafting("", None, least, Verification("rejection"))
    samples = samples or SAMPLES[name]
    one = request("a", chain=REJECTION_CHAINS[name], max_tokens=MOST[name], n=samples, drafting=drafting)
    counts, stood = counted(one, runner=tables.target, drafter=drafter, max_batch=SLOTS)
    due = chances(one, lambda text: tables.target.table[(*one.prompt_ids, *text)[-1]])
    return Gap.of(counts, due), stood / samples


def check_rejection(name):
    tables = Tables.make()
    found, stood = measured(name, ModelDrafter(tables.draft), tables)
    assert not found.is_wide, name
    assert stood > 0.4, name


def check_through_text(least):
    tables = Tables.make()
    others = [token for token in range(258) if token not in IDS]
    draft = FakeRunner(max_lanes=SLOTS + 1)
    draft.table = tables.draft.table.index_fill(1, torch.tensor(others), -20.0)
    found, stood = measured("truncated", turned(draft), tables, least=least)
    assert not found.is_wide, least
    assert stood > 0.2, least


def check_is_noticed(name):
    tables = Tables.make()
    assert measured(name, Raw(tables.draft), tables, samples=1500)[0].is_wide, name


def check_without_overlap(name, samples=2000):
    tables = Tables.make(are_near=False)
    found, stood = measured(name, ModelDrafter(tables.draft), tables, samples=samples)
    assert not found.is_wide, name
    assert stood == 0, name


def test_they_have_it_without_any_overlap():
    check_without_overlap("penalised", samples=700)


def test_drafts_from_something_else_than_was_said_are_noticed():
    check_is_noticed("truncated")
