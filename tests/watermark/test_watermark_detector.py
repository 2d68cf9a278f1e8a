"""The detector: evidence, p-values, and texts marked by gencli and by transformers."""

import math
import random

import pytest
import torch
from transformers import GPT2Config, WatermarkDetector, WatermarkingConfig
from transformers.generation import SynthIDTextWatermarkLogitsProcessor

from gencli.tail_probabilities import ln_binomial_tail, ln_gamma_tail, ln_normal_tail
from gencli.watermark_detector import (
    LEAST_SCORED,
    Evidence,
    GumbelScorer,
    KgwScorer,
    SynthIdScorer,
    WatermarkScorer,
    detect,
)
from processors.rng import derived_key
from processors.stages.watermarks import GumbelMarkParams, KgwParams, SynthIdParams
from tests.processors.reference.draw_twins import philox_uniform

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
    class Sure(WatermarkScorer):
        def evidence(self, ids):
            return Evidence(tuple(range(len(ids))), (16.6,) * len(ids))

        ln_p, facts = SCORERS["gumbel"].ln_p, SCORERS["gumbel"].facts

    found = detect(Sure(), [1] * 1000)
    assert (found.verdict, found.p_value) == ("marked", 0.0)
    assert found.ln_p < -10_000
    assert detect(Sure(), [1] * LEAST_SCORED).verdict == "marked"


SMALL_VOCAB = 128


def theirs(scheme, width, is_once):
    return WatermarkDetector(
        GPT2Config(vocab_size=SMALL_VOCAB, bos_token_id=127, eos_token_id=127), "cpu",
        WatermarkingConfig(seeding_scheme=scheme, context_width=width), ignore_repeated_ngrams=is_once,
    )  # fmt: skip


def agrees(scheme, width, tokens, is_once):
    """Require the numbers of transformers; return how many tokens are scored."""
    scorer = KgwScorer(KgwParams(15485863, scheme=scheme, width=width), SMALL_VOCAB, is_once=is_once)
    evidence = scorer.evidence(tokens)
    facts = scorer.facts(evidence)
    expected = theirs(scheme, width, is_once)(torch.tensor([tokens]), return_dict=True)
    assert len(evidence.values) == expected.num_tokens_scored[0]
    assert facts["green"] == expected.num_green_tokens[0]
    assert facts["z"] == pytest.approx(expected.z_score[0], abs=1e-12)
    assert facts["normal_p_value"] == pytest.approx(float(expected.p_value[0]), rel=1e-9)
    return len(evidence.values)


def test_synthid_has_the_mean_scores_of_masked_g_values():
    keys, eos = [654, 400, 836, 123, 340, 443], 99
    generator = torch.Generator().manual_seed(5)
    tokens = [*torch.randint(0, 6, (80,), generator=generator).tolist(), eos, 1, 2, 3, 4]
    other = SynthIDTextWatermarkLogitsProcessor(
        ngram_len=3, keys=keys, sampling_table_size=65536, sampling_table_seed=0, context_history_size=20,
        device=torch.device("cpu"),
    )  # fmt: skip
    ids = torch.tensor([tokens])
    mask = other.compute_context_repetition_mask(ids) * other.compute_eos_token_mask(ids, eos)[:, 2:]
    values = other.compute_g_values(ids)[0].double()[mask[0].bool()]
    weights = torch.linspace(10, 1, 6).double()
    scorer = SynthIdScorer(SynthIdParams(keys, ngram=3, history=20), eos_ids=[eos])
    evidence = scorer.evidence(tokens)
    assert evidence.places == tuple((mask[0].nonzero().flatten() + 2).tolist())
    facts = scorer.facts(evidence)
    assert facts["mean"] == pytest.approx(float(values.mean()))
    assert facts["weighted_mean"] == pytest.approx(float((values @ (weights / weights.sum())).mean()))


def test_gumbel_adds_up_the_logarithms_of_vllms_numbers():
    tokens = [5, 6, 5, 6, 5, 6, 7]
    contexts = [(-1, -1), (-1, 5), (5, 6), (6, 5), None, None, (5, 6)]  # None: it was there before
    scored = [(place, context) for place, context in enumerate(contexts) if context and place != 6]
    expected = sum(-math.log1p(-philox_uniform(77, context, tokens[place])) for place, context in scored)
    scorer = GumbelScorer(GumbelMarkParams(77, width=2))
    evidence = scorer.evidence(tokens)
    assert evidence.places == (0, 1, 2, 3)
    assert scorer.facts(evidence)["score"] == pytest.approx(expected, abs=1e-5)
    assert math.exp(scorer.ln_p(30, 20)) == pytest.approx(0.0218734684414)


def test_two_keys_are_weighted_by_alpha():
    both = GumbelScorer(GumbelMarkParams(77, alpha=0.25)).evidence([1, 2, 3]).values
    first, second = (
        GumbelScorer(GumbelMarkParams(derived_key(77, name))).evidence([1, 2, 3]).values
        for name in ("key_a", "key_b")
    )
    assert both == pytest.approx([0.75 * a + 0.25 * b for a, b in zip(first, second, strict=True)])


def test_known_values():
    assert math.exp(ln_normal_tail((60 - 25) / math.sqrt(18.75))) == pytest.approx(3.162126e-16, rel=1e-6)
    assert math.exp(ln_gamma_tail(30, 20)) == pytest.approx(0.0218734684414)
    assert math.exp(ln_binomial_tail(3, 4, 0.25)) == pytest.approx(13 / 256)
    assert math.exp(ln_binomial_tail(1, 4, 0.25)) == pytest.approx(1 - 81 / 256)


def test_the_gamma_tail_is_that_of_torch():
    for shape in [0.3, 1, 20, 200.7, 1e4]:
        for factor in (0.01, 0.5, 0.9, 1, 1.02, 1.3, 2):
            score = shape * factor
            expected = float(torch.special.gammaincc(*torch.tensor([shape, score], dtype=torch.float64)))
            assert math.exp(ln_gamma_tail(score, shape)) == pytest.approx(expected, rel=1e-8, abs=1e-300), (
                shape
            )


def test_the_binomial_tail_is_a_sum():
    for trials, chance in ((7, 0.25), (30, 0.5), (40, 0.1)):
        terms = [math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(trials + 1)]
        for hits in range(trials + 1):
            found = math.exp(ln_binomial_tail(hits, trials, chance))
            assert found == pytest.approx(math.fsum(terms[hits:]), rel=1e-9)


def test_tails_go_on_below_the_smallest_float():
    assert ln_normal_tail(100) == pytest.approx(-5005.524, rel=1e-6)
    assert ln_normal_tail(29.9999) == pytest.approx(ln_normal_tail(30.0001), rel=1e-4)
    assert ln_binomial_tail(5000, 5000, 0.25) == pytest.approx(5000 * math.log(0.25))
    assert -4900 < ln_gamma_tail(5000, 20) < -4800
    assert ln_gamma_tail(0, 5) == ln_binomial_tail(0, 5, 0.1) == 0
