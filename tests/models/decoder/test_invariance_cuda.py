"""With `invariant` = on every product and every token's attention on a GPU has one order of sums."""

import pytest
import torch

from gencli.errors import ModelError
from gencli.models.decoder.attention_plans import DecodePlan, FixedPlan
from gencli.models.decoder.products.product_maker import KernelOptions, choose_kernels
from tests.sham import CUDA

pytest.importorskip("triton", reason="without Triton no product on a GPU has one order of sums")


def test_many_tokens_are_attended_to_in_turns(monkeypatch):
    noise = torch.Generator().manual_seed(3)
    queries, buffer = torch.randn(70, 4, 4, generator=noise), torch.randn(3, 4, 256, 4, generator=noise)
    cells = torch.full((70,), 2), torch.arange(100, 170)
    options = {"window": 3, "scale": 0.5, "cap": None}
    whole = DecodePlan(*cells, 256).attend(queries, buffer, **options)
    monkeypatch.setattr("gencli.models.decoder.attention_plans._MAX_CELLS", 512)
    torch.testing.assert_close(FixedPlan(*cells, 256).attend(queries, buffer, **options), whole)


def test_without_triton_it_is_refused(monkeypatch):
    monkeypatch.setattr("gencli.models.decoder.products.dense_products.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="`invariant` is on.*bfloat16 on cuda:0") as refused:
        choose_kernels({}, torch.bfloat16, CUDA, KernelOptions(invariant="on"))
    assert "Triton" in refused.value.hint
