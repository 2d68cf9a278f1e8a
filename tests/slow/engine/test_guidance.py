"""Guided requests and requests that contrast layers: the formula, in every company."""

import json
import random
from dataclasses import replace

import torch

from gencli.core.request import Drafting, Guidance, LayerContrast
from gencli.engine.guidance import candidates
from gencli.speculative.drafter import NgramDrafter
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams
from tests.engine.harness import Scripted, generate, request
from tests.engine.test_guidance import (
    COLD,
    CUT,
    GUIDED,
    LOW,
    MIXED,
    Remembering,
    asked,
    guided,
    ids,
    model,
    run,
    runner,
    spec,
)
from tests.processors.reference.draw_twins import contrast_layers


def test_a_batch_of_guided_and_other_requests_gives_each_its_own_text():
    alone = {key: text for one in MIXED for key, text in run([one]).items()}
    for max_batch, step_tokens in ((3, 16), (8, 512)):
        shuffled = random.Random(max_batch).sample(MIXED, len(MIXED))
        assert run(shuffled, max_batch=max_batch, step_tokens=step_tokens) == alone, (max_batch, step_tokens)


def test_drafts_keep_the_text():
    for most, chain in ((1, "ignore_eos=true | temperature=0"), (2, "ignore_eos=true"), (4, CUT)):
        one = guided(chain=chain, max_tokens=40, jump="off")
        answer = ids(one)
        drafter = Scripted({one.prompt_ids: answer}, most=most)
        assert ids(one, drafter=drafter) == answer, (most, chain)
        assert drafter.proposed > 0, (most, chain)
    one = guided("abcabcabcabc", max_tokens=60, drafting=Drafting(tokens=4), chain="allowed=[97,98,99]")
    assert ids(one, drafter=NgramDrafter()) == ids(one)


def test_rows_with_and_without_amateurs_share_steps():
    contrast = Guidance(1.5, cutoff=0.1, amateur="small")
    rows = [replace(one, guidance=contrast) if i % 3 == 0 else one for i, one in enumerate(MIXED)]

    def made(some, **options):
        return run(some, amateurs={"small": Remembering(seed=5)}, **options)

    alone = {key: text for one in rows for key, text in made([one]).items()}
    assert made(rows, max_batch=4, step_tokens=32) == alone


WORDS = ("red", "green", "greenish", "blue and white", "blue and black")


def test_a_guided_document_stays_in_its_grammar():
    grammar = Chain((("grammar", GrammarParams(json.dumps(WORDS), kind="choice", backend="trie")),))
    for jump in ("auto", "off"):
        rows = [
            replace(guided("pick", guidance, key=f"{i}", seed=i, jump=jump), chain=grammar)
            for i, guidance in enumerate((GUIDED, Guidance(2.5)) * 3)
        ]
        ends = run(rows)
        assert {*ends.values()} <= {*WORDS}, jump
        plain = {key: text for one in rows for key, text in run([replace(one, jump="off")]).items()}
        assert ends == plain, jump


def test_a_guided_step_feeds_two_tokens_and_a_scale_of_one_nothing_more():
    plain, unguided, with_companion = Remembering(), Remembering(), Remembering()
    options = {"max_tokens": 100, "chain": "ignore_eos=true"}
    of_one = guided(guidance=Guidance(1.0, COLD), **options)
    assert run([request(**options)], runner=plain) == run([of_one], runner=unguided)
    run([guided(**options)], runner=with_companion)
    assert plain.num_fed == unguided.num_fed
    assert with_companion.num_fed <= 2.1 * plain.num_fed
    assert with_companion.steps == plain.steps


PROMPTS = ("Hello", "the cat sat on the mat", "a")


@torch.inference_mode()
def by_hand(model, one):
    """Greedy ids from the states of transformers, a whole pass for each token."""
    found, layers = [], candidates(one.dola.layers, spec(6))
    for _ in range(12):
        out = model(torch.tensor([[*one.prompt_ids, *found]]), output_hidden_states=True)
        early = [model.lm_head(out.hidden_states[layer][0, -1]).tolist() for layer in layers]
        scores = contrast_layers(out.logits[0, -1].tolist(), early, one.dola.cutoff)
        scores[257] = -torch.inf
        found.append(max(range(258), key=scores.__getitem__))
    return bytes(token for token in found if token < 256).decode(errors="replace")


def check(model, runner, dola):
    asks = [asked(text, dola, draw="greedy") for text in PROMPTS]
    found = {key: end.text for (key, _), end in generate(asks, runner=runner).items()}
    assert found == {one.id: by_hand(model, one) for one in asks}, dola


def test_the_text_is_that_of_the_formula_on_the_states_of_transformers(model, runner):
    check(model, runner, LOW)


def test_others_beside_it_change_nothing_and_it_changes_nothing_of_theirs(runner):
    requests = [
        asked("Hello"),
        asked("Hello", LayerContrast((4,)), key="four", prompt_logprobs=1),
        asked("a", None, logprobs=1),
        replace(asked("Hello", None, key="guided"), guidance=Guidance(2.0)),
        asked("the cat", key="many", n=2),
    ]
    alone = {key: end for one in requests for key, end in generate([one], runner=runner).items()}
    together = generate(requests, runner=runner)
    assert {key: end.text for key, end in together.items()} == {key: end.text for key, end in alone.items()}
    assert len({end.text for end in alone.values()}) == len(alone)


def test_drafts_change_nothing(runner):
    for count in (1, 3, 8):
        one = asked("the cat sat")
        plain = generate([one], runner=runner)[one.id, 0]
        drafter = Scripted({one.prompt_ids: tuple(plain.text.encode(errors="replace"))}, most=count)
        drafted = replace(one, drafting=Drafting(tokens=count))
        assert generate([drafted], runner=runner, drafter=drafter)[one.id, 0].text == plain.text, count
