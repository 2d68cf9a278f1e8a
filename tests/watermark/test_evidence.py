"""The detectors count and score as transformers' and vLLM's do, on texts of both."""

import math

import pytest
import torch
from transformers import GPT2Config, WatermarkDetector, WatermarkingConfig
from transformers.generation import SynthIDTextWatermarkLogitsProcessor

from gencli.watermark_detector import GumbelScorer, KgwScorer, SynthIdScorer
from processors.draw_twins import philox_uniform
from processors.rng import derived_key
from processors.stages.watermarks import GumbelMarkParams, KgwParams, SynthIdParams

VOCAB = 128


def theirs(scheme, width, is_once):
    return WatermarkDetector(
        GPT2Config(vocab_size=VOCAB, bos_token_id=127, eos_token_id=127), "cpu",
        WatermarkingConfig(seeding_scheme=scheme, context_width=width), ignore_repeated_ngrams=is_once,
    )  # fmt: skip


def agrees(scheme, width, tokens, is_once):
    """Require the numbers of transformers; return how many tokens are scored."""
    scorer = KgwScorer(KgwParams(15485863, scheme=scheme, width=width), VOCAB, is_once=is_once)
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
