"""Searches on the fake model: the true best text, limits, stops, grammars, neighbours."""

from itertools import product

import pytest

from gencli.models.other_runners import FakeRunner
from tests.engine.beams.harness import LETTERS, request, search, texts
from tests.engine.harness import TOKENIZER
from tests.engine.harness import request as plain

TOY = (97, 98, 99, 257)  # a, b, c and the end of the text


CHAIN = "allowed=[97,98,99,257]"


def every_text(table, prompt, most):
    """Sum of logprobs of every text over the toy vocabulary, by its tokens."""
    found = {}
    for length in range(1, most + 1):
        for ids in product(TOY, repeat=length):
            if 257 in ids[:-1] or (ids[-1] != 257 and length < most):
                continue
            last, total = prompt[-1], 0.0
            for token in ids:
                row = table[last].double()[list(TOY)].log_softmax(0)
                total += row[TOY.index(token)].item()
                last = token
            found[ids] = total
    return found


def test_enough_beams_find_the_best_of_all_texts():
    for penalty, seed in product((-0.5, 0.0, 0.6, 1.0, 2.0), (1, 2)):
        runner = FakeRunner(258, seed, eos_ids=TOKENIZER.eos_ids, max_lanes=120)
        prompt = TOKENIZER.encode("x")
        known = every_text(runner.table, prompt, 4)
        best = sorted((total / len(ids) ** penalty for ids, total in known.items()), reverse=True)[:5]
        one = request("x", width=120, penalty=penalty, chain=CHAIN, max_tokens=4, n=5)
        ends = search([one], runner=runner, max_batch=120)
        assert [ends["x", j].score for j in range(5)] == pytest.approx(best), (penalty, seed)


def test_neighbours_and_chunks_of_the_prompt_change_nothing():
    many = [
        request("Hello", width=2),
        request("a", width=4, penalty=0.6, early=True),
        request("the big cat " * 5, width=3, penalty=2.0),
        request("zz", width=1),
    ]
    alone = {key: found for one in many for key, found in texts([one]).items()}
    runner = FakeRunner(258, eos_ids=(257,))
    assert texts(many, runner=runner) == texts(many, step_tokens=7) == alone
    assert [runner.length(lane) for lane in range(8)] == [0] * 8  # lanes are empty after a search
    assert texts([*many, plain("beside", chain=LETTERS)], max_batch=4) == alone | {"beside": []}
