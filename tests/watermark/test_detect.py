"""False alarms have the stated rate; a marked passage is found inside a longer text."""

import math
import random

from gencli.watermark_detector import (
    LEAST_SCORED,
    Evidence,
    GumbelScorer,
    KgwScorer,
    Scorer,
    SynthIdScorer,
    detect,
)
from processors.draw_twins import philox_uniform
from processors.stages.watermarks import GumbelMarkParams, KgwParams, SynthIdParams

VOCAB = 300


SCORERS = {
    "kgw": KgwScorer(KgwParams(15485863), VOCAB),
    "selfhash": KgwScorer(KgwParams(15485863, scheme="selfhash", width=2), 64),
    "synthid": SynthIdScorer(SynthIdParams(range(100, 130))),
    "gumbel": GumbelScorer(GumbelMarkParams(42)),
    "dual": GumbelScorer(GumbelMarkParams(42, alpha=0.1)),
}


def texts(count, length, vocab=VOCAB):
    draw = random.Random(1)
    return [[draw.randrange(vocab) for _ in range(length)] for _ in range(count)]


def marked(length, key=42):
    """Ids that a flat model draws with the mark."""
    ids = []
    for _ in range(length):
        context = [-1, -1, -1, -1, *ids][-4:]
        ids.append(max(range(40), key=lambda token: philox_uniform(key, context, token)))
    return ids


def test_a_marked_passage_is_found_inside_a_longer_text():
    (before, after), passage = texts(2, 400), marked(60)
    text = [*before, *passage, *after]
    found = detect(SCORERS["gumbel"], text, window=40)
    assert found.verdict == "marked"
    assert 390 <= found.window.start < found.window.end <= 470
    assert found.window.ln_p < math.log(1e-9)
    assert detect(SCORERS["gumbel"], [*before, *after], window=40).verdict == "not marked"
    wrong = GumbelScorer(GumbelMarkParams(43))
    assert detect(wrong, text, window=40).verdict == "not marked"


def test_a_short_text_is_not_judged():
    for name in SCORERS:
        for length in (0, 1, 4, 10):
            found = detect(SCORERS[name], [1] * length)
            assert found.verdict == "not enough tokens", name
            assert 0 <= found.p_value <= 1, name
    same = detect(SCORERS["gumbel"], [7] * 500)
    assert same.verdict == "not enough tokens", "it says one thing 500 times"


def test_a_text_of_nothing_but_evidence_is_marked_below_the_smallest_float():
    class Sure(Scorer):
        def evidence(self, ids):
            return Evidence(tuple(range(len(ids))), (16.6,) * len(ids))

        ln_p, facts = SCORERS["gumbel"].ln_p, SCORERS["gumbel"].facts

    found = detect(Sure(), [1] * 1000)
    assert (found.verdict, found.p_value) == ("marked", 0.0)
    assert found.ln_p < -10_000
    assert detect(Sure(), [1] * LEAST_SCORED).verdict == "marked"
