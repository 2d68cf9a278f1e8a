"""The profiles vllm, vllm-v2 and sglang beside functions of their wheels, where a folder has them unpacked.

    pip download --no-deps -d wheels vllm==0.32.0 sglang==0.5.23
    for wheel in wheels/*.whl; do unzip -qo "$wheel" '*.py' -d wheels/unpacked; done
    PEER_WHEELS=wheels/unpacked pytest tests/config/test_compat_wheels.py

Single functions are taken out of the files, since the packages need a device to be imported. The kernels of
vllm-v2 run on devices only: it is compared with the functions of vllm, on rows without ties.
"""

import torch

from tests.helpers.profiles import own_rows, random_rows
from tests.helpers.tiny_steps import LENGTH, far_steps, steps
from tests.slow.config.test_compat import (
    CHAINS,
    EVEN,
    ROWS,
    VOCAB,
    assert_rows_are_those_of,
    function_of,
    sglang_rows,
    vllm_rows,
)

PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.7}


def vllm_penalised(logits, prompts, outputs):
    """Return logits [R, V] with the `PENALTIES`, of which its CUDA kernel does that of repetition."""
    counts = function_of("vllm/model_executor/layers/utils.py", "get_token_bin_counts_and_mask")
    (_, in_prompt), (number, has) = (counts(ids, logits.shape[1], len(ids)) for ids in (prompts, outputs))
    repetition, frequency, presence = PENALTIES.values()
    scaled = torch.where(logits > 0, logits / repetition, logits * repetition)
    return torch.where(in_prompt | has, scaled, logits) - frequency * number - presence * has.float()


def sglang_penalised(logits, outputs, penalty):
    scale = function_of("sglang/srt/sampling/penaltylib/repetition_penalty.py", "apply_scaling_penalties")
    theirs = logits.clone()
    scale(theirs, torch.ones_like(logits).scatter(1, outputs, penalty))
    return theirs


def random_outputs(seed):
    return torch.randint(VOCAB, (ROWS, 12), generator=torch.Generator().manual_seed(seed))


def test_the_chain_makes_the_distributions_of_the_system():
    ways = [("vllm", False), ("vllm", True), ("vllm-v2", False), ("sglang", False), ("sglang", True)]
    for profile, ties in ways:
        for given in CHAINS:
            assert_rows_are_those_of(profile, given, ties=ties)


def test_penalties_are_those_of_the_systems():
    prompts, logits = random_rows(ROWS, VOCAB, ties=False, extremes=True)
    outputs = random_outputs(3) // 10
    own = own_rows("vllm", logits, prompts, outputs, **PENALTIES)
    torch.testing.assert_close(own, vllm_penalised(logits, prompts, outputs), rtol=1e-5, atol=1e-5)

    prompts, logits = random_rows(ROWS, VOCAB, ties=False, extremes=True)
    outputs = random_outputs(4)
    own = own_rows("sglang", logits, prompts, outputs, repetition_penalty=1.3)
    torch.testing.assert_close(own, sglang_penalised(logits, outputs, 1.3), rtol=1e-5, atol=1e-5)


def test_texts_of_tiny_are_drawn_from_the_distributions_of_vllm():
    for profile in ["vllm", "vllm-v2"]:
        for given in CHAINS:
            found = steps(profile, **given, **PENALTIES)
            pairs = []
            for ids, logits, own in found:
                logits = vllm_penalised(logits, ids[:, :LENGTH], ids[:, LENGTH:])
                pairs.append((own, vllm_rows(logits, {**EVEN, **given})))
            assert far_steps(pairs) <= 0.004, (profile, given)


def test_texts_of_tiny_are_drawn_from_the_distributions_of_sglang():
    for given in CHAINS:
        found = steps("sglang", **given, repetition_penalty=1.3)
        pairs = []
        for ids, logits, own in found:
            logits = sglang_penalised(logits, ids[:, LENGTH:], 1.3)
            pairs.append((own, sglang_rows(logits, {**EVEN, **given})))
        assert far_steps(pairs) <= 0.004, given
