"""With `invariant` = on every product and every token's attention on a GPU has one order of sums."""

from dataclasses import replace

import pytest
import torch

from gencli.core.request import Drafting, Verification
from gencli.core.step import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.decoder.decode_attention import DecodePlan
from gencli.models.decoder.fixed_attention import FixedPlan
from gencli.models.decoder.products.maker import KernelOptions, choose_kernels
from gencli.models.decoder.runner import DecoderRunner
from gencli.speculative.ngram import NgramDrafter
from tests.engine.harness import request
from tests.models.native import CPU, native_decoder
from tests.models.tiny_models import VOCAB, build_native
from tests.sham import CUDA, sham_device
from tests.speculative.cases import outcomes

pytest.importorskip("triton", reason="without Triton no product on a GPU has one order of sums")

CHAIN = "repetition=1.1 | temperature=0.8 | top_p=0.9"
PRODUCTS = {"mm", "addmm", "linear", "mv"}  # bmm would be the reference of the attention


def runner(kind, device, lanes=4):
    decoder = native_decoder(build_native(kind), device)
    make = choose_kernels(decoder.spec.products, decoder.dtype, device, KernelOptions(invariant="on"))
    return DecoderRunner(decoder, max_lanes=lanes, kernels=make)


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe"])
def test_texts_are_those_of_the_cpu_and_no_other_product_runs(kind):
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
    assert not launched & PRODUCTS


def fed(model, *chunks):
    """The logits behind the last of a lane's chunks."""
    start, rows = 0, None
    for chunk in chunks:
        rows = model.forward(StepPlan((Feed(0, start, tuple(chunk), 1),)))
        start += len(chunk)
    return rows.host


def test_a_prompt_has_the_same_bits_in_any_chunks():
    ids = torch.randint(0, VOCAB, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    with sham_device():
        whole = fed(runner("llama", CUDA), ids)
        for cut in (1, 17, 39):
            assert torch.equal(fed(runner("llama", CUDA), ids[:cut], ids[cut:]), whole)
        assert torch.equal(fed(runner("llama", CUDA), ids[:20], *([one] for one in ids[20:])), whole)


def test_many_tokens_are_attended_to_in_turns(monkeypatch):
    made, buffer = torch.randn(5, 8, 4), torch.randn(3, 4, 6, 4)
    rows, places = torch.tensor([0, 0, 2, 1, 2]), torch.tensor([0, 1, 5, 3, 4])
    options = {"window": 3, "scale": 0.5, "cap": None}
    whole = DecodePlan(rows, places, 6).attend(made, buffer, **options)
    monkeypatch.setattr("gencli.models.decoder.fixed_attention._MAX_CELLS", 12)
    torch.testing.assert_close(FixedPlan(rows, places, 6).attend(made, buffer, **options), whole)


def test_without_triton_it_is_refused(monkeypatch):
    monkeypatch.setattr("gencli.models.decoder.products.fixed.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="`invariant` is on.*bfloat16 on cuda:0") as refused:
        choose_kernels({}, torch.bfloat16, CUDA, KernelOptions(invariant="on"))
    assert "Triton" in refused.value.hint
