"""Guided requests own a second lane; what comes of it is the formula's and nothing else's."""

import random

from tests.engine.test_guidance import MIXED, run


def test_a_batch_of_guided_and_other_requests_gives_each_its_own_text():
    alone = {key: text for one in MIXED for key, text in run([one]).items()}
    for max_batch, step_tokens in ((1, 512), (3, 16), (8, 512)):
        shuffled = random.Random(max_batch).sample(MIXED, len(MIXED))
        assert run(shuffled, max_batch=max_batch, step_tokens=step_tokens) == alone, (max_batch, step_tokens)
