"""Packed weights compute what plain ones do, and are used for large projections alone."""

from itertools import product

import pytest
import torch
from torch import nn

from gencli.models.decoder.products.dense_products import PackedLinear, can_pack, pack
from tests.models.cases import case

pytestmark = pytest.mark.skipif(not can_pack(), reason="this machine has no such product")


def test_a_packed_layer_computes_what_the_plain_one_does():
    for rows, bias in product([1, 2, 5, 16, 70], [False, True]):
        with case(rows, bias):
            torch.manual_seed(0)
            plain = nn.Linear(512, 768, bias=bias)
            given = torch.randn(1, rows, 512)
            with torch.inference_mode():
                torch.testing.assert_close(PackedLinear(plain)(given), plain(given), atol=1e-5, rtol=1e-5)


def test_other_types_stay_as_they_are():
    for dtype in [torch.bfloat16, torch.float16]:
        with case(dtype):
            model = pack(nn.ModuleDict({"q_proj": nn.Linear(512, 768, dtype=dtype)}))
            assert type(model["q_proj"]) is nn.Linear
