"""Packed weights compute what plain ones do, and are used for large projections alone."""

import pytest
import torch
from random_models import random_llama

from gencli.models.decoder.products.dense_products import PackedLinear, can_pack, pack

pytestmark = pytest.mark.skipif(not can_pack(), reason="this machine has no such product")


def test_a_packed_model_has_the_same_logits():
    sizes = {"hidden_size": 384, "intermediate_size": 1024, "vocab_size": 300}
    plain, packed = random_llama(**sizes), pack(random_llama(**sizes))
    kinds = {name.split(".")[-1] for name, part in packed.named_modules() if isinstance(part, PackedLinear)}
    assert kinds == {"gate_proj", "up_proj", "down_proj"}
    ids = torch.arange(24).view(1, 24)
    with torch.inference_mode():
        torch.testing.assert_close(packed(ids).logits, plain(ids).logits, atol=1e-5, rtol=1e-5)
