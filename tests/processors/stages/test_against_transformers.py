"""Where transformers means the same, its warpers give the same logits."""

import torch
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

WIDTH = 500


IDS = torch.tensor([[3, 4, 4, 9, 120, 499, 3]])


ROWS = [3 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in range(20)]


def agree(run, name, params, theirs, **text):
    """Same support and same values, on rows without ties."""
    for row in ROWS:
        ours = torch.tensor(run(name, params, row.tolist(), **text))
        expected = theirs(IDS, row[None].clone())[0]
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-6)


def test_top_p(run):
    for p in [0.0, 0.1, 0.5, 0.9, 0.99]:
        agree(run, "top_p", {"p": p}, TopPLogitsWarper(p))


def test_top_p_keeps_a_minimum(run):
    for keep in [2, 30]:
        agree(run, "top_p", {"p": 0.05, "keep": keep}, TopPLogitsWarper(0.05, min_tokens_to_keep=keep))


def test_min_p(run):
    for p in [0.001, 0.05, 0.3, 1.0]:
        agree(run, "min_p", {"p": p}, MinPLogitsWarper(p))


def test_top_k(run):
    for k in [1, 7, 499, 900]:
        agree(run, "top_k", {"k": k}, TopKLogitsWarper(k))


def test_repetition(run):
    for penalty in [0.7, 1.2, 5.0]:
        theirs = RepetitionPenaltyLogitsProcessor(penalty)
        text = {"prompt": IDS[0, :3].tolist(), "output": IDS[0, 3:].tolist()}
        agree(run, "repetition", {"penalty": penalty}, theirs, **text)


def test_temperature(run):
    for temperature in [0.2, 1.7]:
        for row in ROWS:
            ours = torch.tensor(run("temperature", {"temperature": temperature}, row.tolist()))
            theirs = TemperatureLogitsWarper(temperature)(IDS, row[None].clone())[0]
            # Their largest logit is not moved to 0, so their float32 is coarser.
            torch.testing.assert_close(ours, theirs - theirs.max(), rtol=1e-6, atol=1e-5)


def test_suppress(run):
    agree(run, "suppress", {"ids": [4, 7]}, SuppressTokensLogitsProcessor([4, 7]))


def test_min_tokens(run):
    for count in [3, 4]:
        theirs = MinNewTokensLengthLogitsProcessor(4, count, eos_token_id=[8], device="cpu")
        text = {"prompt": IDS[0, :4].tolist(), "output": IDS[0, 4:].tolist(), "eos_ids": (8,)}
        agree(run, "min_tokens", {"count": count}, theirs, **text)
