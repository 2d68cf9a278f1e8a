"""Guided requests own a second lane; what comes of it is the formula's and nothing else's."""

import json
import random
from dataclasses import replace

from gencli.core.request import Drafting, Guidance
from gencli.speculative.drafter import NgramDrafter
from processors.catalog import GrammarParams
from processors.chain import Chain
from tests.engine.harness import Scripted, request
from tests.engine.test_guidance import COLD, CUT, GUIDED, MIXED, Remembering, guided, ids, run


def test_a_batch_of_guided_and_other_requests_gives_each_its_own_text():
    alone = {key: text for one in MIXED for key, text in run([one]).items()}
    for max_batch, step_tokens in ((1, 512), (3, 16), (8, 512)):
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
