"""With `invariant` = on every product and every token's attention on a GPU has one order of sums."""

from dataclasses import replace

import pytest
import torch

from gencli.core.request import Drafting, Feed, StepPlan, Verification
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.products.product_maker import KernelOptions, choose_kernels
from gencli.speculative.drafter import NgramDrafter
from tests.engine.harness import request
from tests.models.native import CPU, native_decoder
from tests.models.tiny_models import VOCAB, build_native
from tests.sham import CUDA, sham_device
from tests.speculative.cases import outcomes

pytest.importorskip("triton", reason="without Triton no product on a GPU has one order of sums")


CHAIN = "repetition=1.1 | temperature=0.8 | top_p=0.9"
OTHERS = {"mm", "addmm", "bmm", "linear", "mv", "attend_chunk", "_scaled_dot_product_attention_math"}


def runner(kind, device, lanes=4):
    decoder = native_decoder(build_native(kind), device)
    make = choose_kernels(decoder.spec.products, decoder.dtype, device, KernelOptions(invariant="on"))
    return DecoderRunner(decoder, max_lanes=lanes, kernels=make)


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe", "gpt_oss"])
def test_texts_are_those_of_the_cpu_and_no_other_product_or_attention_runs(kind):
    sizes = {"a": 3, "b": 40, "c": 12, "d": 1, "e": 25}
    drafting = Drafting("ngram", 3, verification=Verification("match"))
    requests = [request(c * size, key=c, chain=CHAIN, max_tokens=6) for c, size in sizes.items()]
    requests.append(replace(request("abcabcabc", key="f", chain=CHAIN, max_tokens=6), drafting=drafting))
    options = {"drafter": NgramDrafter(), "max_batch": 3, "step_tokens": 16}
    here, _ = outcomes(requests, runner=runner(kind, CPU), **options)
    with sham_device() as seen:
        model = runner(kind, CUDA)
        assert outcomes(requests, runner=model, **options)[0] == here
        launched = set(seen.launches)
    assert model.spec.kernels == ("fixed",)
    assert model.spec.is_batch_invariant
    assert "fixed_product" in launched
    assert not launched & OTHERS


def launches(model, *chunks):
    """The names of what a lane's chunks launch, each in a pass of its own, and the last logits."""
    start, rows = 0, None
    with sham_device() as seen:
        runner = model()
        seen.clear()
        for chunk in chunks:
            rows = runner.forward(StepPlan((Feed(0, start, tuple(chunk), 1),)))
            start += len(chunk)
        return set(seen.launches) - {"copy_", "_to_copy", "zeros"}, rows.host  # without those of the inputs


def test_a_prompt_is_computed_by_the_kernels_of_decode_steps_however_it_is_cut():
    ids = torch.randint(0, VOCAB, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    steps, expected = launches(lambda: runner("llama", CUDA), *([one] for one in ids))
    for cut in (1, 17, 40):
        names, logits = launches(lambda: runner("llama", CUDA), *filter(None, (ids[:cut], ids[cut:])))
        # The two have the same sums: see kernels/test_attention.py.
        assert {"attend_parts" if name == "attend_tiles" else name for name in names} == steps
        torch.testing.assert_close(logits, expected)  # by references, whose order the CPU decides
