"""Trees of drafts change no text, whatever is chosen and whatever else a step does."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest
import torch

from gencli.core.request import Beams, Contrastive, Drafting, Feed, Guidance, LayerContrast, Limits, StepPlan
from gencli.core.tree_shapes import MAX_NODES, DynamicTree
from gencli.models.other_runners import FakeRunner
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.combined_drafters import FallbackDrafter
from gencli.speculative.drafter import DraftTree
from processors.chain import Chain
from processors.request_values import Verification
from processors.stages.grammar_stage import GrammarParams
from processors.stages.masks import BanParams
from tests.engine.harness import engine, request
from tests.engine.tree_cases import Branching, Forest, branched, compared, run, runner

PROMPTS = ("Once upon a time", "A text", "She said that it was", "x", "There was a king of that land")
DRAWN = "temperature=0.9"


def requests(chain=DRAWN, count=5, max_tokens=30, **rest):
    return [
        request(text, key=f"{index}", seed=index, chain=chain, max_tokens=max_tokens, **rest)
        for index, text in enumerate(PROMPTS[:count])
    ]


CHAINS = (
    "temperature=0",
    "temperature=0.8 | top_p=0.9",
    "repetition=1.3 | frequency=0.4 | presence=0.3 | temperature=0.8",
    "temperature=0.9 | min_p=0.05 | no_repeat_ngram=3",
)


@pytest.mark.parametrize(("kind", "max_batch"), [("full", 1), ("window", 5)])
def test_texts_are_those_without_drafts(kind, max_batch):
    for chain in CHAINS:
        _, branched, drafter = compared(requests(chain), kind=kind, max_batch=max_batch)
        assert branched.accepted > 40, chain
        assert branched.nodes > 200, chain
        assert set(drafter.asked) == {24}


def test_a_step_is_walked_in_as_many_rounds_as_it_turns_and_chooses_the_same_again(monkeypatch):
    from processors.chooser import Chooser

    choose, chosen, again = Chooser.__call__, {}, []

    def recorded(self, logits, rows):
        tokens = choose(self, logits, rows)
        for slot, position, drafts, token in zip(
            rows.host_slots, rows.positions.tolist(), rows.host_drafts, tokens.tolist(), strict=True
        ):
            key = slot, position, drafts
            again.append(key in chosen)
            assert chosen.setdefault(key, token) == token
        return tokens

    monkeypatch.setattr(Chooser, "__call__", recorded)
    compared(requests(count=1), kind="fake")
    assert any(again)


@pytest.mark.parametrize(
    "guidance",
    [
        Guidance(2.0),
        Guidance(1.5, negative=tuple(b"Nobody was there.")),
        Guidance(0.7, cutoff=0.05),
        Guidance(1.6, amateur="small"),
    ],
)
def test_companions_follow_the_path(guidance):
    amateurs = {"small": runner("window")} if guidance.amateur else {}
    _, branched, _ = compared(requests(count=3, guidance=guidance), max_batch=3, amateurs=amateurs)
    assert branched.accepted > 20


def test_an_amateur_that_takes_no_trees_is_fed_chains():
    guided = requests(count=2, guidance=Guidance(1.6, amateur="small"))
    _, branched, drafter = compared(guided, amateurs={"small": FakeRunner()})
    assert set(drafter.asked) == {0}
    assert branched.nodes == 0
    assert branched.accepted > 5  # of principal chains


def within(params, one):
    return replace(one, chain=Chain((("grammar", params), *one.chain.stages)))


def test_what_a_grammar_refuses_is_not_fed():
    words = ["".join(letters) for letters in product("abcdefghijkl", repeat=4)]
    grammar = GrammarParams(json.dumps(words), kind="choice", backend="trie")
    ruled = [within(grammar, request(str(i), seed=i, chain=DRAWN, jump="off")) for i in range(20)]
    plain, branched, _ = compared(ruled, kind="fake", max_batch=5)
    fed = [
        token
        for plan in branched.model.plans
        for feed in plan.feeds
        for token in feed.tokens[len(feed.tokens) - len(feed.parents) :]
    ]
    assert {end.document for end in plain.ends.values()} == {"over"}
    assert (len(fed) > 50, set(fed) <= {*b"abcdefghijkl"}) == (True, True)  # half of what is proposed


class Offering(Branching):
    """Proposes the same tokens again and again, each behind the newest one."""

    def _tree(self, ask):
        return DraftTree(tuple(b"zaybcd"), (-1,) * 6)


def test_the_places_of_refused_nodes_go_to_the_next_ones():
    grammar = GrammarParams("[a-d]{9}", kind="regex")
    ruled = branched([within(grammar, request("x", chain=DRAWN, jump="off"))], nodes=3)
    found = run(ruled, kind="fake", drafter=Offering(()))
    fed = [feed.tokens[-3:] for plan in found.model.plans for feed in plan.feeds if feed.parents]
    assert {*fed} == {tuple(b"abc")}


def test_log_probabilities_and_explanations_are_alike():
    for chain in (CHAINS[1], CHAINS[2]):
        wanted = requests(chain, count=3, logprobs=3, trace=2, max_tokens=20)
        plain, branched, _ = compared(wanted, max_batch=3)
        assert branched.accepted > 15
        for name in ("logprobs", "views"):
            expected, found = plain.of_tokens(name), branched.of_tokens(name)
            assert {key: len(each) for key, each in found.items()} == {
                key: len(ids) for key, ids in plain.ids.items()
            }
            for key, entries in expected.items():
                for entry, other in zip(entries, found[key], strict=True):
                    assert numbers(other) == pytest.approx(numbers(entry), abs=2e-5)


def numbers(value):
    """The numbers in a record, in their order."""
    if isinstance(value, bool | int | float):
        return [float(value)]
    if isinstance(value, tuple | list):
        return [number for each in value for number in numbers(each)]
    names = getattr(value, "__dataclass_fields__", ())
    return [number for name in names for number in numbers(getattr(value, name))]


def test_prompts_are_scored_beside_trees():
    wanted = requests(count=2, prompt_logprobs=1)
    compared([*wanted, *[replace(one, id=f"{one.id} too", prompt_logprobs=None) for one in wanted]])


TAPS = (0, 1, -1)


def test_layers_are_contrasted_along_the_path():
    compared(requests(count=2, dola=LayerContrast("low")), max_batch=2)


def test_hidden_states_are_those_of_the_text():
    texts = requests(count=3)
    _, branched, drafter = compared(texts, taps=TAPS, max_batch=2, kind="window")
    assert branched.accepted > 20
    model = runner("window")
    for tokens, states in [*drafter.texts.items()][::7]:
        model.release(0)
        feeds = (Feed(0, 0, tokens),)
        _, inner = model.forward_layers(StepPlan(feeds), (), [0], TAPS)
        plain = torch.stack([inner.taps[tap] for tap in TAPS], 1)
        torch.testing.assert_close(states, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_batch": 2}, id="slots in turn"),
        pytest.param({"max_batch": 4, "step_tokens": 16}, id="prompts in chunks, trees cut"),
        pytest.param({"max_batch": 4, "share_prefixes": False}, id="no prefix shared"),
        pytest.param({"max_batch": 4, "run_ahead": True}, id="steps ahead"),
    ],
)
def test_slots_prefixes_chunks_and_steps_ahead(options):
    begin = "A text of some length, that many begin with: "
    texts = [
        request(begin + "one", key=1, chain=DRAWN, n=3),
        request(begin + "two", key=2, chain=DRAWN),
        request("Short", key=3, chain=DRAWN, session="s"),
        request("Short and longer", key=4, chain=DRAWN, session="s", limits=Limits(max_tokens=9)),
    ]
    _, branched, _ = compared(texts, **options)
    assert branched.accepted > 30


def test_a_text_ends_at_the_context():
    class Small(Forest):
        def __init__(self):
            super().__init__(context=40)

    plain, branched, drafter = compared(requests(max_tokens=100), make=Small, max_batch=5)
    assert all(end.matched == "context" for end in plain.ends.values())
    assert min(drafter.asked) < 3
    assert branched.accepted > 30


class Full(Forest):
    """A model whose memory is full in some steps."""

    def forward(self, plan):
        logits = super().forward(plan)
        if len(self.plans) in (4, 9):
            raise MemoryError
        return logits


def test_a_full_memory():
    compared(requests(), make=Full, max_batch=5)


def test_known_tokens_held_tokens_and_searches_beside_trees():
    banned = BanParams(("ab", "e", "th"), rewind=True)
    first, *others = requests()
    texts = [
        first,
        replace(first, id="given", given=tuple(b"a given text")),
        replace(others[0], id="prefix", prefix=tuple(b"It begins so: ")),
        replace(others[1], id="rewind", chain=Chain((("ban", banned), *others[1].chain.stages))),
        replace(others[2], id="beams", beams=Beams(3), n=2, chain=Chain()),
        replace(others[3], id="contrast", contrastive=Contrastive(0.4, 3), chain=Chain()),
        replace(others[3], id="best", best_of=3),
    ]
    _, branched, drafter = compared(texts, kind="fake", max_batch=16)
    assert branched.nodes > 50
    assert {0, 24} <= set(drafter.asked)  # while tokens are known no drafts branch


def test_requests_that_drafts_decide_have_chains():
    rejecting = Drafting(tokens=3, verification=Verification("rejection"), tree=DynamicTree(4, 8, 24))
    one, other = requests(count=2)
    plain = run([replace(one, drafting=rejecting)], drafter=None)
    assert plain.nodes == 0
    drafter = Branching([(*one.prompt_ids, *b"a text that it writes")])
    mixed = run(
        [
            replace(one, drafting=rejecting),
            replace(other, drafting=Drafting(tree=DynamicTree(4, 8, MAX_NODES + 9))),
        ],
        kind="fake",
        max_batch=2,
        drafter=drafter,
    )
    assert set(drafter.asked) == {0, MAX_NODES}
    assert mixed.ends["0", 0].drafted.nodes == 0


class Chains(Branching):
    has_trees = False


def test_that_no_trees_can_be_verified_or_proposed_is_said_once():
    def said(drafting, model, make, **guided):
        inner = FallbackDrafter([AdaptiveDrafter(make([]), clock=lambda: 0.0, name="ngram")])
        on = engine(runner=model, drafter=inner, amateurs={"small": FakeRunner()})
        for key in ("a", "b"):
            on.submit(request(PROMPTS[0], key=key, drafting=drafting, **guided))
        return [text.removeprefix("`draft_tree` has no effect, drafts are chains: ") for text in on.notices]

    trees, amateur = Drafting("ngram", tree=DynamicTree(2, 2, 4)), Guidance(1.6, amateur="small")
    assert said(trees, Forest(), Branching) == []
    assert said(trees, Forest(), Chains) == ["the drafter proposes no trees."]
    assert said(trees, FakeRunner(), Branching) == [f"{FakeRunner().spec.name} takes no trees."]
    assert said(trees, Forest(), Branching, guidance=amateur) == ["small takes no trees."]
    for quiet in (Drafting("ngram"), replace(trees, drafter="none")):
        assert said(quiet, FakeRunner(), Chains) == []


def test_without_the_option_trees_are_chains():
    _, branched, drafter = compared(requests(count=2), nodes=0)
    assert set(drafter.asked) == {0}
    assert (branched.nodes, branched.accepted > 5) == (0, True)
