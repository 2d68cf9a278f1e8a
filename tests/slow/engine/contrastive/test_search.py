"""Contrastive search on the fake model: ends, streams, neighbours, and what is refused."""

from dataclasses import replace
from itertools import product

import torch

from gencli.core.request import Beams, Guidance, Stops
from gencli.models.other_runners import FakeRunner
from tests.engine.contrastive.harness import Plain, request, tokens
from tests.engine.contrastive.test_search import LETTERS, end_of
from tests.engine.harness import TOKENIZER, generate
from tests.engine.harness import request as plain_request


def by_table(runner, ids):
    rows = runner.table[torch.tensor(ids)]
    return rows, rows


def texts_of(ends):
    return {key: (end.text, end.reason) for key, end in ends.items()}


def test_alpha_0_is_a_greedy_draw():
    for text, chain in product(("Hello", "the cat"), ("", LETTERS, "frequency=0.5 | top_p=0.6")):
        greedy = plain_request(text, draw="greedy", chain=chain.partition(" | top_p")[0])
        assert end_of(request(text, alpha=0.0, chain=chain)).text == end_of(greedy).text, (text, chain)


def test_tokens_are_those_of_the_search_written_plainly():
    runner = FakeRunner(258, eos_ids=TOKENIZER.eos_ids)
    plain = Plain(lambda ids: by_table(runner, ids))
    for alpha, k in ((0.1, 5), (0.5, 2), (0.9, 5)):
        asked = [
            request(t, key=t, alpha=alpha, k=k, chain=LETTERS, max_tokens=8) for t in ("ab", "Hello", "e")
        ]
        expected = {one.id: plain.ids(one, LETTERS) for one in asked}
        assert tokens(asked, runner=runner) == expected, (alpha, k)


def test_searches_and_others_of_one_batch_are_as_alone():
    for max_batch in (4, 6, 9):
        rows = [
            request("a", chain=LETTERS),
            request("a long prompt, read in chunks", alpha=0.3, k=3, chain=LETTERS),
            plain_request("drawn", chain=LETTERS),
            plain_request("beams", chain=LETTERS, beams=Beams(3)),
            replace(plain_request("guided", chain=LETTERS), guidance=Guidance(2.0)),
            request("scored", chain=LETTERS, prompt_logprobs=1),
            plain_request("also scored", chain=LETTERS, prompt_logprobs=2),
        ]
        alone = {key: text for row in rows for key, text in texts_of(generate([row])).items()}
        assert texts_of(generate(rows, max_batch=max_batch, step_tokens=6)) == alone, max_batch


def test_a_stop_string_ends_the_text_where_a_candidate_with_it_is_chosen():
    one = request(chain="allowed=[97,98,99,100,101]", max_tokens=40)
    whole = end_of(one).text
    for stop in ("b", "ab", "de"):
        end = end_of(replace(one, stops=Stops(strings=(stop,))))
        assert end.text == whole.partition(stop)[0], stop
        reason = ("stop", stop) if stop in whole else ("length", "max_tokens")
        assert (end.reason, end.matched) == reason, stop
